"""The pods that exist already, found by what their controller would make: by name, or as one of several alike.

LAW: pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.manifests.controllers import HASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.pods.pod import Pod

Maker = tuple[str, str, str]
"""Namespace, kind and name of a pod's controller; kind and name are empty for a bare pod."""

_TEMPLATE_HASH: Final = re.compile(rf"-(?:[bcdfghjklmnpqrstvwxz2456789]{{5,10}}|{HASH})$")
"""How the name of a Deployment's ReplicaSet ends."""
_RUNS_ONCE: Final = ("Job", names.WORKLOAD_KIND)
"""Kinds of controllers that make no other pod when one has succeeded."""
_BY_NUMBER: Final = ("ReplicaSet", "Job", names.WORKLOAD_KIND)
"""Kinds of controllers that count their pods, whatever these are called; an Indexed Job counts those of each index.

The others know their pods by name. A pod's generateName does not say which: those of a StatefulSet have one too.
"""


class ExistingPods:
    """Our pods that their controllers count. Each is taken once."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        """Keep all pods of the cluster, in the order in which a controller prefers them: with a node, then older."""
        self._named: dict[tuple[str, str], Pod] = {}
        self._alike: dict[tuple[Maker, str], list[Pod]] = defaultdict(list)
        self._made: dict[Maker, list[Pod]] = defaultdict(list)
        self._ended: dict[tuple[str, str], Pod] = {}
        self._taken: set[str] = set()
        for pod in sorted(pods, key=lambda pod: (not pod.bound, pod.created)):
            if not _counts(pod):
                self._ended[_name(pod)] = pod
                continue
            self._made[maker_of(pod)].append(pod)
            if _known_by_number(pod):
                self._alike[_likeness(pod)].append(pod)
            else:
                self._named[_name(pod)] = pod

    def take(self, expected: Pod) -> Pod | None:
        """Return the pod because of which its controller makes no such pod, or None."""
        if _known_by_number(expected):
            alike = self._alike.get(_likeness(expected))
            found = alike.pop(0) if alike else None
        else:
            found = self._named.pop(_name(expected), None)
        if found is not None:
            self._taken.add(found.ref.uid)
        return found

    def surplus(self, maker: Maker) -> list[Pod]:
        """Return the pods of this controller that were not taken. It removes them, because it has fewer replicas."""
        return [pod for pod in self._made[maker] if pod.ref.uid not in self._taken]

    def ended(self, expected: Pod) -> Pod | None:
        """Return the pod of the same name that must be gone before its controller can make this one, or None."""
        return self._ended.get(_name(expected))


def maker_of(pod: Pod) -> Maker:
    """Return the pod's top controller: of a ReplicaSet's pod its Deployment, if it has one."""
    namespace, owner = pod.ref.namespace, pod.owner
    if owner is None:
        return namespace, "", ""
    line = pod.request.line
    if line is not None and line.workload.owner_kind == "Deployment":
        return namespace, "Deployment", line.workload.owner_name
    if owner.kind == "ReplicaSet" and _TEMPLATE_HASH.search(owner.name):
        return namespace, "Deployment", _TEMPLATE_HASH.sub("", owner.name)
    return namespace, owner.kind, owner.name


def distinguished_by(kind: str, name: str, generate_name: str | None) -> str:
    """Return by what a controller of this kind distinguishes its pods; empty if they are all alike to it.

    The pods of an Indexed Job have their index in the prefix of their names.
    """
    if kind == "Job":
        return generate_name or ""
    return "" if kind in _BY_NUMBER else name


def asks_the_same(one: Pod, other: Pod) -> bool:
    """Whether both pods ask for the same GPUs: then their placement depends on one text."""
    return _asked(one) == _asked(other)


def _asked(pod: Pod) -> tuple[object, ...]:
    request = pod.request
    digest = None if request.line is None else request.line.workload.map
    return digest, request.count, request.observer, request.sharing_any, pod.gpu_limits


def _counts(pod: Pod) -> bool:
    """Whether no other pod is made in its place. A controller replaces a pod that is being deleted or has failed."""
    if pod.deleting_since is not None:
        return False
    kept = pod.owner is None or (pod.owner.kind in _RUNS_ONCE and pod.phase == "Succeeded")
    return kept or not pod.finished


def _known_by_number(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind in _BY_NUMBER


def _name(pod: Pod) -> tuple[str, str]:
    return pod.ref.namespace, pod.ref.name


def _likeness(pod: Pod) -> tuple[Maker, str]:
    """Return what pods have in common of which their controller makes so many.

    Pods of two versions of a Deployment are alike.
    """
    kind = "" if pod.owner is None else pod.owner.kind
    return maker_of(pod), distinguished_by(kind, pod.ref.name, pod.generate_name)
