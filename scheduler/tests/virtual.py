"""A cluster in memory whose time passes when nothing else is left to do: an API server, its watches, and a clock."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed
from tests.core.build import bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.resource import EventHandler

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    """Where others would sleep it only says for how long."""

    slept = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.slept += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which hours take no time."""

    def __init__(self) -> None:
        """It begins at a thousand seconds."""
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Seconds that nobody waited for."""
        return 1000.0 + self._skipping.slept

    def pass_by(self, seconds: float) -> None:
        """Let everything happen that happens in this time."""
        self.run_until_complete(asyncio.sleep(seconds))


class Watch(Generic[T]):
    """Objects by key, and one watch of them: late, cut off, listed anew, or told twice."""

    def __init__(self) -> None:
        """There are no objects, and nobody watches."""
        self.stored: dict[str, T] = {}
        self.known: dict[str, T] = {}
        self.cut = False
        self.events: deque[tuple[str, T | None]] = deque()
        self._observers: tuple[EventHandler[T], ...] = ()

    def join(self, *observers: EventHandler[T]) -> None:
        """Somebody else watches, from a list."""
        self._observers, self.known = observers, {}
        self.list()

    def write(self, key: str, value: T | None) -> None:
        """Store a value, or remove what is stored; the watch will tell, if it is not cut off."""
        if value is None:
            del self.stored[key]
        else:
            self.stored[key] = value
        if not self.cut:
            self.events.append((key, value))

    def hear(self, most: int | None = None) -> None:
        """Tell of the next changes, or of all."""
        for _ in range(len(self.events) if most is None else min(most, len(self.events))):
            key, value = self.events.popleft()
            self._tell(key, value)

    def drop(self) -> None:
        """What was not told yet is lost, and so is what comes."""
        self.events.clear()
        self.cut = True

    def list(self) -> None:
        """Tell of the difference between what there is and what was told: gone first."""
        self.events.clear()
        self.cut = False
        for key in [key for key in self.known if key not in self.stored]:
            self._tell(key, None)
        for key, value in self.stored.items():
            self._tell(key, value)

    def repeat(self) -> None:
        """Tell once more all that was told."""
        for key, value in list(self.known.items()):
            self._tell(key, value)

    def _tell(self, key: str, value: T | None) -> None:
        last = self.known.pop(key, None)
        if value is not None:
            self.known[key] = value
        for observer in self._observers:
            if value is not None:
                observer.applied(value)
            elif last is not None:
                observer.forgotten(last)


@dataclass(frozen=True)
class Flight:
    """A bind on its way, and where its answer is waited for."""

    bind: Bind
    answer: asyncio.Future[BindResult]


class Api:
    """What is stored, and the binds that are on their way to it: fits ports.Binder."""

    def __init__(self, sent: Callable[[Bind], None], answered: Callable[[Bind, BindResult], None]) -> None:
        """`sent` is told of every bind as it is sent, `answered` of its answer."""
        self.pods: Watch[Pod] = Watch()
        self.nodes: Watch[Node] = Watch()
        self.flights: dict[str, Flight] = {}
        self.late: list[Bind] = []
        """Binds whose answer is given up, and which may still arrive."""
        self.prompt = False
        """Every bind arrives and is answered at once."""
        self.landed = 0
        self._sent = sent
        self._answered = answered

    async def bind(self, bind: Bind) -> BindResult:
        """See Binder."""
        self._sent(bind)
        result = self.arrive(bind) if self.prompt else await self._fly(bind)
        self._answered(bind, result)
        return result

    async def _fly(self, bind: Bind) -> BindResult:
        flight = Flight(bind, asyncio.get_running_loop().create_future())
        self.flights[bind.pod.uid] = flight
        try:
            return await flight.answer
        finally:
            del self.flights[bind.pod.uid]

    def arrive(self, bind: Bind) -> BindResult:
        """The API server takes the bind or refuses it; the answer as a binder reads it."""
        uid, place = bind.pod.uid, bind.placement
        stored = self.pods.stored.get(uid)
        if stored is None:
            return Dropped("the pod is gone, or another has its name")
        if stored.node is not None:
            ours = bound(stored, place, stored.assignment.at, stored.phase) == stored
            return Bound() if ours else Dropped("bound by somebody else")
        if stored.deleting_since is not None:
            return Dropped("the pod is being deleted")
        if stored.gated:
            return Failed("the pod is gated")
        self.landed += 1
        self.pods.write(uid, bound(stored, place, f"2026-11-21T01:00:00.{self.landed:06}Z", stored.phase))
        return Bound()
