"""Whether two pods may hold one device at the same time, and which pods of a node do so against the rules.

LAW: a pair of pods costs the same however many devices they hold: what they hold are bits of a number. A node with 110
pods of 128 devices takes milliseconds.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import DevicePart
from gpu_scheduler.core.policy import Sharing

Part = Callable[[str], tuple[str, DevicePart | None]]
"""Returns the key of the device that a name means, and its part in the inventory."""


@immutable
class Conflict:
    """Two pods, or a pod and a claim, that hold one device against the rules."""

    node: str
    device: str
    first: Hold
    second: Hold


@immutable
class _Bits:
    """What one pod holds. Each bit is a device, a part of one, or a name that the inventory does not know."""

    held: int
    met: int
    """What overlaps with what it holds."""
    of_line: int
    """What its map line names."""


def may_share(one: Hold, other: Hold, sharing: Sharing) -> bool | None:
    """Whether `other` may hold the same devices as `one`. None: only those that the map lines of both name."""
    if other.kept and (one.workload, one.index) == (other.workload, other.index):
        # The line is kept for this pod.
        return True
    if one.is_claim or other.is_claim or (one.claims and other.claims):
        # A kubelet gives a device to the pods of one claim alone.
        same = one.ref.namespace == other.ref.namespace and not frozenset(one.claims).isdisjoint(other.claims)
        if not same or one.is_claim or other.is_claim:
            return same
    if sharing is Sharing.NONE:
        return False
    if sharing is Sharing.ANY or (one.sharing_any and other.sharing_any) or (one.shared and other.shared):
        return True
    if one.workload is None or one.workload != other.workload or one.index == other.index:
        return False
    return None


class SharedBy:
    """Which devices one pod may hold at the same time as other holders of its node. Each holder is read once."""

    __slots__ = ("_named", "_of", "_one", "_part_of", "_sharing")

    def __init__(self, one: Hold, sharing: Sharing, part_of: Part) -> None:
        self._one = one
        self._sharing = sharing
        self._part_of = part_of
        self._named = self._meanings(one.named)
        self._of: dict[str, bool | frozenset[DevicePart | str]] = {}
        """By uid: whether it shares all devices or none, or what its map line names."""

    def allows(self, other: Hold, device: str) -> bool:
        """Whether `other` may hold `device` at the same time."""
        found = self._of.get(other.ref.uid)
        if found is None:
            share = may_share(self._one, other, self._sharing)
            found = self._of[other.ref.uid] = self._meanings(other.named) if share is None else share
        if isinstance(found, bool):
            return found
        means = self._part_of(device)[1] or device
        return means in found and means in self._named

    def _meanings(self, devices: Sequence[str]) -> frozenset[DevicePart | str]:
        return frozenset([self._part_of(device)[1] or device for device in devices])


def node_conflicts(
    holders: Sequence[tuple[Hold, Sequence[str]]], part_of: Part, sharing: Sharing
) -> Iterator[Conflict]:
    """Yield the conflicts between holders of one node, with the first device of the first holder that is met.

    `holders` are given with the devices that they hold by name. Only names that certainly mean the same device prove a
    conflict.
    """
    numbers = _Numbers(part_of)
    for holder, devices in holders:
        numbers.add(devices)
        numbers.add(holder.named)
    bits = [_Bits(numbers.of(devices), numbers.met(devices), numbers.of(each.named)) for each, devices in holders]
    for ((one, devices), held), ((other, _), others) in combinations(zip(holders, bits, strict=True), 2):
        met = held.held & others.met
        # What a user's claims share, their driver decides; neither is a pod, so nobody would get the event.
        if not met or (one.is_claim and other.is_claim):
            continue
        share = may_share(one, other, sharing)
        if share is None:
            met &= ~(held.of_line & others.of_line)
        if met and not share:
            device = next(device for device in devices if numbers.of((device,)) & met)
            yield Conflict(one.node, device, one, other)


class _Numbers:
    """Numbers the devices, parts and unknown names that occur on a node."""

    def __init__(self, part_of: Part) -> None:
        self._part_of = part_of
        self._bit: dict[DevicePart | str, int] = {}
        self._of_key: dict[str, int] = {}
        """All bits of one device."""

    def add(self, devices: Sequence[str]) -> None:
        """Number what these names mean."""
        for device in devices:
            key, part = self._part_of(device)
            bit = self._bit.setdefault(part or device, 1 << len(self._bit))
            self._of_key[key] = self._of_key.get(key, 0) | bit

    def of(self, devices: Sequence[str]) -> int:
        """Return the bits of what these names mean."""
        found = 0
        for device in devices:
            found |= self._bit[self._part_of(device)[1] or device]
        return found

    def met(self, devices: Sequence[str]) -> int:
        """Return the bits of all that overlaps with what these names mean."""
        found = 0
        for device in devices:
            key, part = self._part_of(device)
            if part is None or part.mig_device is None:
                found |= self._of_key[key]
            else:
                found |= self._bit[part] | self._bit.get(DevicePart(part.index), 0)
        return found
