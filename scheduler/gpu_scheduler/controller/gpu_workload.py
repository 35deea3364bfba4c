"""The values of a GPUWorkload: its spec, the pods that were created for it, and its status.

LAW: frozen values. Only the uid in a pod's owner reference decides whether the pod belongs to the workload. The pod's
name contains the number of the attempt.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod import ScheduledCondition as Scheduling
from gpu_scheduler.core.refs import PodRef

_LONGEST: Final = 52
"""Characters of the workload's name in a pod's name. The attempt's number follows, and a host name has 63 at most."""
_DIGEST: Final = 8


class Phase(StrEnum):
    """The phase of a workload."""

    PENDING = "Pending"
    """The workload has no pod yet, or its pod has no node."""
    SCHEDULED = "Scheduled"
    """The pod has a node and devices; its containers do not run yet."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})


@immutable
class StatusCondition:
    """One condition of a status, with the fields of Kubernetes' own conditions."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int
    since: str = ""
    """When `status` last changed (RFC 3339); empty until `dated` fills it."""


@immutable
class WorkloadStatus:
    """A workload's status."""

    phase: Phase = Phase.PENDING
    node: str = ""
    devices: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    pod: str = ""
    attempts: int = 0
    """Number of pods that were created for the workload."""
    reason: str = ""
    message: str = ""
    started_at: str = ""
    completed_at: str = ""
    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()


@immutable
class GpuWorkload:
    """A GPUWorkload without its pod template: the template is read only while a pod is created, and is not kept."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion: a status is written only over the version that was read."""
    generation: int
    request: CountRequest
    retries: int
    excess: Excess | None = None
    """Set if the template is too long; then no pod is created from it."""
    deleting: bool = False
    status: WorkloadStatus | None = None

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@immutable
class Attempt:
    """A pod that was created for a workload of this name; `owner_uid` tells that workload from others of the name."""

    ref: PodRef
    owner: str
    owner_uid: str
    node: str = ""
    devices: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    phase: str = "Pending"
    scheduling: Scheduling | None = None
    """Its PodScheduled condition."""
    started_at: str = ""
    finished_at: str = ""
    fault: str = ""
    """Why it failed, in one word: the pod's or the failed container's `reason`."""
    details: str = ""

    @property
    def key(self) -> str:
        """NAMESPACE/NAME of its workload."""
        return f"{self.ref.namespace}/{self.owner}"

    @property
    def number(self) -> int:
        """The number of the attempt, from 0; 0 also if the pod's name does not end with a number."""
        digits = self.ref.name.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdigit() else 0


@immutable
class WatchedPod:
    """A pod as the core reads it, and as an attempt if it was created for a workload."""

    pod: Pod
    attempt: Attempt | None


def short(name: str) -> str:
    """Return a workload's name for use in a pod's name and in a label.

    A name of more than 52 characters is cut, and a digest keeps it distinct.
    """
    if len(name) <= _LONGEST:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1].rstrip('-.')}-{digest}"


def pod_name(workload: str, number: int) -> str:
    """Return the name of the pod of attempt `number`.

    The same attempt always has the same name, so that a repeated create after a lost answer cannot make a second pod.
    """
    return f"{short(workload)}-{number}"


def annotations_of(request: CountRequest) -> dict[str, str]:
    """Return a request as a pod's annotations: the count, and every other value that is not the default."""
    given = {
        names.COUNT: str(request.count),
        names.MEMORY: str(request.memory) if request.memory else "",
        names.EXCLUSIVE: "" if request.exclusive else "false",
        names.GPU_TYPE: request.gpu_type,
        names.STRATEGY: request.strategy or "",
        names.PRIORITY: str(request.priority) if request.priority else "",
    }
    return {key: text for key, text in given.items() if text}


def dated(
    conditions: Iterable[StatusCondition], before: Iterable[StatusCondition], now: str
) -> tuple[StatusCondition, ...]:
    """Set `since` of each condition: the time in `before` if its status has not changed, else `now` (RFC 3339)."""
    since = {(each.type, each.status): each.since for each in before}
    return tuple(replace(each, since=since.get((each.type, each.status)) or now) for each in conditions)


def own(workload: GpuWorkload, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    """List the pods that this controller created for this workload, by owner uid and pod name.

    Pods of an earlier workload with the same name are left out.
    """
    for attempt in attempts:
        if attempt.owner_uid == workload.uid and attempt.ref.name == pod_name(workload.name, attempt.number):
            yield attempt
