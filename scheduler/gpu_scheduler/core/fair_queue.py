"""The order of pods: the highest priority first, then namespaces in turn, then the oldest pod of a namespace.

LAW: it keeps uids and what their order needs, and no pod objects. To add, to remove and to take the first costs the
logarithm of the number of pods, amortised.
"""

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

Priority = tuple[int, int]
"""The pod's `spec.priority`, then its priority by strategy `priority`."""

SLACK: Final = 64
"""A heap may have twice as many entries as there are pods, and this many more, before outdated entries are removed."""


class FairQueue:
    """Pods in their order: the highest priority, then namespaces in turn, then the oldest pod.

    A namespace whose pod was popped goes behind the others of this priority. Entries of heaps may be outdated: only
    what `_members` says is valid.
    """

    __slots__ = ("_entries", "_levels", "_members", "_namespaces")

    def __init__(self) -> None:
        self._members: dict[str, tuple[Priority, int]] = {}
        """By uid: level and arrival."""
        self._levels: list[Priority] = []
        """A heap of the priorities, negative, of which there are pods."""
        self._namespaces: dict[Priority, OrderedDict[str, list[tuple[str, int, str]]]] = {}
        """By level and namespace: a heap of creation, arrival and uid. The first namespace is the next one."""
        self._entries = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, uid: str) -> bool:
        return uid in self._members

    def push(self, uid: str, priority: Priority, namespace: str, created: str, arrival: int) -> None:
        """Add a pod, or change its priority. Of pods with equal `created`, that of the lowest `arrival` goes first."""
        level = -priority[0], -priority[1]
        self._members[uid] = level, arrival
        if level not in self._namespaces:
            self._namespaces[level] = OrderedDict()
            heappush(self._levels, level)
        heappush(self._namespaces[level].setdefault(namespace, []), (created, arrival, uid))
        self._entries += 1
        if self._entries > 2 * len(self._members) + SLACK:
            self._remove_outdated()

    def discard(self, uid: str) -> None:
        """Remove a pod. An unknown uid is ignored."""
        self._members.pop(uid, None)

    def level(self) -> Priority | None:
        """Return the highest priority of a pod, negative, or None. Outdated entries before that pod are removed."""
        while self._levels:
            level = self._levels[0]
            namespaces = self._namespaces[level]
            while namespaces:
                namespace, pods = next(iter(namespaces.items()))
                while pods and not self._is_current(level, pods[0]):
                    heappop(pods)
                    self._entries -= 1
                if pods:
                    return level
                del namespaces[namespace]
            del self._namespaces[heappop(self._levels)]
        return None

    def pop(self) -> str | None:
        """Remove and return the first pod, or None."""
        level = self.level()
        if level is None:
            return None
        namespaces = self._namespaces[level]
        namespace, pods = next(iter(namespaces.items()))
        _, _, uid = heappop(pods)
        self._entries -= 1
        del self._members[uid]
        namespaces.move_to_end(namespace)
        return uid

    def _is_current(self, level: Priority, entry: tuple[str, int, str]) -> bool:
        _, arrival, uid = entry
        return self._members.get(uid) == (level, arrival)

    def _remove_outdated(self) -> None:
        for level, namespaces in list(self._namespaces.items()):
            for namespace, pods in list(namespaces.items()):
                namespaces[namespace] = sorted({entry for entry in pods if self._is_current(level, entry)})
                if not namespaces[namespace]:
                    del namespaces[namespace]
            if not namespaces:
                del self._namespaces[level]
        self._levels = sorted(self._namespaces)
        self._entries = sum(len(pods) for namespaces in self._namespaces.values() for pods in namespaces.values())
