"""Who waits though nothing is in the way: I7, and of I9 that freed GPUs are soon used.

Only what is certain counts: a pod with one line of a map and nothing else to ask, and a node that takes it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation
from tests.auditor.history import overlap, steps
from tests.auditor.objects import CARDS, all_healthy, amount, inventory, requests
from tests.auditor.placements import FIELD
from tests.oracle.reader import MAP, line_of, workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.findings import Allowed
    from tests.auditor.history import Event, Step, World
    from tests.auditor.objects import Seen, Thing

LINE: Final = re.compile(r"(0|[1-9][0-9]*)=([a-z0-9]([-a-z0-9.]*[a-z0-9])?):((0|[1-9][0-9]*)(,(0|[1-9][0-9]*))*)?")
REASONS: Final = frozenset(
    {
        "MapInvalid",
        "RequestInvalid",
        "NothingRequested",
        "Unsupported",
        "IndexUnknown",
        "IndexNotInMap",
        "IndexHeld",
        "NoFreeIndex",
        "NodeNotFound",
        "NodeAmbiguous",
        "NodeNotReady",
        "NodeUnschedulable",
        "TaintNotTolerated",
        "NodeAffinityMismatch",
        "InsufficientResources",
        "PortInUse",
        "VolumeNotBound",
        "GpuNotFound",
        "GpuHeld",
        "GpuUnhealthy",
        "NotEnoughGpus",
        "QuotaExceeded",
        "InsufficientGpuMemory",
        "EnvNotInjected",
        "EnvConflict",
        "BindFailed",
    }
)


def waiting(events: Iterable[Event]) -> Iterator[Violation]:
    """I7: a pod fits and is not bound, or waits and nobody was told why, as things are now."""
    last: World | None = None
    for step in steps(events):
        last = step.world
    for seen in last.pods.values() if last else ():
        pod = seen.thing
        if not last or not _pending(pod) or pod.spec.scheduling_gates:
            continue
        told = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if _fits(last, seen):
            yield Violation("I7", f"{pod.path} fits and is not bound")
        elif told is None or told.status != "False":
            yield Violation("I7", f"{pod.path} waits, and nobody says why")
        elif told.reason not in {"Unschedulable", "SchedulerError"} or told.message.partition(": ")[0] not in REASONS:
            yield Violation("I7", f"{pod.path} waits for no known reason: {told.reason}: {told.message}")


def idle(events: Iterable[Event], calm: list[tuple[float, float]], allowed: Allowed, now: float) -> Iterator[Violation]:
    """I9: while it was calm a GPU became free, and who waited for it was not bound in time."""
    since: dict[str, tuple[float, str]] = {}
    at = now
    for step in steps(events):
        at = step.event.at
        for uid, (began, why) in list(since.items()):
            seen = step.world.pods.get(uid)
            if seen is None or not _pending(seen.thing) or not _fits(step.world, seen):
                del since[uid]
                if seen is not None and seen.thing.spec.node_name and at - began > allowed.reuse:
                    yield Violation("I9", f"{why} for {at - began:.1f} s before {seen.thing.path} had it")
        if any(begin <= at <= end for begin, end in calm) and _frees(step):
            for uid, seen in step.world.pods.items():
                if uid not in since and _waits_for(step, seen) and _fits(step.world, seen):
                    where = step.event.seen.thing.spec.node_name
                    since[uid] = at, f"A GPU of {where} that {step.event.seen.thing.path} gave back was idle"
    for began, why in since.values():
        if now - began > allowed.reuse:
            yield Violation("I9", f"{why} for {now - began:.1f} s, and somebody still waits for it")


def _pending(pod: Thing) -> bool:
    return pod.ours and not pod.spec.node_name and not pod.finished and not pod.terminating


def _frees(step: Step) -> bool:
    """Whether a holder has just ended."""
    before, event = step.before, step.event
    held = event.kind == "pods" and before is not None and bool(before.thing.spec.node_name) and before.thing.ours
    return held and before is not None and not before.thing.finished and (event.deleted or event.seen.thing.finished)


def _waits_for(step: Step, seen: Seen) -> bool:
    """Whether the pod could not be placed before just this holder ended."""
    line, before = _line(seen), step.before
    hold = None if before is None else step.world.hold(before)
    return (
        _pending(seen.thing)
        and line is not None
        and hold is not None
        and hold.node == line[0]
        and overlap(step.world.cards(line[0], line[1]), step.world.cards(line[0], hold.devices))
    )


def _fits(world: World, seen: Seen) -> bool:
    """Whether the pod could be bound now, for certain."""
    line = _line(seen)
    if line is None or line[0] not in world.nodes:
        return False
    name, devices = line
    node = world.nodes[name].thing
    others = list(world.on.get(name, {}).values())
    return _takes(node, devices) and _room(node, seen.thing, others) and _free(world, seen, name, devices)


def _line(seen: Seen) -> tuple[str, tuple[str, ...]] | None:
    """Give the node and the devices that the pod asks for, where that is all it asks."""
    pod, spec = seen.thing, seen.thing.spec
    lines = [line for line in pod.metadata.annotations.get(MAP, "").splitlines() if line.strip()]
    indices = [line.partition("=")[0] for line in lines]
    odd = (
        not all(LINE.fullmatch(line) for line in lines)
        or len(set(indices)) < len(indices)
        or pod.given("keep-env")
        or pod.given("observer")
        or pod.given("sharing") not in {None, "any"}
        or pod.given("count")
        or spec.affinity
        or spec.node_selector
        or spec.resource_claims
        or spec.topology_spread_constraints
        or any("persistentVolumeClaim" in each or "ephemeral" in each for each in spec.volumes)
        or any(container.ports for container in spec.containers)
        or CARDS in requests(pod)
    )
    try:
        line = None if odd else line_of(seen.read)
    except ValueError:
        return None
    if line is None or len(set(line[1])) < len(line[1]) or not _told(pod, ",".join(line[1])):
        return None
    return line


def _told(pod: Thing, devices: str) -> bool:
    """Whether every container has been told its devices, as the bind gate asks."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        found = [each for each in container.env if each.name == "CUDA_VISIBLE_DEVICES"]
        order = [each for each in container.env if each.name == "CUDA_DEVICE_ORDER"]
        if len(found) != 1 or len(order) != 1:
            return False
        source = found[0].value_from
        if found[0].value != devices if source is None else source.field_ref.get("fieldPath") != FIELD:
            return False
    return True


def _takes(node: Thing, devices: tuple[str, ...]) -> bool:
    known = inventory(node)
    usable = node.ready and not node.spec.unschedulable and not node.terminating and CARDS not in node.status.capacity
    untainted = all(taint.get("effect") == "PreferNoSchedule" for taint in node.spec.taints)
    listed = (known is None and node.given("devices") is None) or (known is not None and set(devices) <= known.keys())
    return usable and untainted and listed and all_healthy(node)


def _room(node: Thing, pod: Thing, others: list[Seen]) -> bool:
    wanted = requests(pod)
    for other in others:
        for resource, quantity in requests(other.thing).items():
            if resource in wanted:
                wanted[resource] += quantity
    return all(quantity <= amount(node.status.allocatable.get(name, "0")) for name, quantity in wanted.items())


def _free(world: World, seen: Seen, node: str, devices: tuple[str, ...]) -> bool:
    """Whether nobody at all has one of these devices, no kind of ID is mixed, and nobody has the pod's line."""
    wanted, mine = world.cards(node, devices), line_of(seen.read)
    for other in world.on.get(node, {}).values():
        hold = world.hold(other) if other.thing.ours else None
        if hold is None:
            continue
        if overlap(wanted, world.cards(node, hold.devices)) or any(not device.isdigit() for device in hold.devices):
            return False
        if workload(other.read) == workload(seen.read) and line_of(other.read) == mine:
            return False
    return True
