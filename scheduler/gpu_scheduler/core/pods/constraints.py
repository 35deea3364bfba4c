"""Where a pod may go, as its author wrote it: tolerations, node selector and required node affinity.

LAW: pure matching with the semantics of Kubernetes. For every selector the result is yes or no; no selector raises.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from gpu_scheduler.core.immutable import immutable

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")


@immutable
class Taint:
    """A node's `spec.taints` entry; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return the taint in kubectl's format: `dedicated=ml:NoSchedule`."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@immutable
class Toleration:
    """A pod's `spec.tolerations` entry. An empty key with Exists tolerates all taints, an empty effect every effect."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Whether the pod may run in spite of `taint`."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


@immutable
class NodeSelectorRequirement:
    """One expression of a node selector term: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels matches. An expression that Kubernetes would not accept never matches."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return bool(self.values) and value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def __str__(self) -> str:
        """Return the expression as text for people: `zone In a, b`."""
        return f"{self.key} {self.operator} {', '.join(self.values)}".rstrip()

    def _compares(self, value: str | None) -> bool:
        found, limit = _integer(value), _integer(self.values[0] if len(self.values) == 1 else None)
        if found is None or limit is None:
            return False
        return found > limit if self.operator == "Gt" else found < limit


@immutable
class NodeSelectorTerm:
    """All of its expressions must match. A term without expressions matches no node."""

    labels: tuple[NodeSelectorRequirement, ...] = ()
    fields: tuple[NodeSelectorRequirement, ...] = ()

    def unmet(self, labels: Mapping[str, str], name: str) -> NodeSelectorRequirement | None:
        """Return the first expression that does not match the node `name` with these labels, or None."""
        for requirement in self.labels:
            if not requirement.holds(labels):
                return requirement
        # Kubernetes allows only this field of a node in a selector.
        fields = {"metadata.name": name}
        return next((requirement for requirement in self.fields if not requirement.holds(fields)), None)

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether the node `name` with these labels matches."""
        return bool(self.labels or self.fields) and self.unmet(labels, name) is None


@immutable
class SchedulingConstraints:
    """A pod's node selector, node affinity and tolerations.

    If `affinity` is None, every node matches. Otherwise one of its terms must match: without terms, no node matches.
    """

    selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def tolerates(self, taint: Taint) -> bool:
        """Whether the pod may run in spite of `taint`."""
        return any(toleration.covers(taint) for toleration in self.tolerations)


ANYWHERE: Final = SchedulingConstraints()


def _integer(text: str | None) -> int | None:
    """Return a label's value as a signed 64-bit integer; None if it is not one."""
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
