"""Who holds which line of a map, and which line is free next.

LAW: the next free index costs constant amortised time, however long the map and however many pods have come and gone:
a line is walked past once, and comes back by way of a heap when it is freed.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gpu_scheduler.core.pods.placement_map import PlacementMap
from gpu_scheduler.core.refs import WorkloadKey

_Table = dict[int, str | dict[str, None]]
"""By index: who has it, and only where they are several a dictionary of them, which would cost more than the pod."""


@dataclass(slots=True)
class _Pool:
    """The lines of one workload's map that somebody has, and where to look for one that nobody has."""

    held: _Table = field(default_factory=dict)
    claimed: _Table = field(default_factory=dict)
    passed: int = 0
    """How many of the map's lines, in order of index, have been walked past."""
    mark: int = -1
    """The index of the last of them."""
    returned: list[int] = field(default_factory=list)
    """Heap of indices below that mark that are free; some may be busy again."""
    queued: set[int] = field(default_factory=set)
    """Those in the heap."""

    def busy(self, index: int) -> bool:
        return index in self.held or index in self.claimed

    def give_back(self, index: int) -> None:
        if index <= self.mark and not self.busy(index) and index not in self.queued:
            self.queued.add(index)
            heappush(self.returned, index)

    def free(self, placement_map: PlacementMap) -> Generator[int]:
        """Free indices, lowest first; whoever asks may stop at any time."""
        seen: list[int] = []
        try:
            while self.returned:
                index = heappop(self.returned)
                if self.busy(index) or placement_map.get(index) is None:
                    # It comes back when it is freed.
                    self.queued.discard(index)
                    continue
                seen.append(index)
                yield index
            indices = placement_map.indices
            while self.passed < len(indices):
                index = self.mark = indices[self.passed]
                self.passed += 1
                if not self.busy(index):
                    # From now on the heap has it: whoever can't have it must not walk here again.
                    self.queued.add(index)
                    seen.append(index)
                    yield index
        finally:
            for index in seen:
                heappush(self.returned, index)


class Indices:
    """Held and claimed indices of all workloads; nothing is kept of a workload that has neither."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[WorkloadKey, _Pool] = {}

    def hold(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """The pod has the index."""
        _note(self._pool(workload).held, index, uid)

    def release(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """The pod no longer has it."""
        self._take_back(workload, self._pools[workload].held, index, uid)

    def claim(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """A pending pod can use no other index, so nobody who can use any is to take it."""
        _note(self._pool(workload).claimed, index, uid)

    def unclaim(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """The pod is pending no longer."""
        self._take_back(workload, self._pools[workload].claimed, index, uid)

    def holders(self, workload: WorkloadKey, index: int) -> tuple[str, ...]:
        """Who has the index, by uid; more than one only where somebody else than us bound them."""
        pool = self._pools.get(workload)
        return () if pool is None else _uids(pool.held.get(index, {}))

    def free(self, workload: WorkloadKey, placement_map: PlacementMap) -> Generator[int]:
        """The indices of the workload's map that nobody holds or claims, lowest first."""
        pool = self._pools.get(workload)
        if pool is None:
            return (index for index in placement_map.indices)
        return pool.free(placement_map)

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for workload, pool in self._pools.items():
            for word, table in (("held", pool.held), ("claimed", pool.claimed)):
                for index, uids in table.items():
                    yield (word, workload, index), frozenset(_uids(uids))

    def _pool(self, workload: WorkloadKey) -> _Pool:
        pool = self._pools.get(workload)
        if pool is None:
            pool = self._pools[workload] = _Pool()
        return pool

    def _take_back(self, workload: WorkloadKey, table: _Table, index: int, uid: str) -> None:
        pool, uids = self._pools[workload], table[index]
        if isinstance(uids, dict):
            del uids[uid]
        if isinstance(uids, str) or not uids:
            del table[index]
            pool.give_back(index)
        if not pool.held and not pool.claimed:
            del self._pools[workload]


def _note(table: _Table, index: int, uid: str) -> None:
    uids = table.setdefault(index, uid)
    if isinstance(uids, dict):
        uids[uid] = None
    elif uids != uid:
        table[index] = {uids: None, uid: None}


def _uids(uids: str | dict[str, None]) -> tuple[str, ...]:
    return (uids,) if isinstance(uids, str) else tuple(uids)
