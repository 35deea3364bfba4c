"""I6 and I11: checks the journal of decisions, and replays it in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.auditor.findings import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
BARRING: Final = frozenset({"NoSchedule", "NoExecute"})
_Value = dict[str, Any]


class Journal:
    """The journal of one scheduler process; it is replayed only if it has changed."""

    def __init__(self, path: Path, program: str) -> None:
        """`program` is the module whose verb replays the journal."""
        self._path = path
        self._program = program
        self._text = b""
        self._found: list[Violation] = []

    def violations(self) -> list[Violation]:
        """Return the violations in the journal up to now."""
        text = self._path.read_bytes()
        if text != self._text:
            self._text = text
            # A crash may have cut the last line: ignore it.
            lines = [json.loads(line) for line in text.split(b"\n")[:-1]]
            self._found = [*binds_to_bad_nodes(lines), *_decided_otherwise(self._path, self._program)]
        return self._found


def binds_to_bad_nodes(lines: list[_Value]) -> Iterator[Violation]:
    """I6: the scheduler bound a pod to a node that it knew to be deleted, not Ready, cordoned or not tolerated."""
    nodes: dict[str, _Value] = {}
    pods: dict[str, _Value] = {}
    for line in lines:
        kind, value = line.get("received"), line.get("value")
        known, key = {"node": (nodes, "name"), "pod": (pods, "ref")}.get(str(kind), (None, ""))
        if known is not None and value is not None:
            name = value[key] if kind == "node" else value[key]["uid"]
            if line["gone"]:
                known.pop(name, None)
            else:
                known[name] = value
        elif line.get("verdict") == "bind":
            where = line["placement"]["node"]
            fault = _fault(nodes.get(where), pods[line["uid"]])
            if fault:
                yield Violation("I6", f"{line['decided']} was to be bound to {where}, which {fault}")


def _fault(node: _Value | None, pod: _Value) -> str:
    if node is None:
        return "was not there"
    if not node["ready"]:
        return "was not Ready"
    if node["unschedulable"]:
        return "was cordoned"
    taints = [taint for taint in node["taints"] if taint["effect"] in BARRING]
    tolerations = pod["constraints"]["tolerations"]
    borne = all(any(_covers(toleration, taint) for toleration in tolerations) for taint in taints)
    return "" if borne else "had a taint that it does not tolerate"


def _covers(toleration: _Value, taint: _Value) -> bool:
    alike = toleration["effect"] in {"", taint["effect"]} and toleration["key"] in {"", taint["key"]}
    return alike and (toleration["operator"] == "Exists" or toleration["value"] == taint["value"])


def _decided_otherwise(journal: Path, program: str) -> Iterator[Violation]:
    """I11: the replay of the same inputs in the same order gives another decision."""
    ran = subprocess.run(
        [sys.executable, "-m", program, "replay", str(journal), "-o", "json"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'scheduler'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in {0, 1}, ran.stderr[-2000:]
    for each in json.loads(ran.stdout)["items"]:
        pod = f"{each['namespace']}/{each['name']}"
        yield Violation("I11", f"line {each['line']}, {pod}: it was {each['before']}, and is {each['now']}")
