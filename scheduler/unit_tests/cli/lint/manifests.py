"""Manifests for tests of lint."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.lint.check import Checked, check

if TYPE_CHECKING:
    from gpu_scheduler.cli.lint.findings import Finding

TWO: Final = "0=node1:0,1\n1=node2:2\n"


def template(
    text: str | None = TWO, scheduler: str | None = "gpu-scheduler", annotations: str = "", spec: str = ""
) -> str:
    """Return a pod's metadata and spec; `annotations` and `spec` are lines of YAML."""
    lines = "" if text is None else f"gpu-scheduling-map: |\n{indent(text, '  ')}"
    given = indent(f"{lines}{annotations}", "    ")
    meta = f"  annotations:\n{given}" if given.strip() else "  labels: {}\n"
    named = "" if scheduler is None else f"  schedulerName: {scheduler}\n"
    containers = "  containers:\n  - name: main\n    image: busybox\n"
    return f"metadata:\n{meta}spec:\n{named}{indent(spec, '  ')}{containers}"


def controller(kind: str, pods: str, spec: str = "", *, name: str = "train", meta: str = "") -> str:
    """Return an object whose `spec.template` is `pods`; `spec` and `meta` are lines of YAML."""
    group = "batch/v1" if kind == "Job" else "apps/v1"
    head = f"apiVersion: {group}\nkind: {kind}\nmetadata:\n  name: {name}\n{indent(meta, '  ')}spec:\n"
    return f"{head}{indent(spec, '  ')}  template:\n{indent(pods, '    ')}"


def stateful_set(text: str = TWO, spec: str = "", **more: str) -> str:
    """Return a StatefulSet with this map; `spec` are lines of YAML."""
    return controller("StatefulSet", template(text), spec, **more)


def pod(pods: str, name: str = "train-0") -> str:
    named = pods.replace("metadata:", f"metadata:\n  name: {name}", 1)
    return f"apiVersion: v1\nkind: Pod\n{named}"


def checked(*texts: str) -> Checked:
    """Check these texts as files a.yaml, b.yaml, ….

    No finding may be empty, or begin with its own word.
    """
    found = check([(f"{chr(97 + number)}.yaml", text) for number, text in enumerate(texts)], "ml")
    assert all(each.message and not each.message.startswith(each.word) for each in found.findings)
    return found


def shown(found: Checked, *texts: str) -> list[tuple[str, str, str]]:
    """Return severity, word, and the line of the file that each finding is about."""
    return [(str(each.severity), str(each.word), _line(each, texts)) for each in found.findings]


def _line(each: Finding, texts: tuple[str, ...]) -> str:
    text = texts[ord(each.source[0]) - 97]
    return "" if each.line is None else text.split("\n")[each.line - 1].strip()
