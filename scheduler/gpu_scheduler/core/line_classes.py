"""The lines that pods which take any line can have: what was found for each class of pods, and one event for all of it.

LAW: a line that did not fit is checked again only after a change of its node. What is remembered gives no pod a line:
the decision checks a line as that of any other pod before the pod gets it.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import replace
from functools import partial
from sys import maxsize
from typing import Final
from weakref import ReferenceType, ref

from gpu_scheduler.core.cluster_events import NO_EVENTS, ClassChanged, ClusterEvent
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import Limit
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import LineRequest
from gpu_scheduler.core.refs import PodRef

MAX_LINES: Final = 300_000
"""Of so many lines is remembered what was found: some 15 MiB. They are 37 of the longest maps."""

MAX_CLASSES: Final = 2_000
"""After a change of a node, each class for which pods wait is asked whether it has a line there: in less than 1 ms."""

MAX_EVENT_CHECKS: Final = 500
"""So many lines are checked at most after one change: in about 5 ms. Pods that wait for a line beyond them are requeued
without a check."""

Asks = Callable[[Slot], tuple[int, int] | None]
"""Returns how many devices a pod of a class asks for if it gets the line, and how many of them no pod of its namespace
holds yet. None if the line does not fit. It is valid until something changes."""


class LineClass:
    """The lines of one map for pods that are equal in all on which their fit depends, except their volumes."""

    __slots__ = (
        "_asked",
        "_busy",
        "_checked",
        "_event",
        "_freed",
        "_generation",
        "_ledger",
        "_line",
        "_new_check",
        "_newly_fits",
        "_nodes",
        "_number",
        "_open",
        "_over",
        "_plugins",
        "_reopened",
        "_room",
        "unfinished",
    )

    def __init__(
        self, number: int, line: LineRequest, new_check: Callable[[], Asks], ledger: Ledger, nodes: Nodes
    ) -> None:
        """Check nothing yet. `number` stands for the class in its event: others may have the same."""
        self._number = number
        self._line = line
        self._new_check = new_check
        self._ledger = ledger
        self._nodes = nodes
        self._event: ReferenceType[ClassChanged] | None = None
        self._newly_fits = False
        """Whether a line began to fit since the first pod waits."""
        self.unfinished = False
        """Whether the last decision ended before all lines were checked."""
        self._clear([])

    def _clear(self, indices: list[int]) -> None:
        """Forget what was found."""
        self._generation = -1
        """The number of the last change that is included. The first use includes all: most pods get the first line."""
        self._plugins = bool(self._nodes.advertising)
        self._open = indices
        """The lines that may fit, lowest first."""
        self._asked: dict[int, tuple[int, int]] = {}
        """What the lines ask for that fitted when they were checked."""
        self._checked: dict[str, list[int]] = {}
        """By the map's name for a node: the lines that were checked since it changed."""
        self._reopened: dict[int, None] = {}
        """The lines among `_open` that did not fit before their node changed."""
        self._over: dict[int, None] = {}
        """The lines that fit, and for which the namespace's limit has no room."""
        self._room = (0, 0)
        self._busy: list[int] = []
        """The lines that a pod held or claimed."""
        self._freed = -1

    @property
    def lines(self) -> int:
        """Return the number of the map's lines."""
        return len(self._line.map.indices)

    @property
    def over_limit(self) -> bool:
        """Whether there are lines that fit, and for which the namespace's limit has no room."""
        return bool(self._over)

    def feasible(self, limit: Limit, most: int = maxsize) -> Generator[Slot]:
        """Yield the free lines that fit, lowest first. The caller checks them, and closes the iterator.

        At most this number of lines is checked here. `pop_change` says that some are left.
        """
        self._update()
        room = self._make_room(limit)
        self._take_freed()
        workload, indices, asks = self._line.workload, self._ledger.indices, self._new_check()
        open_, kept, passed = self._open, list[int](), 0
        self.unfinished = False
        try:
            for index in open_:
                asked = self._asked.get(index)
                if asked is None and not most:
                    self.unfinished = True
                    return
                busy = indices.busy(workload, index)
                if asked is None and not busy:
                    most -= 1
                    asked = self._check(index, asks)
                passed += 1
                if busy:
                    # The event of a free index requeues the pods that wait for it.
                    self._busy.append(index)
                    self._reopened.pop(index, None)
                elif asked is not None and (asked[0] > room[0] or asked[1] > room[1]):
                    self._over[index] = None
                elif asked is not None:
                    kept.append(index)
                    yield self._line.map[index]
        finally:
            open_[:passed] = kept

    def wait(self) -> ClassChanged:
        """Return the event that requeues the pods that wait.

        A pod that joins them does not reset what `pop_change` compares with.
        """
        event = self.waiting
        if event is None:
            event = ClassChanged((self._line.workload, self._number))
            self._event, self._newly_fits = ref(event), False
            self._reopened.clear()
        return event

    @property
    def waiting(self) -> ClassChanged | None:
        """Return the event that requeues the pods that wait; None if no pod waits."""
        return None if self._event is None else self._event()

    def changed(self, names: set[str] | None) -> bool:
        """Whether pods may have to be requeued after a change of these nodes; None means any nodes."""
        due = self.unfinished or self._newly_fits or bool(self._reopened)
        return due or names is None or not names.isdisjoint(self._checked)

    def pop_change(self, most: int) -> tuple[bool, int]:
        """Return whether the waiting pods must be requeued, and how many lines were checked for that: at most `most`.

        True once for each `wait`.
        """
        self._update()
        before = most
        asks = self._new_check()
        while self._reopened and not self._newly_fits:
            if not most:
                self._newly_fits = True
                break
            most -= 1
            index = next(iter(self._reopened))
            if self._ledger.indices.busy(self._line.workload, index):
                del self._reopened[index]
            elif self._check(index, asks) is None:
                del self._open[bisect_left(self._open, index)]
        found = self._newly_fits or self.unfinished
        if found:
            self._event = None
        return found, before - most

    def _update(self) -> None:
        """Open the lines again whose nodes have changed."""
        generations = self._ledger.generations
        changed = generations.since(self._generation)
        if changed is None or bool(self._nodes.advertising) != self._plugins:
            # The last device plugin that ends, or the first that starts, gives a limit another meaning on all nodes.
            self._clear(list(self._line.map.indices))
            self._newly_fits = True
        elif changed:
            names = names_of(changed, self._nodes)
            reopened = [index for name in names if name in self._checked for index in self._reopen(name)]
            self._open_again(reopened)
        self._generation = generations.now

    def _reopen(self, name: str) -> Iterator[int]:
        """Forget what was found on the node. Yield the lines that did not fit, or were over the limit."""
        for index in self._checked.pop(name):
            if self._asked.pop(index, None) is None:
                self._reopened[index] = None
                yield index
            elif index in self._over:
                del self._over[index]
                yield index

    def _make_room(self, limit: Limit) -> tuple[int, int]:
        """Open the lines again that were over the limit, if it leaves more room now.

        Return how many devices one pod may have, and how many more its namespace.
        """
        room = (maxsize, maxsize)
        if limit.devices is not None:
            used = self._ledger.devices.usage.used(self._line.workload.namespace)
            # A line with devices that the namespace holds already needs no room.
            room = (limit.devices, max(limit.devices - used, 0))
        if self._over and (room[0] > self._room[0] or room[1] > self._room[1]):
            self._open_again(list(self._over))
            self._over = {}
        self._room = room
        return room

    def _take_freed(self) -> None:
        """Open the lines again that pods held or claimed, if one has become free."""
        freed = self._ledger.indices.freed(self._line.workload)
        if freed != self._freed:
            self._open_again(self._busy)
            self._busy, self._freed = [], freed

    def _open_again(self, indices: list[int]) -> None:
        if indices:
            self._open.extend(indices)
            self._open.sort()

    def _check(self, index: int, asks: Asks) -> tuple[int, int] | None:
        """Check the line and keep what was found."""
        slot = self._line.map[index]
        asked = asks(slot)
        self._checked.setdefault(slot.node, []).append(index)
        if asked is not None:
            self._asked[index] = asked
            self._newly_fits |= index in self._reopened
        self._reopened.pop(index, None)
        return asked


class LineClasses:
    """The classes for one ledger and its nodes."""

    __slots__ = (
        "_classes",
        "_dropped",
        "_generation",
        "_ledger",
        "_lines",
        "_nodes",
        "_plugins",
        "_unfinished",
        "_waiting",
    )

    def __init__(self, ledger: Ledger, nodes: Nodes) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._classes: OrderedDict[Hashable, LineClass] = OrderedDict()
        """The class that was used last comes last."""
        self._lines = 0
        self._plugins = False
        self._waiting: dict[LineClass, None] = {}
        self._dropped: set[ClusterEvent] = set()
        """The events of pods that wait, and whose class had to make room for others."""
        self._unfinished = False
        """Whether pods wait for a class whose last decision ended before all lines were checked."""
        self._generation = 0
        """The number of the last change for which `pop_events` has returned events."""

    def of(self, pod: Pod, line: LineRequest, asks_of: Callable[[Pod], Asks]) -> LineClass:
        """Return the class of the pod. `asks_of` returns what checks lines for it, and is called after each change."""
        sample = _sample(pod)
        found = self._classes.get(sample)
        if found is None:
            found = LineClass(hash(sample), line, partial(asks_of, sample), self._ledger, self._nodes)
            self._classes[sample] = found
            self._lines += found.lines
            self._drop_oldest()
        self._classes.move_to_end(sample)
        return found

    def wait(self, line_class: LineClass) -> ClassChanged:
        """Return the event that requeues a pod that can have no line. `pop_events` returns it later."""
        self._waiting[line_class] = None
        self._unfinished |= line_class.unfinished
        return line_class.wait()

    def pop_events(self) -> frozenset[ClusterEvent]:
        """Return the events of classes for which pods wait and a line begins to fit, or may fit."""
        before, self._generation = self._generation, self._ledger.generations.now
        had_plugins, self._plugins = self._plugins, bool(self._nodes.advertising)
        if not self._dropped and (not self._waiting or (before == self._generation and not self._unfinished)):
            return NO_EVENTS
        changed = self._ledger.generations.since(before)
        names = None if changed is None or had_plugins != self._plugins else names_of(changed, self._nodes)
        events, self._dropped, self._unfinished = self._dropped, set(), False
        most = MAX_EVENT_CHECKS
        for each in [each for each in self._waiting if each.changed(names)]:
            event = each.waiting
            if event is not None:
                found, checked = each.pop_change(most)
                most -= checked
                if not found:
                    continue
                events.add(event)
            del self._waiting[each]
        return frozenset(events) if events else NO_EVENTS

    def _drop_oldest(self) -> None:
        """Make room. Pods that wait for a class that is dropped are decided again."""
        while len(self._classes) > 1 and (self._lines > MAX_LINES or len(self._classes) > MAX_CLASSES):
            _, dropped = self._classes.popitem(last=False)
            self._lines -= dropped.lines
            event = dropped.waiting
            if self._waiting.pop(dropped, dropped) is None and event is not None:
                self._dropped.add(event)


def names_of(changed: list[str], nodes: Nodes) -> set[str]:
    """Return the names by which maps may call the nodes that changed."""
    found = set(changed)
    for name in changed:
        node = nodes.find(name)
        if node is not None and node.alias is not None:
            found.add(node.alias)
    return found


def _sample(pod: Pod) -> Pod:
    """Return the pod without what differs between pods of a class: its name, its ReplicaSet, its age, its volumes."""
    ref = PodRef(pod.ref.namespace, "", "")
    return replace(pod, ref=ref, created="", generate_name=None, owner=None, claims=())
