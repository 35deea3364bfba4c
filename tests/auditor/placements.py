"""I1, I2, I4 and parts of I8 and I9: checks the placements of pods, and that no device is assigned too early.

Each check reads the history once. Only pods that the scheduler bound can violate an invariant.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation
from tests.auditor.history import overlap, steps
from tests.auditor.objects import DEVICES, GIVEN, amount, inventory, requests
from tests.oracle.reference import MAP, line_of, workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.findings import Allowed
    from tests.auditor.history import ClusterHistory, Event, Step
    from tests.auditor.objects import ApiObject, Seen

FIELD: Final = f"metadata.annotations['{GIVEN}']"


def shared(events: Iterable[Event]) -> Iterator[Violation]:
    """I1: two live pods hold one GPU. I9: a GPU is assigned again while a terminating pod still holds it."""
    for step in steps(events):
        if not step.bound or not step.event.seen.api_object.placed or step.event.seen.api_object.finished:
            continue
        pod, history = step.event.seen, step.history
        for other in history.on[pod.api_object.spec.node_name].values():
            if other is pod or not other.api_object.placed:
                continue
            both = _both_hold(history, pod, other)
            if both and other.api_object.terminating:
                names = f"{both} was given to {pod.api_object.path} while {other.api_object.path}"
                yield Violation("I9", f"{names}, which is terminating, still held it")
            elif both:
                yield Violation("I1", f"{both} is held by {other.api_object.path} and by {pod.api_object.path}")


def _both_hold(history: ClusterHistory, one: Seen, other: Seen) -> str:
    """Name the devices that both pods hold although they may not share; empty if there are none."""
    first, second = history.hold(one), history.hold(other)
    if first is None or second is None or first.unnamed or second.unnamed:
        return ""
    if (
        workload(one.read) == workload(other.read)
        and first.index != second.index
        and MAP in one.api_object.metadata.annotations
    ):
        return ""
    if one.api_object.given("sharing") == other.api_object.given("sharing") == "any":
        return ""
    node = first.node
    doubly = [
        device
        for device in first.devices
        if overlap(history.devices(node, [device]), history.devices(node, second.devices))
    ]
    return f"GPU {','.join(doubly)} of {node}" if doubly else ""


def agreeing(events: Iterable[Event], allowed: Allowed) -> Iterator[Violation]:
    """I2: node, annotations, variables and map contradict each other, or the node lacks the GPUs."""
    for step in steps(events):
        pod = step.event.seen.api_object
        if step.event.kind != "pods" or step.event.deleted or not pod.placed:
            continue
        for fault in _disagreements(step):
            yield Violation("I2", f"{pod.path} {fault}")
        if step.bound:
            for fault in _missing(step, allowed):
                yield Violation("I2", f"{pod.path} {fault}")


def _disagreements(step: Step) -> Iterator[str]:
    pod, node = step.event.seen.api_object, step.event.seen.api_object.spec.node_name
    devices = pod.given("assigned-devices")
    if pod.given("assigned-node") != node:
        yield f"is on {node}, and its annotation says {pod.given('assigned-node')}"
    if devices is None:
        yield "was placed without annotation assigned-devices"
        return
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        found = [each for each in container.env if each.name == "CUDA_VISIBLE_DEVICES"]
        for each in found:
            if each.value_from is not None and each.value_from.field_ref.get("fieldPath") != FIELD:
                yield f"has a container {container.name} that reads its devices from elsewhere"
            elif each.value_from is None and each.value != devices and pod.given("keep-env") != "true":
                yield f"was given {devices}, and its container {container.name} sees {each.value}"
        if not found:
            yield f"has a container {container.name} without CUDA_VISIBLE_DEVICES"


def _missing(step: Step, allowed: Allowed) -> Iterator[str]:
    """Yield contradictions between a bind and its map or node, at the bind or shortly before."""
    seen = step.event.seen
    pod, hold = seen.api_object, step.history.hold(seen)
    if hold is None or hold.unnamed:
        return
    nodes = [node for node in step.history.lately(pod.spec.node_name, step.event.at - allowed.staleness) if node]
    devices = [each for each in (pod.given("assigned-devices") or "").split(",") if each]
    line = line_of(seen.read)
    if line is not None and list(line[1]) != devices:
        yield f"was given {','.join(devices)} with index {hold.index}, whose line says {','.join(line[1])}"
    aliases = {node.metadata.labels.get("gpu-node-name") for node in nodes}
    if line is not None and line[0] != pod.spec.node_name and line[0] not in aliases:
        yield f"is on {pod.spec.node_name}, and its line says {line[0]}"
    known = [inventory(node) for node in nodes]
    if None in known:
        return
    had = {device for each in known if each for device in each}
    # A device plugin gives only a count of devices, no UUIDs.
    named = any(not device.isdigit() for device in had)
    unknown = [device for device in devices if device not in had and (named or device.isdigit())]
    if known and unknown:
        yield f"was given GPU {','.join(unknown)}, which {pod.spec.node_name} does not have"


def with_waiting_pods(events: Iterable[Event], allowed: Allowed) -> Iterator[Violation]:
    """I4: a bind exceeds the resources of its node. Foreign pods bound a moment before do not count."""
    arrived: dict[str, float] = {}
    for step in steps(events):
        event, pod = step.event, step.event.seen.api_object
        if event.kind == "pods" and pod.spec.node_name:
            arrived.setdefault(pod.metadata.uid, event.at)
        if not step.bound or not pod.placed or step.before is None or pod.finished:
            continue
        since = event.at - allowed.staleness
        nodes = [node for node in step.history.lately(pod.spec.node_name, since) if node]
        known = [
            each.api_object
            for uid, each in step.history.on[pod.spec.node_name].items()
            if each.api_object.placed or arrived[uid] < since
        ]
        for fault in _overfilled(pod, known, nodes):
            yield Violation("I4", fault)


def _overfilled(pod: ApiObject, there: list[ApiObject], nodes: list[ApiObject]) -> Iterator[str]:
    taken = [requests(each) for each in there]
    for resource in requests(pod):
        rooms = [amount(node.status.allocatable[resource]) for node in nodes if resource in node.status.allocatable]
        if not rooms and resource == DEVICES:
            # Without a device plugin the limit is only a count.
            continue
        total = sum((each.get(resource, Decimal(0)) for each in taken), Decimal(0))
        if nodes and total > max(rooms, default=Decimal(0)):
            yield (
                f"{pod.path} was bound to {pod.spec.node_name}, where {resource} is then asked for "
                f"{total:f} and {max(rooms, default=Decimal(0)):f} is there"
            )


def terminating_holders(events: Iterable[Event]) -> Iterator[Violation]:
    """I8: a terminating pod was bound."""
    for step in steps(events):
        if step.bound and step.before is not None and step.before.api_object.terminating:
            yield Violation("I8", f"{step.event.seen.api_object.path} was bound while it was being deleted")
