"""Explanations as plain data: the JSON of `explain`, field for field.

The functions are pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.cli.output import gpus_of
from gpu_scheduler.cli.views import devices_of, phase_of
from gpu_scheduler.core.decision import Bind, Refuse, read_assigned_reason
from gpu_scheduler.core.explanation.explanation import DeviceUse
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.explanation.explanation import DeviceAnswer, Explanation, Place, Remedy
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.reasons import Fault
    from gpu_scheduler.webhook.review import Deny

    DeviceFaults = Mapping[tuple[str, str], str]

View = dict[str, Any]

QUESTIONS: Final = ("exists", "ready", "schedulable", "taints", "labels", "resources", "ports", "volumes", "gpus")
"""What is asked of a place, in the order of the table's columns."""
_QUESTION_OF: Final = {
    Reason.NODE_NOT_FOUND: "exists",
    Reason.NODE_AMBIGUOUS: "exists",
    Reason.NODE_NOT_READY: "ready",
    Reason.NODE_UNSCHEDULABLE: "schedulable",
    Reason.TAINT_NOT_TOLERATED: "taints",
    Reason.NODE_AFFINITY_MISMATCH: "labels",
    Reason.INSUFFICIENT_RESOURCES: "resources",
    Reason.PORT_IN_USE: "ports",
}


class State(StrEnum):
    """What is true of the pod."""

    PLACED = "placed"
    PLACEABLE = "placeable"
    """It awaits a placement, and a decision would place it now."""
    WAITING = "waiting"
    REFUSED = "refused"
    """Its own text is at fault."""
    GATED = "gated"
    DELETING = "deleting"
    """It is being deleted and has no node."""
    FINISHED = "finished"
    FOREIGN = "foreign"
    """Another scheduler places it."""


@immutable
class PodName:
    """The names of a pod: for people, and in the API. `uid` is None if it does not exist yet."""

    shown: str
    namespace: str
    name: str
    uid: str | None


def named(pod: Pod) -> PodName:
    """Return the names of a pod that exists."""
    return PodName(str(pod.ref), pod.ref.namespace, pod.ref.name, pod.ref.uid)


def settled_view(pod: Pod, annotations: Mapping[str, str], scheduler_name: str) -> View | None:
    """Return a pod that needs no decision; None if it awaits one. `annotations` are all those of the pod."""
    state, sentence = _settled(pod, scheduler_name)
    return None if state is None else _item(named(pod), state, sentence, placement=_written(pod, annotations))


def denied_view(names_of_pod: PodName, denied: Deny) -> View:
    """Return a pod that the webhook would refuse."""
    sentence = f"would be refused at its creation: {denied.message}"
    return _item(names_of_pod, State.REFUSED, sentence, reason=denied.reason)


def explanation_view(names_of_pod: PodName, decision: Decision, explanation: Explanation, faults: DeviceFaults) -> View:
    """Return a pod that awaits a decision, which is `decision`.

    `faults` has what monitors say is wrong with devices, by node and device.
    """
    found = {
        "obstacles": [_fault(each) for each in explanation.of_pod],
        "places": [_place(each, faults) for each in explanation.places],
        "others": [{"reason": reason, "places": count} for reason, count in explanation.others],
        "remedy": None if explanation.remedy is None else _remedy(explanation.remedy),
    }
    if isinstance(decision, Bind):
        place = decision.placement
        sentence = f"can be placed now, on {place.node} with {gpus_of(place.devices)} ({decision.assigned_reason})"
        placement = {
            "node": place.node,
            "devices": list(place.devices),
            "uuids": list(place.uuids or ()),
            "strategy": decision.strategy,
            "reason": decision.reason,
            "at": None,
            "by": None,
            "phase": None,
        }
        return _item(names_of_pod, State.PLACEABLE, sentence, placement=placement, **found)
    state, verb = (State.REFUSED, "is refused") if isinstance(decision, Refuse) else (State.WAITING, "waits")
    return _item(names_of_pod, state, f"{verb}: {decision.message}", reason=decision.reason, **found)


def _item(names_of_pod: PodName, state: State, sentence: str, **found: Any) -> View:
    """Return one item of the JSON. What is not in `found` is None or empty."""
    nothing: View = {"reason": None, "placement": None, "obstacles": [], "places": [], "others": [], "remedy": None}
    return {
        "namespace": names_of_pod.namespace,
        "name": names_of_pod.name,
        "uid": names_of_pod.uid,
        "state": state,
        "sentence": f"{names_of_pod.shown} {sentence}",
        **nothing,
        **found,
    }


def _settled(pod: Pod, scheduler_name: str) -> tuple[State | None, str]:
    """Return what is true of a pod that needs no decision, as a state and as the end of a sentence."""
    where = f"on {pod.node} with {gpus_of(devices_of(pod))}"
    since = f", and is being deleted since {pod.deleting_since}" if pod.deleting_since else ""
    if pod.scheduler_name != scheduler_name:
        return State.FOREIGN, f"is of another scheduler: its schedulerName is {quote(pod.scheduler_name)}"
    if pod.finished:
        return State.FINISHED, f"has ended ({pod.phase}), and holds no GPU{f'; it was {where}' if pod.bound else ''}"
    if pod.bound:
        return State.PLACED, f"is placed {where}{' as an observer' if pod.request.observer else ''}{since}"
    if pod.deleting_since is not None:
        return State.DELETING, f"was never placed{since}"
    if pod.gated:
        return State.GATED, "waits: it has scheduling gates; whoever set them must remove them (spec.schedulingGates)"
    return None, ""


def _written(pod: Pod, annotations: Mapping[str, str]) -> View | None:
    """Return what a Binding of this scheduler wrote on the pod; None if none did."""
    if pod.assignment.devices is None:
        return None
    strategy, reason = read_assigned_reason(annotations.get(names.ASSIGNED_REASON, ""))
    return {
        "node": pod.node,
        "devices": list(devices_of(pod)),
        "uuids": list(filter(None, annotations.get(names.ASSIGNED_UUIDS, "").split(","))),
        "strategy": strategy or None,
        "reason": reason or None,
        "at": pod.assignment.at or None,
        "by": annotations.get(names.ASSIGNED_BY),
        "phase": phase_of(pod),
    }


def _fault(fault: Fault) -> View:
    return {"reason": fault.reason, "message": fault.message.removesuffix(f"; {fault.remedy}"), "remedy": fault.remedy}


def _place(place: Place, faults: DeviceFaults) -> View:
    return {
        "index": place.index,
        "node": place.node,
        "questions": _questions(place),
        "obstacles": [_fault(each) for each in place.obstacles],
        "devices": [_device(each, faults) for each in place.devices],
    }


def _questions(place: Place) -> View:
    """Return for each question the reason of the obstacle; None if nothing is in the way.

    Of a node that does not exist, nothing else is asked.
    """
    found: View = {_QUESTION_OF[each.reason]: each.reason for each in place.of_node}
    if "exists" in found:
        return found
    if place.of_volumes is not None:
        found["volumes"] = place.of_volumes.reason
    if place.of_devices:
        found["gpus"] = min(place.of_devices, key=place.obstacles.index).reason
    return {each: found.get(each) for each in QUESTIONS}


def _device(row: DeviceAnswer, faults: DeviceFaults) -> View:
    why = faults.get((row.node, row.device), row.why) if row.use is DeviceUse.UNHEALTHY else row.why
    return {
        "node": row.node,
        "device": row.device,
        "state": row.use,
        "why": why or None,
        "holders": [
            {
                "kind": each.kind or None,
                "namespace": each.ref.namespace,
                "name": each.ref.name,
                "since": each.since or None,
                "until": each.until or None,
                "deletingSince": each.deleting_since or None,
                "line": each.line,
            }
            for each in row.holders
        ],
    }


def _remedy(remedy: Remedy) -> View:
    return {
        "index": remedy.index,
        "node": remedy.node or None,
        "steps": [
            {
                "reasons": list(step.reasons),
                "remedy": step.remedy,
                "command": step.command or None,
                "until": step.until or None,
            }
            for step in remedy.steps
        ],
        "line": remedy.line or None,
    }
