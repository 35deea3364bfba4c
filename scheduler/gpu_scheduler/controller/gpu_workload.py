"""The values of a GPUWorkload: what is asked for, the pods that were made for it, and what is told of it.

LAW: frozen values; a pod is the workload's only by the uid in its owner reference, and which try it is stands in its
name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod import ScheduledCondition as Scheduling
from gpu_scheduler.core.refs import PodRef

_LONGEST: Final = 52
"""Of a workload's name in a pod's: the try's number fits behind it, and a host name takes no more than 63."""
_DIGEST: Final = 8


class Phase(StrEnum):
    """Where a workload is on its way."""

    PENDING = "Pending"
    """It has no pod yet, or one that has no node."""
    SCHEDULED = "Scheduled"
    """Its pod has node and devices; its containers do not run yet."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One condition of a status, as Kubernetes' own objects have them."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int
    since: str = ""
    """When `status` last changed (RFC 3339); empty until `dated`."""


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """What is told of a workload."""

    phase: Phase = Phase.PENDING
    node: str = ""
    devices: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    pod: str = ""
    attempts: int = 0
    """How many pods were made for it."""
    reason: str = ""
    message: str = ""
    started_at: str = ""
    completed_at: str = ""
    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuWorkload:
    """A GPUWorkload; its pod template is read when its pod is made, and kept by nobody."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion: a status is written only over the one that was read."""
    generation: int
    request: CountRequest
    retries: int
    excess: Excess | None = None
    """Of its template, where no pod is made of it."""
    deleting: bool = False
    status: WorkloadStatus | None = None

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod that was made for a workload of this name; whether it is this very workload's, its owner's uid tells."""

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
    """Why it failed: one word, as the kubelet or whoever ended it tells."""
    details: str = ""

    @property
    def key(self) -> str:
        """The key of its workload."""
        return f"{self.ref.namespace}/{self.owner}"

    @property
    def number(self) -> int:
        """Which try it is, from 0."""
        digits = self.ref.name.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdigit() else 0


@dataclass(frozen=True, slots=True)
class WatchedPod:
    """A pod as placement sees it, and as the workload sees it that it was made for, if any."""

    pod: Pod
    attempt: Attempt | None


def short(name: str) -> str:
    """A workload's name as it fits into a pod's name and a label: a long one is cut, and told apart by a digest."""
    if len(name) <= _LONGEST:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1].rstrip('-.')}-{digest}"


def pod_name(workload: str, number: int) -> str:
    """Always the same for the same try, so that an answer that got lost can't make two pods."""
    return f"{short(workload)}-{number}"


def annotations_of(request: CountRequest) -> dict[str, str]:
    """A request as a pod writes it: the count, and whatever is not as it would be anyway."""
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
    """Give each the time of its last change: the one it had, where its status is the same, else `now`."""
    since = {(each.type, each.status): each.since for each in before}
    return tuple(replace(each, since=since.get((each.type, each.status)) or now) for each in conditions)


def own(workload: GpuWorkload, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    """The pods that were made for this very workload: not for one before it that had its name, and not by others."""
    for attempt in attempts:
        if attempt.owner_uid == workload.uid and attempt.ref.name == pod_name(workload.name, attempt.number):
            yield attempt
