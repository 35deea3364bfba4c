"""Who holds which line of a map, and which line is free next.

LAW: the next free index costs constant amortised time, however long the map and however many pods have come and gone:
a line is walked past once, and comes back by way of a heap when it is freed.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gpu_scheduler.core.model import WorkloadKey


@dataclass(slots=True)
class _Pool:
    """The lines of one workload's map that somebody has, and where to look for one that nobody has."""

    held: dict[int, dict[str, None]] = field(default_factory=dict)
    claimed: dict[int, dict[str, None]] = field(default_factory=dict)
    passed: int = 0
    """How many of the map's slots, in order of index, were busy when they were last looked at."""
    returned: list[int] = field(default_factory=list)
    """Heap of indices below that mark that were freed since; some may be busy again."""
    queued: set[int] = field(default_factory=set)
    """Those in the heap."""

    def busy(self, index: int) -> bool:
        return index in self.held or index in self.claimed

    def give_back(self, index: int, workload: WorkloadKey) -> None:
        slots = workload.map.slots
        walked_past = self.passed == len(slots) or index < slots[self.passed].index
        if walked_past and not self.busy(index) and index not in self.queued and workload.map.get(index) is not None:
            self.queued.add(index)
            heappush(self.returned, index)

    def free(self, workload: WorkloadKey) -> Generator[int]:
        """Free indices, lowest first; whoever asks may stop at any time."""
        seen: list[int] = []
        try:
            while self.returned:
                index = heappop(self.returned)
                if self.busy(index):
                    # It comes back when it is freed.
                    self.queued.discard(index)
                    continue
                seen.append(index)
                yield index
            slots = workload.map.slots
            while self.passed < len(slots) and self.busy(slots[self.passed].index):
                self.passed += 1
            for position in range(self.passed, len(slots)):
                index = slots[position].index
                if not self.busy(index):
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
        self._pool(workload).held.setdefault(index, {})[uid] = None

    def release(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """The pod no longer has it."""
        self._take_back(workload, self._pools[workload].held, index, uid)

    def claim(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """A pending pod can use no other index, so nobody who can use any is to take it."""
        self._pool(workload).claimed.setdefault(index, {})[uid] = None

    def unclaim(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """The pod is pending no longer."""
        self._take_back(workload, self._pools[workload].claimed, index, uid)

    def holders(self, workload: WorkloadKey, index: int) -> tuple[str, ...]:
        """Who has the index, by uid; more than one only where somebody else than us bound them."""
        pool = self._pools.get(workload)
        return () if pool is None else tuple(pool.held.get(index, ()))

    def free(self, workload: WorkloadKey) -> Generator[int]:
        """The indices of the map that nobody holds or claims, lowest first."""
        pool = self._pools.get(workload)
        if pool is None:
            return (slot.index for slot in workload.map.slots)
        return pool.free(workload)

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for workload, pool in self._pools.items():
            for word, table in (("held", pool.held), ("claimed", pool.claimed)):
                for index, uids in table.items():
                    yield (word, workload, index), frozenset(uids)

    def _pool(self, workload: WorkloadKey) -> _Pool:
        pool = self._pools.get(workload)
        if pool is None:
            pool = self._pools[workload] = _Pool()
        return pool

    def _take_back(self, workload: WorkloadKey, table: dict[int, dict[str, None]], index: int, uid: str) -> None:
        pool, uids = self._pools[workload], table[index]
        del uids[uid]
        if not uids:
            del table[index]
            pool.give_back(index, workload)
        if not pool.held and not pool.claimed:
            del self._pools[workload]
