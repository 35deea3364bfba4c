"""The options of `plan` that change the cluster it is asked about, as values.

LAW: pure. A value that cannot be read is refused with one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_REPLICAS: Final = 10_000
_KINDS: Final = {
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "StatefulSet"),
    **dict.fromkeys(("deployment", "deployments", "deploy"), "Deployment"),
    **dict.fromkeys(("replicaset", "replicasets", "rs"), "ReplicaSet"),
    **dict.fromkeys(("job", "jobs"), "Job"),
}
"""The kinds that can be scaled, by the words that kubectl knows."""
SCALABLE: Final = tuple(dict.fromkeys(_KINDS.values()))


@immutable
class Scale:
    """A number of replicas to plan for."""

    kind: str
    """Empty if any kind of SCALABLE may be meant."""
    name: str
    replicas: int

    def __str__(self) -> str:
        """Return the object's name in messages."""
        return f"{self.kind}/{self.name}" if self.kind else self.name

    def means(self, kind: str, name: str) -> bool:
        """Whether this object may be meant."""
        return name == self.name and (kind == self.kind or (not self.kind and kind in SCALABLE))


@immutable
class WhatIfs:
    """What is different from the cluster as it is."""

    drained: tuple[str, ...] = ()
    """Nodes by name or alias."""
    without: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Nodes and devices of theirs that are broken."""
    gone: tuple[tuple[str, str], ...] = ()
    """Namespaces and names of pods."""
    scales: tuple[Scale, ...] = ()


def read_what_ifs(
    drain: Iterable[str], without: Iterable[str], assume_gone: Iterable[str], scale: Iterable[str]
) -> WhatIfs:
    """Read the values of the options. The namespace of a pod is empty if its value names none."""
    return WhatIfs(
        tuple(dict.fromkeys(drain)),
        tuple(map(_devices, without)),
        tuple(map(_pod, dict.fromkeys(assume_gone))),
        tuple(map(_scale, scale)),
    )


def _devices(text: str) -> tuple[str, tuple[str, ...]]:
    node, colon, devices = text.partition(":")
    given = tuple(devices.split(","))
    if not node or not colon or not all(given):
        raise _wrong("--without", text, "it must be NODE:DEVICE or NODE:DEVICE,DEVICE", "--without node1:0,1")
    return node, given


def _pod(text: str) -> tuple[str, str]:
    namespace, slash, name = text.rpartition("/")
    if not name or (slash and not namespace) or "/" in namespace:
        raise _wrong("--assume-gone", text, "it must be POD or NAMESPACE/POD", "--assume-gone default/train-0")
    return namespace, name


def _scale(text: str) -> Scale:
    named, equals, number = text.rpartition("=")
    word, slash, name = named.rpartition("/")
    kind = _KINDS.get(word.lower(), "")
    if not name or not equals or (slash and not kind):
        rule = f"it must be NAME=N or KIND/NAME=N, with one of the kinds {', '.join(SCALABLE)}"
        raise _wrong("--scale", text, rule, "--scale statefulset/train=8")
    if not number.isascii() or not number.isdigit() or len(number) > len(str(MOST_REPLICAS)):
        rule = f"N must be a whole number, at most {MOST_REPLICAS}"
        raise _wrong("--scale", text, rule, f"--scale {named}=8")
    return Scale(kind, name, int(number))


def _wrong(option: str, text: str, rule: str, example: str) -> RefusedInputError:
    return RefusedInputError(f"cannot use {option} {quote(text)}: {rule} (example: {example})")
