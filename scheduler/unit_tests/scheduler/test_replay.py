"""The replay of snapshots and journals: what differs, and one sentence for each file that cannot be replayed."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.pod import Pod, ScheduledCondition
from gpu_scheduler.scheduler.journal import FORMAT, encoded, received_line
from gpu_scheduler.scheduler.ports import InputKind
from gpu_scheduler.scheduler.replay import _TYPES, MAX_LINE, Replay, ReplayError, value_of
from tests.messages import says, text_of
from unit_tests.core.build import node
from unit_tests.scheduler.recorded import CLUSTER, HELD, HOLDER, changed, journal_of, register, snapshot_of, waiting

register()
FORMAT_1 = Path(__file__).with_name("format-1.snapshot")
SNAPSHOT = snapshot_of(*CLUSTER)
JOURNAL = journal_of(*CLUSTER)


def outcomes(lines: list[bytes]) -> list[tuple[str, str | None, str | None, bool]]:
    """Return pod, old and new reason of each decision, and whether they differ."""

    def reason(verdict: dict[str, Any] | None) -> str | None:
        return None if verdict is None else verdict.get("reason") or verdict["verdict"]

    return [(each.pod, reason(each.before), reason(each.now), each.differs) for each in Replay(lines)]


SNAPSHOTS: dict[str, tuple[list[tuple[InputKind, Any]], list[tuple[str, str | None, str | None, bool]]]] = {
    "a pod that waits for the same reason": ([*CLUSTER], [("default/second-0", "GpuHeld", "GpuHeld", False)]),
    "a pod whose message only says more": (
        [*CLUSTER[:3], (InputKind.POD, waiting("second-0", condition=replace(HELD, message="GpuHeld: by another")))],
        [("default/second-0", "GpuHeld", "GpuHeld", False)],
    ),
    "a pod that waits for another reason": ([*CLUSTER[1:]], [("default/second-0", "GpuHeld", "NodeNotFound", True)]),
    "a pod that could be placed": ([*CLUSTER[:2], CLUSTER[3]], [("default/second-0", "GpuHeld", "bind", True)]),
    "a pod that had not been decided on": (
        [*CLUSTER[:3], (InputKind.POD, waiting("second-0", condition=None))],
        [("default/second-0", None, "GpuHeld", False)],
    ),
    "a condition of another program": (
        [*CLUSTER[:3], (InputKind.POD, waiting("second-0", condition=ScheduledCondition("False", "Odd", "who?")))],
        [("default/second-0", "Odd", "GpuHeld", True)],
    ),
    "a condition that says the pod has a node": (
        [*CLUSTER[:3], (InputKind.POD, waiting("second-0", condition=ScheduledCondition("True", "", "")))],
        [("default/second-0", None, "GpuHeld", False)],
    ),
    "two pods for one GPU, in the order of the scheduling queue": (
        [
            CLUSTER[0],
            (InputKind.POD, waiting("young-0", condition=None)),
            (InputKind.POD, replace(waiting("old-0", condition=None), created="2026-01-01T00:00:01Z")),
        ],
        [("default/old-0", None, "bind", False), ("default/young-0", None, "IndexHeld", False)],
    ),
    "no pending pod": ([*CLUSTER[:3]], []),
    "nothing": ([], []),
}


@pytest.mark.promise("replay-2")
@pytest.mark.parametrize(("inputs", "expected"), SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_pending_pods_of_a_snapshot_are_decided_again(inputs: Any, expected: Any) -> None:
    """Each decision is compared with the pod's condition. A new pod differs from nothing."""
    assert outcomes(snapshot_of(*inputs)) == expected


def test_a_line_of_a_journal_is_compared_word_for_word() -> None:
    """What was decided otherwise is found, with its line."""
    assert [each.differs for each in Replay(JOURNAL)] == [False, False]
    forged = changed(JOURNAL[-1], message="GpuHeld: by nobody")

    (other,) = [each for each in Replay([*JOURNAL[:-1], forged]) if each.differs]

    assert (other.line, other.pod) == (len(JOURNAL), "default/second-0")
    assert other.before is not None
    assert other.before["message"] == "GpuHeld: by nobody"
    says(other.now["message"], "GpuHeld", "GPU 0", "node1", "default/first-0")


def test_the_first_line_says_what_is_missing() -> None:
    """Because its author could not read it. A journal lacks nothing."""
    assert Replay(snapshot_of(unread=("cannot list volumes",))).unread == ("cannot list volumes",)
    assert Replay(JOURNAL).unread == ()


def test_a_journal_of_an_older_version_is_read() -> None:
    """Before the format had a version, a first line had only the policy."""
    old = json.loads(JOURNAL[0])
    del old["format"], old["version"]

    assert [each.differs for each in Replay([json.dumps(old).encode() + b"\n", *JOURNAL[1:]])] == [False, False]


def test_a_snapshot_of_format_1_is_read() -> None:
    """Files of released versions stay readable. A change that breaks this needs a new format, and a translation."""
    with FORMAT_1.open("rb") as file:
        replay = Replay(file)
        found = {each.pod: (each.before, each.now.get("reason"), each.differs) for each in replay}

    assert replay.unread == ("cannot list limits",)
    reported = {"verdict": "wait", "reason": "GpuHeld", "message": HELD.message}
    assert found == {
        "default/second-0": (reported, "GpuHeld", False),
        "default/web-bcd12": (None, "VolumeNotBound", False),
    }


def test_a_crash_cuts_the_last_line_of_a_journal() -> None:
    """The line is left out, and the caller can say so."""
    replay = Replay([*JOURNAL[:-1], JOURNAL[-1][:-1]])

    assert len(list(replay)) == 1
    assert replay.cut


FIRST, SECOND, *REST = SNAPSHOT
DECIDED = JOURNAL[-1]
NEWER = changed(FIRST, format=FORMAT + 1, version="9.9.9", policy="of another shape")
NO_MAP = {
    "workload": {"namespace": "", "owner_kind": "", "owner_name": "", "map": ""},
    "index": None,
    "slot": None,
    "map": "pony",
}
NO_LINE, NEITHER, UNKNOWN = (text_of(f"replay: {each}") for each in ("no line", "neither", "an unknown pod"))
BAD: dict[str, tuple[list[bytes], str]] = {
    "an empty file": ([], NO_LINE),
    "a first line that a crash has cut": ([FIRST[:-1]], NO_LINE),
    "no policy": (SNAPSHOT[1:], "line 1 has another shape .*missing required field `policy`"),
    "a policy of another shape": ([changed(FIRST, policy={"sharing": "x"})], "line 1 has another shape .*'x'"),
    "a newer format": (
        [NEWER],
        "line 1 says format 3, .* 2: .* 9.9.9",
    ),
    "no JSON": ([FIRST, b"hello\n"], "line 2 is no JSON: "),
    "half a line in the middle": ([FIRST, SECOND[:20] + b"\n", *REST], "line 2 is no JSON: "),
    "no UTF-8": ([FIRST, b'{"received": "\xff"}\n'], "line 2 has another shape .*not UTF-8"),
    "another kind of input": ([FIRST, changed(SECOND, received="pony")], "line 2 has another shape .*'pony'"),
    "a value of another shape": ([FIRST, changed(SECOND, value={"name": 1})], r"line 2 .*`str`, got `int`.*\$\.name"),
    "a map that is none": (
        [FIRST, SECOND, changed(REST[-1], value={**json.loads(REST[-1])["value"], "request": {"line": NO_MAP}})],
        "line 3 has another shape .*pony",
    ),
    "a line that nests too deep": ([FIRST, b'{"value": ' + b"[" * 9000 + b"\n"], "line 2 has another shape .*too deep"),
    "a line that says nothing": ([FIRST, b"{}\n"], f"line 2 {NEITHER}"),
    "a list": ([FIRST, b"[]\n"], "line 2 has another shape"),
    "a decision on an unknown pod": ([JOURNAL[0], DECIDED], f"line 2 {UNKNOWN}"),
    "an unknown pod that is released": (
        [JOURNAL[0], encoded(received_line(InputKind.RELEASED, HOLDER.ref))],
        f"line 2 {UNKNOWN}",
    ),
    "a strategy that must be a word": ([FIRST, changed(SECOND, received="strategy", value=3)], "line 2 .* shape"),
    "a huge line": ([FIRST, b'"' + b"x" * MAX_LINE], f"line 2 has more than {MAX_LINE} bytes"),
    "a snapshot that was cut between two lines": (SNAPSHOT[:-1], "line 1 announces 4 lines, and 3 follow"),
    "a snapshot that was cut in a line": (
        [*SNAPSHOT[:-1], SNAPSHOT[-1][:-1]],
        "line 1 announces 4 lines, and 3 follow",
    ),
    "two files in one": ([*SNAPSHOT, *SNAPSHOT], f"line 6 {NEITHER}"),
}


@pytest.mark.promise("replay-3")
@pytest.mark.parametrize(("lines", "expected"), BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_replayed_has_one_error(lines: list[bytes], expected: str) -> None:
    """The error is one short sentence that names the line."""
    with pytest.raises(ReplayError, match=f"^{expected}") as caught:
        list(Replay(lines))

    assert len(str(caught.value)) <= 300
    assert caught.value.remedy == ("replay it with that version" if lines[:1] == [NEWER] else text_of("replay: remedy"))


def test_a_value_that_no_scheduler_writes_is_an_error_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value may have the right shape, and break a rule of the core."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("pony")

    monkeypatch.setattr("gpu_scheduler.scheduler.dry_run.decide", broken)
    with pytest.raises(ReplayError, match=r"^line 5 .*: KeyError: 'pony'"):
        list(Replay(SNAPSHOT))
    monkeypatch.setattr("gpu_scheduler.scheduler.dry_run.DryRun.apply", broken)
    with pytest.raises(ReplayError, match=r"^line 2 .*: KeyError: 'pony'"):
        list(Replay(SNAPSHOT))


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in entries for each in _leaves(part, (*path, key)))]


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    entry = _with(value[key], tuple(rest), new)
    return {**value, key: entry} if isinstance(value, dict) else [*value[:key], entry, *value[key + 1 :]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """Return a file of which one or two parts were replaced, or bytes overwritten."""
    lines = list(draw(st.sampled_from((SNAPSHOT, JOURNAL))))
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, len(lines) - 1))
        if draw(st.booleans()):
            at = draw(st.integers(0, len(lines[number])))
            lines[number] = lines[number][:at] + draw(st.binary(max_size=4)) + lines[number][at + 1 :]
            continue
        try:
            value = json.loads(lines[number])
        except ValueError:
            continue
        path = draw(st.sampled_from(_leaves(value)))
        lines[number] = json.dumps(_with(value, path, draw(JSON))).encode() + b"\n"
    return lines


@pytest.mark.promise("replay-3")
@given(damaged())
@example([b""])
def test_no_file_raises_another_error(lines: list[bytes]) -> None:
    """Whatever a file has, it is replayed, or refused with a ReplayError."""
    with suppress(ReplayError):
        assert len(list(Replay(io.BytesIO(b"".join(lines))))) <= len(lines)


@pytest.mark.promise("replay-1")
@pytest.mark.parametrize("kind", InputKind)
def test_each_value_reads_back_equal(kind: InputKind) -> None:
    """Whatever a scheduler receives, its line gives the same value."""
    kind_type = _TYPES[kind]

    @given(st.none() if kind_type is None else st.from_type(kind_type))
    def reads_back(value: Any) -> None:
        line = msgspec.json.decode(encoded(received_line(kind, value)))
        again = value_of(kind, msgspec.json.encode(line["value"]))
        assert again == value
        if isinstance(value, Pod):
            assert again.scheduled_condition == value.scheduled_condition

    reads_back()


def test_a_waiting_pods_map_reads_back() -> None:
    """A pod that takes any line keeps its whole map."""
    any_line = waiting("web-xyz12", "0=node1:0\n7=node2:1,2\n", owner=None, generate_name="web-")
    assert any_line.request.line is not None
    assert len(any_line.request.line.map.slots) == 2

    again = value_of(InputKind.POD, msgspec.json.encode(any_line, enc_hook=str))

    assert again == any_line
    assert again.request.line.map == any_line.request.line.map
    assert outcomes(snapshot_of((InputKind.NODE, node("node1")), (InputKind.POD, any_line)))[0][2] == "bind"
