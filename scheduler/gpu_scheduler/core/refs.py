"""Names only: which pod, which controller, which workload."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which pod. `str()` gives `default/train-0`; `uid` is empty for a pod under admission."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """As kubectl's users write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod's controller: the owner reference with `controller: true`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """The pods that divide a map's lines among them.

    They have one namespace, one top controller (empty for bare pods) and one parsed map, whose digest this is.
    """

    namespace: str
    owner_kind: str
    owner_name: str
    map: str

    def __str__(self) -> str:
        """The controller as kubectl's users write it; empty for bare pods."""
        return f"{self.owner_kind}/{self.owner_name}" if self.owner_kind else ""
