"""Derives the status of a GPUWorkload and which pod it lacks, and translates a failed create into a reason."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_workload import (
    FINISHED,
    Attempt,
    GpuWorkload,
    Phase,
    StatusCondition,
    WorkloadStatus,
    dated,
    own,
)
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.bounds import MAX_MESSAGE, Excess
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import printable, sentence

WAITING: Final = "Waiting"
"""The reason of a condition that is not true yet, when no other reason is known."""

_WORDS: Final = frozenset(reason.value for reason in Reason)


@immutable
class CreateFailure:
    """Why no pod could be created: the reason in one word, and the sentence that begins with it.

    `reason` is empty if the workload only waits.
    """

    reason: str
    message: str


@immutable
class Reconciliation:
    """The status to write on a workload, and the number of the attempt whose pod must be created, if any."""

    status: WorkloadStatus
    missing: int | None = None


def reconcile_status(
    workload: GpuWorkload, attempts: Iterable[Attempt], failure: CreateFailure | None, now: str
) -> Reconciliation:
    """Derive the status at `now` (RFC 3339); `failure` is why the last create of the missing pod failed, if it did."""
    mine = {attempt.number: attempt for attempt in own(workload, attempts)}
    before = workload.status or WorkloadStatus()
    number = max(*mine, before.attempts - 1, 0)
    present = mine.get(number)
    if present is None and before.phase in FINISHED:
        # A finished workload keeps its status after its pod was deleted.
        return Reconciliation(replace(before, observed_generation=workload.generation))
    missing = _missing(workload, number, present)
    phase, reason, message = _phase_of(workload, number, present)
    if missing is not None:
        phase = Phase.PENDING
        reason, message = (reason, message) if failure is None else (failure.reason, failure.message)
    found = WorkloadStatus(
        phase=phase,
        pod="" if present is None else present.ref.name,
        attempts=max(before.attempts, *(each + 1 for each in mine), 0),
        # Containers, kubelets and other programs wrote parts of it. `kubectl` shows it on a terminal.
        reason=printable(reason)[:MAX_MESSAGE],
        message=printable(message)[:MAX_MESSAGE],
        observed_generation=workload.generation,
    )
    if present is not None and phase is not Phase.PENDING:
        found = _with_placement(found, present, before, now)
    conditions = dated(_conditions(found), before.conditions, now)
    return Reconciliation(replace(found, conditions=conditions), missing)


def _missing(workload: GpuWorkload, number: int, present: Attempt | None) -> int | None:
    """Return the attempt whose pod must be created, or None.

    It is the current attempt if its pod is gone, and the next one if the pod failed and another attempt is allowed.
    """
    if present is None:
        return number
    return number + 1 if present.phase == "Failed" and number < workload.retries else None


def _phase_of(workload: GpuWorkload, number: int, present: Attempt | None) -> tuple[Phase, str, str]:
    """Derive phase, reason and message from the current pod."""
    if present is None:
        return Phase.PENDING, "", ""
    if present.phase == "Succeeded":
        return Phase.SUCCEEDED, "", ""
    if present.phase == "Failed":
        logs = f"see kubectl logs -n {present.ref.namespace} {present.ref.name}"
        left = workload.retries - number
        remedy = f"{logs}; {left} more {'try' if left == 1 else 'tries'} allowed" if left > 0 else logs
        word = present.fault or Phase.FAILED.value
        what = printable(present.details) or "the pod failed and gave no reason"
        return Phase.FAILED, word, sentence(word, what, remedy)
    if present.phase == "Running":
        return Phase.RUNNING, "", ""
    if present.node:
        return Phase.SCHEDULED, "", ""
    return Phase.PENDING, *_unschedulable(present)


def _unschedulable(present: Attempt) -> tuple[str, str]:
    """Return reason and message of why the pod is unschedulable, from its condition PodScheduled.

    The reason is the word that begins the message if it is one of our reasons, else the condition's own.
    """
    condition = present.scheduling
    if condition is None or condition.status == "True":
        return "", ""
    word = condition.message.partition(": ")[0]
    return word if word in _WORDS else condition.reason, condition.message


def _with_placement(found: WorkloadStatus, present: Attempt, before: WorkloadStatus, now: str) -> WorkloadStatus:
    """Return `found` with the pod's node and devices, and with the times at which it started and ended."""
    done = found.phase in FINISHED
    return replace(
        found,
        node=present.node,
        devices=present.devices,
        uuids=present.uuids,
        started_at=present.started_at,
        completed_at=present.finished_at or before.completed_at or now if done else "",
    )


def _conditions(status: WorkloadStatus) -> tuple[StatusCondition, StatusCondition]:
    """Return the two conditions: whether the workload is scheduled, and whether it has completed."""
    if status.node:
        devices = f"GPU {','.join(status.devices)}" if status.devices else "no GPU"
        scheduled = ("True", "Scheduled", f"pod {status.pod} has {devices} of {status.node}")
    else:
        scheduled = ("False", status.reason or WAITING, status.message or "the scheduler has not tried its pod yet")
    over = status.phase in FINISHED
    completed = ("True" if over else "False", status.phase.value, status.message if over else "")
    return (
        StatusCondition(names.CONDITION_SCHEDULED, *scheduled, status.observed_generation),
        StatusCondition(names.CONDITION_COMPLETED, *completed, status.observed_generation),
    )


_AGAIN: Final = "trying again by itself"
_CORRECTED: Final = f"correct it in a new {names.WORKLOAD_KIND} where it is its own fault; {_AGAIN}"
_REASON: Final = re.compile(rf"\b(?P<word>{'|'.join(reason.value for reason in Reason)}): (?P<what>.+)", re.DOTALL)
_QUOTA: Final = "exceeded quota"
# The API server says this only if the controller lacks a permission. It is never the fault of the pod.
_NO_RIGHT: Final = "cannot create resource"
_REFUSALS: Final = frozenset({400, 403, 404, 413, 422})


def refused(pod: str, status: int, message: str) -> CreateFailure:
    """Translate a refused create (HTTP status and message) into a reason for the workload's status."""
    message = printable(message)
    found = _REASON.search(message)
    if found is not None:
        return CreateFailure(found["word"], sentence(found["word"], found["what"], ""))
    word: str = Reason.REQUEST_INVALID
    remedy = _CORRECTED
    if _QUOTA in message:
        word, remedy = Reason.INSUFFICIENT_RESOURCES, f"make room in the quota; {_AGAIN}"
    elif status not in _REFUSALS or _NO_RIGHT in message:
        word, remedy = names.CONDITION_SCHEDULER_ERROR, _AGAIN
    return CreateFailure(word, sentence(word, f"cannot make pod {pod}: {message}", remedy))


def unanswered(pod: str, why: str) -> CreateFailure:
    """Return the failure for an unknown result: the pod may or may not exist, and the next try finds out."""
    word = names.CONDITION_SCHEDULER_ERROR
    return CreateFailure(word, sentence(word, f"cannot tell whether pod {pod} was made: {why}", _AGAIN))


def excessive(excess: Excess) -> CreateFailure:
    """Return the failure for a template that is too long. Each pod of it would be too long as well."""
    remedy = "let its containers read long texts from a ConfigMap, and recreate the GPUWorkload"
    return CreateFailure(Reason.REQUEST_INVALID, sentence(Reason.REQUEST_INVALID, str(excess), remedy))


def taken(pod: str, *, deleting: bool) -> CreateFailure:
    """Return the failure for a name that a pod of another owner has; `deleting`: that pod is terminating."""
    if deleting:
        return CreateFailure("", f"pod {pod} of another owner is still going; this workload's is made when it has gone")
    return CreateFailure(
        Reason.REQUEST_INVALID,
        sentence(
            Reason.REQUEST_INVALID,
            f"cannot make pod {pod}: a pod of that name is there, and it is not this workload's",
            f"delete it, or give the workload another name; {_AGAIN}",
        ),
    )
