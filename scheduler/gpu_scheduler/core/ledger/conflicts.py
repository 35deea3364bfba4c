"""Whether two pods may hold one device at the same time, and which pods of a node do so against the rules.

LAW: a pair of pods costs the same however many devices they hold: what they hold are bits of a number. A node with 110
pods of 128 devices takes milliseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, combinations

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import DevicePart
from gpu_scheduler.core.policy import Sharing

Meaning = Callable[[str], DevicePart | str]
"""Returns what a name means: a part in the inventory, or the name itself if the inventory does not know it."""


@immutable
class Conflict:
    """Two pods, or a pod and a claim, that hold one device against the rules."""

    node: str
    device: str
    first: Hold
    second: Hold


@immutable
class _Holder:
    """A hold, and what it holds as bits: each is a device, a part of one, or a name that no inventory knows."""

    hold: Hold
    devices: Sequence[str]
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

    def __init__(self, one: Hold, sharing: Sharing, meaning: Meaning) -> None:
        self._one = one
        self._sharing = sharing
        self._meaning = meaning
        self._of: dict[str, bool | frozenset[DevicePart | str]] = {}
        """By uid: whether it shares all devices or none, or what the map lines of both name."""

    def allows(self, other: Hold, device: str) -> bool:
        """Whether `other` may hold `device` at the same time."""
        found = self._of.get(other.ref.uid)
        if found is None:
            share = may_share(self._one, other, self._sharing)
            found = self._own.intersection(map(self._meaning, other.named)) if share is None else share
            self._of[other.ref.uid] = found
        return found if isinstance(found, bool) else self._meaning(device) in found

    @cached_property
    def _own(self) -> frozenset[DevicePart | str]:
        """What its own map line names."""
        return frozenset(map(self._meaning, self._one.named))


def node_conflicts(
    holders: Sequence[tuple[Hold, Sequence[str]]], meaning: Meaning, sharing: Sharing
) -> Iterator[Conflict]:
    """Yield the conflicts between holders of one node, with the first device of the first holder that is met.

    `holders` are given with the devices that they hold by name. Only names that certainly mean the same device prove a
    conflict.
    """
    held = [tuple(map(meaning, devices)) for _, devices in holders]
    # Usually a pod's line names all that it holds.
    named = [
        means if hold.named is devices else tuple(map(meaning, hold.named))
        for (hold, devices), means in zip(holders, held, strict=True)
    ]
    numbers = _Numbers(chain(held, named))
    found = [
        _Holder(hold, devices, numbers.of(means), numbers.met(means), numbers.of(line))
        for (hold, devices), means, line in zip(holders, held, named, strict=True)
    ]
    for one, other in combinations(found, 2):
        met = one.held & other.met
        # What a user's claims share, their driver decides; neither is a pod, so nobody would get the event.
        if not met or (one.hold.is_claim and other.hold.is_claim):
            continue
        share = may_share(one.hold, other.hold, sharing)
        if share is None:
            met &= ~(one.of_line & other.of_line)
        if met and not share:
            device = next(device for device in one.devices if numbers.of([meaning(device)]) & met)
            yield Conflict(one.hold.node, device, one.hold, other.hold)


class _Numbers:
    """A bit for each device, part and unknown name that occurs on a node."""

    def __init__(self, groups: Iterable[Iterable[DevicePart | str]]) -> None:
        self._bit: dict[DevicePart | str, int] = {}
        self._of_device: dict[int | str, int] = {}
        """All bits of one device, by its index or its unknown name."""
        for what in chain.from_iterable(groups):
            if what not in self._bit:
                self._bit[what] = bit = 1 << len(self._bit)
                self._of_device[_device(what)] = self._of_device.get(_device(what), 0) | bit

    def of(self, means: Iterable[DevicePart | str]) -> int:
        """Return the bits of these."""
        found = 0
        for what in means:
            found |= self._bit[what]
        return found

    def met(self, means: Iterable[DevicePart | str]) -> int:
        """Return the bits of all that overlaps with these."""
        found = 0
        for what in means:
            if isinstance(what, DevicePart) and what.mig_device is not None:
                found |= self._bit[what] | self._bit.get(DevicePart(what.index), 0)
            else:
                found |= self._of_device[_device(what)]
        return found


def _device(what: DevicePart | str) -> int | str:
    return what.index if isinstance(what, DevicePart) else what
