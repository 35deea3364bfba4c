"""Which devices of one node pods can have that need the same of a device and ask for any count, or why too few.

LAW: this module reads one node and its holds, never another node. What the pods need of the node besides devices is
none of its business, so that pods of many requests for CPU share what is found here. A result is valid until something
changes on the node.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gpu_scheduler import names
from gpu_scheduler.core.filters import gpu_filters
from gpu_scheduler.core.ledger.conflicts import may_share
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import cordon_of
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.strategies.equivalence import DeviceRequirements
from gpu_scheduler.core.strategies.filter_failure import FilterFailure, filter_failure
from gpu_scheduler.core.strategies.orderings import ORDERINGS, FreeDevice
from gpu_scheduler.core.text import quote


class DeviceFit(NamedTuple):
    """The devices that a node has for pods with the same requirements."""

    node: Node
    suitable: int
    """How many of its devices would fit if all of them were free."""
    devices: tuple[FreeDevice, ...]
    """The devices that the pods can have, in the order in which their strategy takes them."""
    available: int
    """How many devices they can have. If a device plugin chooses, these may be any of `devices`."""
    available_if_healthy: int
    """How many devices they could have if all of them were healthy."""
    available_if_uncordoned: int
    """How many devices they could have if, besides, none were cordoned."""
    unheld: int
    """How many of the node's devices no pod holds."""
    busy: int
    """How many of the node's devices pods hold, per mille."""


class _StaticDevices(NamedTuple):
    """What a fit has of the node's devices that does not depend on the pods of the node."""

    node: Node
    suitable: int
    keys: tuple[str, ...]
    """The keys of all devices in the ledger."""
    free: tuple[FreeDevice, ...]
    """The devices that the pods could have if no pod held any, in the strategy's order."""
    free_keys: tuple[str, ...]
    unhealthy_keys: tuple[str, ...]
    """The keys of the devices that they could have if no pod held any and they were healthy."""
    cordoned_keys: tuple[str, ...]
    """The keys of the devices that they could have if no pod held any, they were healthy, and none were cordoned."""


class _Devices(NamedTuple):
    """The devices of a node that pods could have if all were healthy and in service."""

    free: list[FreeDevice]
    """Those that they can have, in the strategy's order."""
    unhealthy: list[int]
    cordoned: list[int]
    """Cordoned ones, healthy or not."""


_NO_HOLDERS: Final[Mapping[str, Hold]] = {}
_NONE_HELD: Final[Mapping[str, Mapping[str, Hold]]] = {}


class DeviceFilter:
    """Filters the devices of nodes for pods with the same requirements, and keeps a result until its node changes."""

    __slots__ = (
        "__weakref__",
        "_claim",
        "_fits",
        "_gpu_type",
        "_ledger",
        "_order",
        "_requirements",
        "_sharing",
        "exclusive",
        "utilization_goal",
    )

    def __init__(
        self,
        requirements: DeviceRequirements,
        sample: Pod,
        ledger: Ledger,
        policy: Policy,
    ) -> None:
        """Filter for pods with `requirements`. `sample` is one of these pods."""
        self._requirements = requirements
        self._sharing = policy.sharing
        self._ledger = ledger
        self._gpu_type = requirements.gpu_type.lower()
        self._order = ORDERINGS[requirements.strategy].device
        self.utilization_goal = policy.utilization_goal
        # What one of the pods would hold on any node.
        self._claim = assumed_hold(sample, Placement("", ("0",), None))
        shares = requirements.sharing_any or requirements.observer or policy.sharing is Sharing.ANY
        # Only pods of one map share a ResourceClaim, whatever the operator has set.
        self.exclusive = requirements.exclusive and (requirements.by_uuid or not shares)
        """Whether the pods can have only devices that no other pod holds."""
        self._fits: dict[str, tuple[int, _StaticDevices, DeviceFit]] = {}
        """By node: the number of the last change that the fit includes, and the fit."""

    def fit(self, node: Node) -> DeviceFit:
        """Return what the node has for the pods. A fit is computed again only if something has changed on the node."""
        changes = self._ledger.generations
        generation, static, fit = self._fits.get(node.name, (-1, None, None))
        if static is None or static.node is not node:
            static = self._static_devices(node)
        elif fit is not None and generation >= changes.last(node.name):
            return fit
        fit = self._fit_by_number(static) if self._requirements.plugin_chooses(node) else self._fit_by_device(static)
        self._fits[node.name] = changes.now, static, fit
        return fit

    def forget(self, name: str) -> None:
        """Remove the node."""
        self._fits.pop(name, None)

    def keep(self, nodes: set[str]) -> None:
        """Remove all nodes except these."""
        for name in self._fits.keys() - nodes:
            del self._fits[name]

    def failure(self, fit: DeviceFit, count: int) -> FilterFailure | None:
        """Return why the GPUs of the node do not suffice for pods that ask for `count`."""
        if fit.suitable < count:
            return self._never(fit.node, count)
        if fit.available >= count:
            return None
        if fit.available_if_healthy >= count:
            return filter_failure(Reason.GPU_UNHEALTHY)
        if fit.available_if_uncordoned >= count:
            return filter_failure(Reason.GPU_CORDONED)
        return filter_failure(Reason.NOT_ENOUGH_GPUS, fit.available)

    def health_problem(self, node: Node) -> str:
        """Return what is wrong with the health of GPUs that the pods could have otherwise, as text for people."""
        if node.stale:
            return f"the monitor of {node.name} is silent"
        unhealthy = self._devices(node, self._ledger.devices.held(node.name)).unhealthy
        return f"GPU {unhealthy[0]} of {node.name} is unhealthy"

    def cordoned(self, node: Node) -> Unschedulable | None:
        """Return why cordons keep the pods from GPUs of the node that they could have otherwise."""
        plugin = self._requirements.plugin_chooses(node)
        cordoned = [] if plugin else self._devices(node, self._ledger.devices.held(node.name)).cordoned
        return gpu_filters.gpu_in_service(map(str, cordoned), node, plugin_chooses=plugin)

    def never_fits(self, device: Device) -> str:
        """Return why the pods cannot have the device, even if it were free; empty if they could."""
        if device.mig_devices:
            return "it is divided into MIG devices"
        if not self._of_type(device):
            return f"its model is {quote(device.model)}"
        if self._requirements.by_uuid and device.uuid is None:
            return "its UUID is unknown"
        if not self._selected(device):
            return f"the pod's ResourceClaim selects {self._requirements.selector}"
        total = device.memory or 0
        return f"it has {total} MiB" if total < self._requirements.memory else ""

    def fits_not_now(self, node: Node, device: Device) -> str:
        """Return why the pods cannot have the device now, apart from its health and who holds it; empty if they can."""
        reading = node.readings.get(device.index, UNREAD)
        if self._requirements.observer:
            return ""
        if reading.utilization > self.utilization_goal:
            return f"{reading.utilization} % utilized"
        holders = self._ledger.devices.holders_of(node.name, device.index)
        free = self._free_memory(device, reading, holders)
        return f"{free} MiB of its memory are free" if free < self._requirements.memory else ""

    def _static_devices(self, node: Node) -> _StaticDevices:
        inventory, (number, sizes) = _inventory(node), self._sizes(node)
        enough = sum([size >= self._requirements.memory for size in sizes])
        if self._requirements.plugin_chooses(node):
            # It is unknown which devices the plugin will give: all devices of the node stand for them.
            found = _Devices(sorted([_as_read(node, device) for device in inventory], key=self._order), [], [])
        else:
            found = self._devices(node, _NONE_HELD)
        return _StaticDevices(
            node,
            number if enough == len(sizes) else enough,
            _keys(tuple([device.index for device in inventory])),
            tuple(found.free),
            _keys(tuple([device.index for device in found.free])),
            _keys(tuple(found.unhealthy)),
            _keys(tuple(found.cordoned)),
        )

    def _fit_by_device(self, static: _StaticDevices) -> DeviceFit:
        node, total = static.node, len(static.keys)
        held = self._ledger.devices.held(node.name)
        free, unhealthy, cordoned = static.free, len(static.unhealthy_keys), len(static.cordoned_keys)
        if gpu_filters.plugin_apart(self._claim, node, self._ledger) is not None:
            free, unhealthy, cordoned = (), 0, 0
        elif held and self.exclusive:
            free = tuple([device for key, device in zip(static.free_keys, free, strict=True) if key not in held])
            unhealthy = sum([key not in held for key in static.unhealthy_keys])
            cordoned = sum([key not in held for key in static.cordoned_keys])
        elif held:
            shared = self._devices(node, held)
            free, unhealthy, cordoned = tuple(shared.free), len(shared.unhealthy), len(shared.cordoned)
        taken = sum([key in held for key in static.keys]) if held else 0
        busy = 1000 * taken // total if taken else 0
        available = len(free)
        healthy = available + unhealthy
        return DeviceFit(node, static.suitable, free, available, healthy, healthy + cordoned, total - taken, busy)

    def _fit_by_number(self, static: _StaticDevices) -> DeviceFit:
        """Return a fit with as many devices as the plugin has left.

        It is unknown which devices it gives, so all must fit, and none may be cordoned.
        """
        node = static.node
        total = node.allocatable.get(names.GPU_RESOURCE, 0)
        left = max(total - self._ledger.used_resources.used(node.name, names.GPU_RESOURCE), 0)
        if gpu_filters.plugin_apart(self._claim, node, self._ledger) is not None:
            left = 0
        busy = 1000 * (total - left) // total if left else 1000
        available = 0 if node.cordons else left
        return DeviceFit(node, static.suitable, static.free, available, available, left, left, busy)

    def _of_type(self, device: Device) -> bool:
        return not self._gpu_type or self._gpu_type in device.model.lower()

    def _selected(self, device: Device) -> bool:
        """Whether the node's inventory says what the pod's own claim selects. The driver must publish it too."""
        selector = self._requirements.selector
        return (
            selector.uuid in {"", device.uuid}
            and selector.index in {None, device.index}
            and selector.product_name in {"", device.model}
        )

    def _whole(self, node: Node) -> list[Device]:
        """Return the devices of the requested type.

        A device with MIG devices is left out: no pod can have it as a whole. So is one without UUID if the pods need
        it.
        """
        return [
            device
            for device in _inventory(node)
            if not device.mig_devices
            and self._of_type(device)
            and not (self._requirements.by_uuid and device.uuid is None)
            and self._selected(device)
        ]

    def _sizes(self, node: Node) -> tuple[int, list[int]]:
        """Return how many devices of the type the node has, and the memory of each, largest first.

        It is unknown which devices a plugin gives. On its node, all devices must be of the type, and each counts as the
        smallest.
        """
        if not self._requirements.plugin_chooses(node):
            sizes = sorted([device.memory or 0 for device in self._whole(node)], reverse=True)
            return len(sizes), sizes
        inventory = _inventory(node)
        number = (node.advertised or 0) if all(map(self._of_type, inventory)) else 0
        return number, [min([device.memory or 0 for device in inventory], default=0)]

    def _never(self, node: Node, count: int) -> FilterFailure:
        """Return the failure of a node that has too few devices, or too small ones, even if all were free."""
        number, sizes = self._sizes(node)
        if number < count:
            return filter_failure(Reason.GPU_NOT_FOUND, number)
        return filter_failure(Reason.INSUFFICIENT_GPU_MEMORY, sizes[min(count, len(sizes)) - 1])

    def _devices(self, node: Node, held: Mapping[str, Mapping[str, Hold]]) -> _Devices:
        """Return the devices that the pods could have if all were healthy and in service."""
        found = _Devices([], [], [])
        for device in self._whole(node):
            reading = node.readings.get(device.index, UNREAD)
            free = self._free(device, reading, held.get(str(device.index), _NO_HOLDERS) if held else _NO_HOLDERS)
            if free is None:
                continue
            if node.cordons and cordon_of(node.cordons, str(device.index), node.inventory) is not None:
                found.cordoned.append(device.index)
            # Its monitor reports it as unhealthy, or has reported nothing for too long.
            elif node.stale or reading.health is Health.UNHEALTHY:
                found.unhealthy.append(device.index)
            else:
                found.free.append(free)
        found.free.sort(key=self._order)
        return found

    def _free(self, device: Device, reading: DeviceReading, holders: Mapping[str, Hold]) -> FreeDevice | None:
        """Return the device if its holders, its utilization and its memory allow it, otherwise None."""
        requirements, free = self._requirements, self._free_memory(device, reading, holders)
        if requirements.observer:
            # An observer takes nothing from other pods.
            if (device.memory or 0) < requirements.memory:
                return None
        elif (
            free < requirements.memory
            or reading.utilization > self.utilization_goal
            or (holders and not all(may_share(self._claim, holder, self._sharing) for holder in holders.values()))
        ):
            return None
        return _free_device(device.index, free, reading.utilization, len(holders), reading.health is Health.DEGRADED)

    def _free_memory(self, device: Device, reading: DeviceReading, holders: Mapping[str, Hold]) -> int:
        """Return how many MiB neither holders have reserved nor any process uses."""
        reserved = sum([holder.memory for holder in holders.values()]) if holders else 0
        return max((device.memory or 0) - max(reserved, reading.used), 0)


# Most nodes have equal free devices: equal values are stored once.
_free_device: Final = lru_cache(maxsize=4096)(FreeDevice)


@lru_cache(maxsize=64)
def _keys(indices: tuple[int, ...]) -> tuple[str, ...]:
    """Return the keys of devices in the ledger. Most nodes have the same keys: these are stored once."""
    return tuple(map(str, indices))


def _as_read(node: Node, device: Device) -> FreeDevice:
    reading = node.readings.get(device.index, UNREAD)
    return _free_device(device.index, device.memory or 0, reading.utilization, 0, reading.health is Health.DEGRADED)


def _inventory(node: Node) -> tuple[Device, ...]:
    return () if node.inventory is None else node.inventory.devices
