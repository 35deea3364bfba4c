"""A row for each device that a pod could have: free, held by whom and until when, unhealthy, unsuitable, missing.

LAW: the filters of the decision are asked about one device at a time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.explanation.explanation import DeviceAnswer, DeviceUse, Holder
from gpu_scheduler.core.filters import gpu_filters
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold, without_claims_of_pods
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import cordon_of
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.strategies.device_fit import DeviceFilter

_UNHEALTHY: Final = "its monitor reports it unhealthy"

Ends = Mapping[str, str]
"""By uid of a pod: when its GPUWorkload expects it to end (RFC 3339)."""


def of_line(pod: Pod, slot: Slot, candidate: Hold | None, cluster: Cluster, ends: Ends) -> Iterator[DeviceAnswer]:
    """Yield the devices that the line gives the pod, and those that its containers keep.

    `candidate` is what the pod would hold; None if there is no such node.
    """
    node = cluster.nodes.resolve(slot.node)
    if candidate is None or not isinstance(node, Node):
        yield from (
            DeviceAnswer(slot.node, device, DeviceUse.MISSING, "its node is missing") for device in slot.devices
        )
        return
    if node.advertised is not None and candidate.limit:
        return
    for device in dict.fromkeys((*slot.devices, *pod.request.kept)):
        # The candidate has all of them, perhaps by other names, or none.
        yield _answer(replace(candidate, devices=(device,) if candidate.devices else ()), device, node, cluster, ends)


def _answer(candidate: Hold, device: str, node: Node, cluster: Cluster, ends: Ends) -> DeviceAnswer:
    """Return the answer about one device. `candidate` holds it alone, or nothing if the pod is an observer."""
    ledger = cluster.ledger
    found = without_claims_of_pods((candidate, *ledger.devices.rivals(node.name, device)))
    holders = [each for each in found if each.ref.uid != candidate.ref.uid]
    use, why = DeviceUse.FREE, ""
    if gpu_filters.devices_exist((device,), node) is not None:
        use, why = DeviceUse.MISSING, "the node's inventory does not have it"
        holders = [each for each in holders if ledger.devices.certainly_holds(each, device)]
    elif cordon := cordon_of(node.cordons, device, node.inventory):
        use, why = DeviceUse.CORDONED, cordon.by_whom
    elif gpu_filters.gpu_healthy(candidate, node) is not None:
        use, why = DeviceUse.UNHEALTHY, _UNHEALTHY
    elif gpu_filters.gpu_free(candidate, ledger, cluster.nodes, cluster.policy) is not None:
        use = DeviceUse.HELD
    return DeviceAnswer(node.name, device, use, why, _holders(holders, device, ledger, ends))


def of_node(pod: Pod, node: Node, device_filter: DeviceFilter, cluster: Cluster, ends: Ends) -> Iterator[DeviceAnswer]:
    """Yield the devices of a node that a pod which asks for a count could have."""
    if node.advertised is not None and pod.gpu_limits:
        return
    for device in () if node.inventory is None else node.inventory.devices:
        candidate = assumed_hold(pod, Placement(node.name, (str(device.index),), None))
        others = cluster.ledger.devices.holders_of(node.name, device.index).values()
        found = without_claims_of_pods((candidate, *others))
        holders = [each for each in found if each.ref.uid != candidate.ref.uid]
        use, why = _use(candidate, device, node, device_filter, cluster)
        rows = _holders(holders, str(device.index), cluster.ledger, ends)
        yield DeviceAnswer(node.name, str(device.index), use, why, rows)


def _use(
    candidate: Hold, device: Device, node: Node, device_filter: DeviceFilter, cluster: Cluster
) -> tuple[DeviceUse, str]:
    """Return what keeps a pod that asks for a count from one device, and why."""
    never, ledger = device_filter.never_fits(device), cluster.ledger
    if never:
        return DeviceUse.UNSUITABLE, never
    closed = _closed(device, node)
    if closed is not None:
        return closed
    if gpu_filters.gpu_free(candidate, ledger, cluster.nodes, cluster.policy) is not None:
        return DeviceUse.HELD, ""
    apart = gpu_filters.plugin_apart(candidate, node, ledger)
    if apart is not None:
        return DeviceUse.UNSUITABLE, apart.what
    not_now = device_filter.fits_not_now(node, device)
    return (DeviceUse.UNSUITABLE, not_now) if not_now else (DeviceUse.FREE, "")


def _closed(device: Device, node: Node) -> tuple[DeviceUse, str] | None:
    """Return why no pod that asks for a count gets the device, whoever holds it; None if pods may get it."""
    cordon = cordon_of(node.cordons, str(device.index), node.inventory)
    if cordon is not None:
        return DeviceUse.CORDONED, cordon.by_whom
    if node.stale:
        return DeviceUse.UNHEALTHY, "the monitor of its node is silent"
    if node.readings.get(device.index, UNREAD).health is Health.UNHEALTHY:
        return DeviceUse.UNHEALTHY, _UNHEALTHY
    return None


def _holders(holders: Iterable[Hold], device: str, ledger: Ledger, ends: Ends) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            each.ref,
            each.assigned_at,
            ends.get(each.ref.uid, ""),
            each.deleting_since or "",
            each.kept_line,
            each.kind,
            ledger.devices.certainly_holds(each, device),
        )
        for each in sorted(holders, key=lambda each: (each.ref.namespace, each.ref.name))
    )
