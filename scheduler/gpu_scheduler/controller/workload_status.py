"""Status and missing pod of a GPUWorkload, and what a refused create means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence

WAITING: Final = "Waiting"
"""The reason of a condition that is not met yet, where nobody has said why."""

_WORDS: Final = frozenset(reason.value for reason in Reason)


@dataclass(frozen=True, slots=True)
class CreateFailure:
    """Why no pod could be made: a word, and the sentence that begins with it; no word where it is only a wait."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What is to be told of a workload, and the number of the pod that has to be made, if any."""

    status: WorkloadStatus
    missing: int | None = None


def reconcile_status(
    workload: GpuWorkload, attempts: Iterable[Attempt], trouble: CreateFailure | None, now: str
) -> Reconciliation:
    """What is right at `now` (RFC 3339); `trouble` is what the last try to make the missing pod met."""
    mine = {attempt.number: attempt for attempt in own(workload, attempts)}
    before = workload.status or WorkloadStatus()
    number = max(*mine, before.attempts - 1, 0)
    present = mine.get(number)
    if present is None and before.phase in FINISHED:
        # That its pod was cleaned away since changes nothing.
        return Reconciliation(replace(before, observed_generation=workload.generation))
    missing = _missing(workload, number, present)
    phase, reason, message = _found(workload, number, present)
    if missing is not None:
        phase = Phase.PENDING
        reason, message = (reason, message) if trouble is None else (trouble.reason, trouble.message)
    found = WorkloadStatus(
        phase=phase,
        pod="" if present is None else present.ref.name,
        attempts=max(before.attempts, *(each + 1 for each in mine), 0),
        reason=reason,
        message=message,
        observed_generation=workload.generation,
    )
    if present is not None and phase is not Phase.PENDING:
        found = _placed(found, present, before, now)
    conditions = dated(_conditions(found), before.conditions, now)
    return Reconciliation(replace(found, conditions=conditions), missing)


def _missing(workload: GpuWorkload, number: int, present: Attempt | None) -> int | None:
    """The present try's pod, where it is gone; the next one's, where it failed and another is allowed."""
    if present is None:
        return number
    return number + 1 if present.phase == "Failed" and number < workload.retries else None


def _found(workload: GpuWorkload, number: int, present: Attempt | None) -> tuple[Phase, str, str]:
    """Phase, reason and message, as the present pod tells."""
    if present is None:
        return Phase.PENDING, "", ""
    if present.phase == "Succeeded":
        return Phase.SUCCEEDED, "", ""
    if present.phase == "Failed":
        logs = f"see kubectl logs -n {present.ref.namespace} {present.ref.name}"
        left = workload.retries - number
        remedy = f"{logs}; {left} more {'try' if left == 1 else 'tries'} allowed" if left > 0 else logs
        word = present.fault or Phase.FAILED.value
        return Phase.FAILED, word, sentence(word, present.details or "the pod failed and left no word", remedy)
    if present.phase == "Running":
        return Phase.RUNNING, "", ""
    if present.node:
        return Phase.SCHEDULED, "", ""
    return Phase.PENDING, *_waits(present)


def _waits(present: Attempt) -> tuple[str, str]:
    """Why the scheduler leaves the pod waiting: the word with which its sentence begins, else the condition's own."""
    told = present.scheduling
    if told is None or told.status == "True":
        return "", ""
    word = told.message.partition(": ")[0]
    return word if word in _WORDS else told.reason, told.message


def _placed(found: WorkloadStatus, present: Attempt, before: WorkloadStatus, now: str) -> WorkloadStatus:
    """With where the pod is, and since when until when it was at work there."""
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
    """That it has its place, and that it is over."""
    if status.node:
        devices = f"GPU {','.join(status.devices)}" if status.devices else "no GPU"
        scheduled = ("True", "Scheduled", f"pod {status.pod} has {devices} of {status.node}")
    else:
        scheduled = ("False", status.reason or WAITING, status.message or "its pod has not been looked at yet")
    over = status.phase in FINISHED
    completed = ("True" if over else "False", status.phase.value, status.message if over else "")
    return (
        StatusCondition(names.CONDITION_SCHEDULED, *scheduled, status.observed_generation),
        StatusCondition(names.CONDITION_COMPLETED, *completed, status.observed_generation),
    )


_AGAIN: Final = "trying again by itself"
_CORRECTED: Final = f"correct it in a new {names.WORKLOAD_KIND} where it is its own fault; {_AGAIN}"
_TOLD: Final = re.compile(rf"\b(?P<word>{'|'.join(reason.value for reason in Reason)}): (?P<what>.+)", re.DOTALL)
_QUOTA: Final = "exceeded quota"
# What the API server says to a controller that lacks a right, and to nobody's pod.
_NO_RIGHT: Final = "cannot create resource"
_REFUSALS: Final = frozenset({400, 403, 404, 413, 422})


def refused(pod: str, status: int, message: str) -> CreateFailure:
    """What an answer of this HTTP status means for who waits for the pod."""
    told = _TOLD.search(message)
    if told is not None:
        return CreateFailure(told["word"], sentence(told["word"], told["what"], ""))
    word: str = Reason.REQUEST_INVALID
    remedy = _CORRECTED
    if _QUOTA in message:
        word, remedy = Reason.INSUFFICIENT_RESOURCES, f"make room in the quota; {_AGAIN}"
    elif status not in _REFUSALS or _NO_RIGHT in message:
        word, remedy = names.CONDITION_SCHEDULER_ERROR, _AGAIN
    return CreateFailure(word, sentence(word, f"cannot make pod {pod}: {message}", remedy))


def unanswered(pod: str, why: str) -> CreateFailure:
    """Nobody knows whether the pod was made; the next try finds out."""
    word = names.CONDITION_SCHEDULER_ERROR
    return CreateFailure(word, sentence(word, f"cannot tell whether pod {pod} was made: {why}", _AGAIN))


def excessive(excess: Excess) -> CreateFailure:
    """Of a template that is too long no pod is made: each would be as long."""
    remedy = "let its containers read long texts from a ConfigMap, and create the GPUWorkload anew"
    return CreateFailure(Reason.REQUEST_INVALID, sentence(Reason.REQUEST_INVALID, str(excess), remedy))


def taken(pod: str, *, going: bool) -> CreateFailure:
    """A pod of that name is there and is not the workload's; `going`: it is being deleted."""
    if going:
        return CreateFailure("", f"pod {pod} of another owner is still going; this workload's is made when it has gone")
    return CreateFailure(
        Reason.REQUEST_INVALID,
        sentence(
            Reason.REQUEST_INVALID,
            f"cannot make pod {pod}: a pod of that name is there, and it is not this workload's",
            f"delete it, or give the workload another name; {_AGAIN}",
        ),
    )
