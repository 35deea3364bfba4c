"""Names of pods, controllers and workloads."""

from gpu_scheduler.core.immutable import immutable


@immutable
class PodRef:
    """The name of a pod. `str()` gives `default/train-0`. `uid` is empty for a pod under admission."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@immutable
class Owner:
    """A pod's controller: the owner reference with `controller: true`."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""


@immutable
class WorkloadKey:
    """The name of a workload: the pods that share the lines of one map.

    They have the same namespace, the same top controller (empty for bare pods) and the same parsed map. `map` is the
    digest of that map.
    """

    namespace: str
    owner_kind: str
    owner_name: str
    map: str

    def __str__(self) -> str:
        """Return the controller as KIND/NAME; empty for bare pods."""
        return f"{self.owner_kind}/{self.owner_name}" if self.owner_kind else ""
