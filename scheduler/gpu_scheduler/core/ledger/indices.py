"""Which pod holds which line of a map, and which line is free next.

LAW: the next free index costs constant amortised time, even if the map is long and many pods have come and gone. The
search passes each line once. A line that is freed later comes from a heap.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gpu_scheduler.core.pods.placement_map import PlacementMap
from gpu_scheduler.core.refs import WorkloadKey

_Table = dict[int, str | dict[str, None]]
"""By index: the uid of the pod that has it. Only if several pods have it, a dictionary of uids: a dictionary for each
index would take more memory than the pod."""


@dataclass(slots=True)
class _Pool:
    """The lines of one workload's map that pods hold or have reserved, and the state of the search for free lines."""

    held: _Table = field(default_factory=dict)
    reserved: _Table = field(default_factory=dict)
    passed: int = 0
    """How many of the map's lines the search has passed, in order of index."""
    mark: int = -1
    """The index of the last line that the search has passed."""
    returned: list[int] = field(default_factory=list)
    """Heap of free indices that the search has passed. Some may be busy again."""
    freed: int = 0
    """The number of the release that freed an index of the workload last."""
    queued: set[int] = field(default_factory=set)
    """The indices in `returned`, and those that a running `free` puts back when it ends."""

    def busy(self, index: int) -> bool:
        return index in self.held or index in self.reserved

    def return_index(self, index: int) -> None:
        if index <= self.mark and not self.busy(index) and index not in self.queued:
            self.queued.add(index)
            heappush(self.returned, index)

    def free(self, placement_map: PlacementMap) -> Generator[int]:
        """Yield free indices, lowest first. The caller may stop at any time and must close the generator."""
        seen: list[int] = []
        try:
            while self.returned:
                index = heappop(self.returned)
                if self.busy(index) or placement_map.get(index) is None:
                    # It is pushed again when it is freed.
                    self.queued.discard(index)
                    continue
                seen.append(index)
                yield index
            indices = placement_map.indices
            while self.passed < len(indices):
                index = self.mark = indices[self.passed]
                self.passed += 1
                if not self.busy(index):
                    # From now on the heap has this index. If the caller cannot use it, no later search passes it again.
                    self.queued.add(index)
                    seen.append(index)
                    yield index
        finally:
            for index in seen:
                heappush(self.returned, index)


class Indices:
    """Held and reserved indices of all workloads. A workload that has neither is forgotten."""

    __slots__ = ("_pools", "_releases")

    def __init__(self) -> None:
        self._pools: dict[WorkloadKey, _Pool] = {}
        self._releases = 0
        """How many times an index of any workload was released or unreserved."""

    def hold(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """Record that the pod holds the index."""
        _note(self._pool(workload).held, index, uid)

    def release(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """Record that the pod no longer holds the index."""
        self._take_back(workload, self._pools[workload].held, index, uid)

    def reserve(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """Record that a pending pod can use only this index. Pods that can use any index do not get it."""
        _note(self._pool(workload).reserved, index, uid)

    def unreserve(self, workload: WorkloadKey, index: int, uid: str) -> None:
        """Record that the pod has the index, or is no longer pending."""
        self._take_back(workload, self._pools[workload].reserved, index, uid)

    def holders(self, workload: WorkloadKey, index: int) -> tuple[str, ...]:
        """Return the uids of the pods that hold the index.

        There are several only if another program bound one of them.
        """
        pool = self._pools.get(workload)
        return () if pool is None else _uids(pool.held.get(index, {}))

    def busy(self, workload: WorkloadKey, index: int) -> bool:
        """Whether a pod holds the index or has it reserved."""
        pool = self._pools.get(workload)
        return pool is not None and pool.busy(index)

    def freed(self, workload: WorkloadKey) -> int:
        """Return a number that changes when an index of the workload becomes free."""
        pool = self._pools.get(workload)
        return -1 if pool is None else pool.freed

    def free(self, workload: WorkloadKey, placement_map: PlacementMap) -> Generator[int]:
        """Yield the indices of the workload's map that no pod holds or has reserved, lowest first."""
        pool = self._pools.get(workload)
        if pool is None:
            return (index for index in placement_map.indices)
        return pool.free(placement_map)

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        tables = [
            (word, workload, _copied(table))
            for workload, pool in self._pools.items()
            for word, table in (("held", pool.held), ("reserved", pool.reserved))
        ]
        return (
            ((word, workload, index), frozenset(_uids(uids)))
            for word, workload, table in tables
            for index, uids in table.items()
        )

    def _pool(self, workload: WorkloadKey) -> _Pool:
        pool = self._pools.get(workload)
        if pool is None:
            pool = self._pools[workload] = _Pool(freed=self._releases)
        return pool

    def _take_back(self, workload: WorkloadKey, table: _Table, index: int, uid: str) -> None:
        pool, uids = self._pools[workload], table[index]
        self._releases += 1
        pool.freed = self._releases
        if isinstance(uids, dict):
            del uids[uid]
        if isinstance(uids, str) or not uids:
            del table[index]
            pool.return_index(index)
        if not pool.held and not pool.reserved:
            del self._pools[workload]


def _note(table: _Table, index: int, uid: str) -> None:
    uids = table.setdefault(index, uid)
    if isinstance(uids, dict):
        uids[uid] = None
    elif uids != uid:
        table[index] = {uids: None, uid: None}


def _copied(table: _Table) -> _Table:
    return {index: uids if isinstance(uids, str) else {**uids} for index, uids in table.items()}


def _uids(uids: str | dict[str, None]) -> tuple[str, ...]:
    return (uids,) if isinstance(uids, str) else tuple(uids)
