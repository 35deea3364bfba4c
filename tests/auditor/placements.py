"""Where pods are, and what else is there: I1, I2, I4, and of I8 and I9 that nothing is given away too early.

Each check goes through the history once; only what a Binding of the scheduler placed is held against it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation
from tests.auditor.history import overlap, steps
from tests.auditor.objects import CARDS, GIVEN, amount, inventory, requests
from tests.oracle.reader import MAP, line_of, workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.findings import Allowed
    from tests.auditor.history import Event, Step, World
    from tests.auditor.objects import Seen, Thing

FIELD: Final = f"metadata.annotations['{GIVEN}']"


def shared(events: Iterable[Event]) -> Iterator[Violation]:
    """I1: two live pods hold one GPU. I9: a GPU is given on while a terminating pod still holds it."""
    for step in steps(events):
        if not step.bound or not step.event.seen.thing.placed or step.event.seen.thing.finished:
            continue
        pod, world = step.event.seen, step.world
        for other in world.on[pod.thing.spec.node_name].values():
            if other is pod or not other.thing.placed:
                continue
            both = _both_hold(world, pod, other)
            if both and other.thing.terminating:
                names = f"{both} was given to {pod.thing.path} while {other.thing.path}"
                yield Violation("I9", f"{names}, which is terminating, still held it")
            elif both:
                yield Violation("I1", f"{both} is held by {other.thing.path} and by {pod.thing.path}")


def _both_hold(world: World, one: Seen, other: Seen) -> str:
    """Name what both hold against the rules; empty where nothing is wrong."""
    first, second = world.hold(one), world.hold(other)
    if first is None or second is None or first.unnamed or second.unnamed:
        return ""
    if (
        workload(one.read) == workload(other.read)
        and first.index != second.index
        and MAP in one.thing.metadata.annotations
    ):
        return ""
    if one.thing.given("sharing") == other.thing.given("sharing") == "any":
        return ""
    node = first.node
    doubly = [
        device for device in first.devices if overlap(world.cards(node, [device]), world.cards(node, second.devices))
    ]
    return f"GPU {','.join(doubly)} of {node}" if doubly else ""


def agreeing(events: Iterable[Event], allowed: Allowed) -> Iterator[Violation]:
    """I2: node, annotations, variables and map say the same, and the node has the GPUs."""
    for step in steps(events):
        pod = step.event.seen.thing
        if step.event.kind != "pods" or step.event.deleted or not pod.placed:
            continue
        for fault in _disagreements(step):
            yield Violation("I2", f"{pod.path} {fault}")
        if step.bound:
            for fault in _missing(step, allowed):
                yield Violation("I2", f"{pod.path} {fault}")


def _disagreements(step: Step) -> Iterator[str]:
    pod, node = step.event.seen.thing, step.event.seen.thing.spec.node_name
    devices = pod.given("assigned-devices")
    if pod.given("assigned-node") != node:
        yield f"is on {node}, and its annotation says {pod.given('assigned-node')}"
    if devices is None:
        yield "was placed without a word of its devices"
        return
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        found = [each for each in container.env if each.name == "CUDA_VISIBLE_DEVICES"]
        for each in found:
            if each.value_from is not None and each.value_from.field_ref.get("fieldPath") != FIELD:
                yield f"has a container {container.name} that reads its devices from elsewhere"
            elif each.value_from is None and each.value != devices and pod.given("keep-env") != "true":
                yield f"was given {devices}, and its container {container.name} sees {each.value}"
        if not found:
            yield f"has a container {container.name} that was never told its devices"


def _missing(step: Step, allowed: Allowed) -> Iterator[str]:
    """What the map and the node say otherwise, at the moment of the bind or shortly before."""
    seen = step.event.seen
    pod, hold = seen.thing, step.world.hold(seen)
    if hold is None or hold.unnamed:
        return
    nodes = [node for node in step.world.lately(pod.spec.node_name, step.event.at - allowed.staleness) if node]
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
    # A bare count of cards tells nothing of UUIDs.
    named = any(not device.isdigit() for device in had)
    lacking = [device for device in devices if device not in had and (named or device.isdigit())]
    if known and lacking:
        yield f"was given GPU {','.join(lacking)}, which {pod.spec.node_name} does not have"


def crowded(events: Iterable[Event], allowed: Allowed) -> Iterator[Violation]:
    """I4: a bind put more on a node than it has; what others put there a moment before could not be known."""
    arrived: dict[str, float] = {}
    for step in steps(events):
        event, pod = step.event, step.event.seen.thing
        if event.kind == "pods" and pod.spec.node_name:
            arrived.setdefault(pod.metadata.uid, event.at)
        if not step.bound or not pod.placed or step.before is None or pod.finished:
            continue
        since = event.at - allowed.staleness
        nodes = [node for node in step.world.lately(pod.spec.node_name, since) if node]
        known = [
            each.thing
            for uid, each in step.world.on[pod.spec.node_name].items()
            if each.thing.placed or arrived[uid] < since
        ]
        for fault in _overfilled(pod, known, nodes):
            yield Violation("I4", fault)


def _overfilled(pod: Thing, there: list[Thing], nodes: list[Thing]) -> Iterator[str]:
    taken = [requests(each) for each in there]
    for resource in requests(pod):
        rooms = [amount(node.status.allocatable[resource]) for node in nodes if resource in node.status.allocatable]
        if not rooms and resource == CARDS:
            # Without a device plugin the limit is only a count.
            continue
        total = sum((each.get(resource, Decimal(0)) for each in taken), Decimal(0))
        if nodes and total > max(rooms, default=Decimal(0)):
            yield (
                f"{pod.path} was bound to {pod.spec.node_name}, where {resource} is then asked for "
                f"{total:f} and {max(rooms, default=Decimal(0)):f} is there"
            )


def dying(events: Iterable[Event]) -> Iterator[Violation]:
    """I8: a pod was bound that was being deleted."""
    for step in steps(events):
        if step.bound and step.before is not None and step.before.thing.terminating:
            yield Violation("I8", f"{step.event.seen.thing.path} was bound while it was being deleted")
