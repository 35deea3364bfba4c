"""I7 and a part of I9: no pod waits without a reason, and freed GPUs are used soon.

Only certain cases count: a pod that asks for one line of a map and for nothing else, and a node that it fits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation
from tests.auditor.history import overlap, steps
from tests.auditor.objects import DEVICES, all_healthy, amount, inventory, requests
from tests.auditor.placements import FIELD
from tests.oracle.reference import MAP, line_of, workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.findings import Allowed
    from tests.auditor.history import ClusterHistory, Event, Step
    from tests.auditor.objects import ApiObject, Seen

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
    """I7: after the last event, a pod fits and is not bound, or waits without a condition that has a known reason."""
    last: ClusterHistory | None = None
    for step in steps(events):
        last = step.history
    for seen in last.pods.values() if last else ():
        pod = seen.api_object
        if not last or not _pending(pod) or pod.spec.scheduling_gates:
            continue
        reported = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if _fits(last, seen):
            yield Violation("I7", f"{pod.path} fits and is not bound")
        elif reported is None or reported.status != "False":
            yield Violation("I7", f"{pod.path} waits without condition PodScheduled=False")
        elif (
            reported.reason not in {"Unschedulable", "SchedulerError"}
            or reported.message.partition(": ")[0] not in REASONS
        ):
            yield Violation("I7", f"{pod.path} waits for no known reason: {reported.reason}: {reported.message}")


def idle(
    events: Iterable[Event], quiet: list[tuple[float, float]], allowed: Allowed, now: float
) -> Iterator[Violation]:
    """I9: in a quiet time a GPU became free, and the pod that waited for it was not bound in time."""
    since: dict[str, tuple[float, str]] = {}
    at = now
    for step in steps(events):
        at = step.event.at
        for uid, (began, why) in list(since.items()):
            seen = step.history.pods.get(uid)
            if seen is None or not _pending(seen.api_object) or not _fits(step.history, seen):
                del since[uid]
                if seen is not None and seen.api_object.spec.node_name and at - began > allowed.reuse:
                    yield Violation("I9", f"{why} for {at - began:.1f} s before {seen.api_object.path} had it")
        if any(begin <= at <= end for begin, end in quiet) and _frees(step):
            for uid, seen in step.history.pods.items():
                if uid not in since and _waits_for(step, seen) and _fits(step.history, seen):
                    where = step.event.seen.api_object.spec.node_name
                    since[uid] = at, f"A GPU of {where} that {step.event.seen.api_object.path} gave back was idle"
    for began, why in since.values():
        if now - began > allowed.reuse:
            yield Violation("I9", f"{why} for {now - began:.1f} s, and a pod still waits for it")


def _pending(pod: ApiObject) -> bool:
    return pod.ours and not pod.spec.node_name and not pod.finished and not pod.terminating


def _frees(step: Step) -> bool:
    """Return whether the step ends a holder: a bound pod of ours was deleted or has finished."""
    before, event = step.before, step.event
    held = (
        event.kind == "pods"
        and before is not None
        and bool(before.api_object.spec.node_name)
        and before.api_object.ours
    )
    return (
        held
        and before is not None
        and not before.api_object.finished
        and (event.deleted or event.seen.api_object.finished)
    )


def _waits_for(step: Step, seen: Seen) -> bool:
    """Return whether the pod is pending and asks for a device of the holder that has just ended."""
    line, before = _line(seen), step.before
    hold = None if before is None else step.history.hold(before)
    return (
        _pending(seen.api_object)
        and line is not None
        and hold is not None
        and hold.node == line[0]
        and overlap(step.history.devices(line[0], line[1]), step.history.devices(line[0], hold.devices))
    )


def _fits(history: ClusterHistory, seen: Seen) -> bool:
    """Return whether the pod certainly fits now."""
    line = _line(seen)
    if line is None or line[0] not in history.nodes:
        return False
    name, devices = line
    node = history.nodes[name].api_object
    others = list(history.on.get(name, {}).values())
    return _takes(node, devices) and _room(node, seen.api_object, others) and _free(history, seen, name, devices)


def _line(seen: Seen) -> tuple[str, tuple[str, ...]] | None:
    """Return the node and the devices that the pod asks for; None if it asks for anything else."""
    pod, spec = seen.api_object, seen.api_object.spec
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
        or DEVICES in requests(pod)
    )
    try:
        line = None if odd else line_of(seen.read)
    except ValueError:
        return None
    if line is None or len(set(line[1])) < len(line[1]) or not _reported(pod, ",".join(line[1])):
        return None
    return line


def _reported(pod: ApiObject, devices: str) -> bool:
    """Return whether every container has the variables with these devices, as the bind gate requires."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        found = [each for each in container.env if each.name == "CUDA_VISIBLE_DEVICES"]
        order = [each for each in container.env if each.name == "CUDA_DEVICE_ORDER"]
        if len(found) != 1 or len(order) != 1:
            return False
        source = found[0].value_from
        if found[0].value != devices if source is None else source.field_ref.get("fieldPath") != FIELD:
            return False
    return True


def _takes(node: ApiObject, devices: tuple[str, ...]) -> bool:
    known = inventory(node)
    usable = node.ready and not node.spec.unschedulable and not node.terminating and DEVICES not in node.status.capacity
    untainted = all(taint.get("effect") == "PreferNoSchedule" for taint in node.spec.taints)
    listed = (known is None and node.given("devices") is None) or (known is not None and set(devices) <= known.keys())
    return usable and untainted and listed and all_healthy(node)


def _room(node: ApiObject, pod: ApiObject, others: list[Seen]) -> bool:
    wanted = requests(pod)
    for other in others:
        for resource, quantity in requests(other.api_object).items():
            if resource in wanted:
                wanted[resource] += quantity
    return all(quantity <= amount(node.status.allocatable.get(name, "0")) for name, quantity in wanted.items())


def _free(history: ClusterHistory, seen: Seen, node: str, devices: tuple[str, ...]) -> bool:
    """Return whether no pod holds these devices or the pod's line, and no holder on the node uses UUIDs."""
    wanted, mine = history.devices(node, devices), line_of(seen.read)
    for other in history.on.get(node, {}).values():
        hold = history.hold(other) if other.api_object.ours else None
        if hold is None:
            continue
        if overlap(wanted, history.devices(node, hold.devices)) or any(not device.isdigit() for device in hold.devices):
            return False
        if workload(other.read) == workload(seen.read) and line_of(other.read) == mine:
            return False
    return True
