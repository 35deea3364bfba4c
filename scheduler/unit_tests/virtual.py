"""A cluster in memory with virtual time: an API server, its watches, and an event loop that never sleeps."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed
from unit_tests.core.build import bound

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.resource import EventHandler

T = TypeVar("T")


QUIET: Final = 0.005
"""Seconds without a byte after which none is under way: both ends of each connection are in this process."""


class _Skipping(selectors.DefaultSelector):
    """A selector that adds up the timeouts in place of sleeping.

    While bytes arrive or a thread works, no time passes. So no timeout ends work, however slow the machine is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or (timeout > 0 and self.threads):
            return super().select()
        # The loop's own pair of sockets is always there.
        ready = super().select(QUIET if timeout > 0 and len(self.get_map()) > 1 else 0)
        if not ready:
            self.slept += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time: a sleep of hours takes no time, and ends when all other tasks wait.

    It knows nothing of other processes, nor of threads that it did not start: a test that waits for one is marked
    clock("real").
    """

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return 1000.0 + self._skipping.slept

    def block(self, seconds: float) -> None:
        """Let time pass in which no task runs, as in a process that is stopped or busy."""
        self._skipping.slept += seconds

    def run_in_executor(  # type: ignore[override] # the types of the arguments do not matter here
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._skipping.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._skipping.threads -= 1

    def pass_by(self, seconds: float) -> None:
        """Run the loop for so many virtual seconds."""
        self.run_until_complete(asyncio.sleep(seconds))


def virtual_loop() -> VirtualLoop:
    """Return the loop of a test that is not marked clock("real")."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def settle() -> None:
    """Run every task until it waits for time, or for something that the test decides."""
    await asyncio.sleep(1e-6)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a VirtualLoop of its own: for one of many examples of a test."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


class Watch(Generic[T]):
    """Objects by key, and one watch of them that can be late, be cut off, list again, or repeat its events."""

    def __init__(self) -> None:
        self.stored: dict[str, T] = {}
        self.known: dict[str, T] = {}
        self.cut = False
        self.events: deque[tuple[str, T | None]] = deque()
        self._handlers: tuple[EventHandler[T], ...] = ()

    def join(self, *handlers: EventHandler[T]) -> None:
        """Replace the event handlers; the new ones get a list first."""
        self._handlers, self.known = handlers, {}
        self.list()

    def write(self, key: str, value: T | None) -> None:
        """Store a value, or remove it where it is None; unless the watch is cut off, it gets an event."""
        if value is None:
            del self.stored[key]
        else:
            self.stored[key] = value
        if not self.cut:
            self.events.append((key, value))

    def deliver(self, most: int | None = None) -> None:
        for _ in range(len(self.events) if most is None else min(most, len(self.events))):
            key, value = self.events.popleft()
            self._notify(key, value)

    def drop(self) -> None:
        """Cut the watch off: its undelivered events are lost, and so are all later ones until it lists."""
        self.events.clear()
        self.cut = True

    def list(self) -> None:
        """Deliver the difference between the stored objects and the known ones; those that are gone come first."""
        self.events.clear()
        self.cut = False
        for key in [key for key in self.known if key not in self.stored]:
            self._notify(key, None)
        for key, value in self.stored.items():
            self._notify(key, value)

    def repeat(self) -> None:
        """Deliver all known objects once more."""
        for key, value in list(self.known.items()):
            self._notify(key, value)

    def _notify(self, key: str, value: T | None) -> None:
        last = self.known.pop(key, None)
        if value is not None:
            self.known[key] = value
        for handler in self._handlers:
            if value is not None:
                handler.applied(value)
            elif last is not None:
                handler.forgotten(last)


@dataclass(frozen=True)
class PendingBind:
    """A bind in flight, and the future that gets its answer."""

    bind: Bind
    answer: asyncio.Future[BindResult]


class Api:
    """An API server: its stored objects, and the binds in flight to it. It is a ports.Binder."""

    def __init__(self, sent: Callable[[Bind], None], answered: Callable[[Bind, BindResult], None]) -> None:
        """`sent` is called with every bind when it is sent, `answered` with the bind and its result."""
        self.pods: Watch[Pod] = Watch()
        self.nodes: Watch[Node] = Watch()
        self.pending_binds: dict[str, PendingBind] = {}
        self.late: list[Bind] = []
        """Binds that the scheduler has given up and that the API server may still handle."""
        self.prompt = False
        """Whether every bind is handled and answered at once."""
        self.bound_pods = 0
        self._sent = sent
        self._answered = answered

    async def bind(self, bind: Bind) -> BindResult:
        """Handle the bind at once, or wait until a test answers it."""
        self._sent(bind)
        result = self.handle(bind) if self.prompt else await self._wait_for_answer(bind)
        self._answered(bind, result)
        return result

    async def _wait_for_answer(self, bind: Bind) -> BindResult:
        pending = PendingBind(bind, asyncio.get_running_loop().create_future())
        self.pending_binds[bind.pod.uid] = pending
        try:
            return await pending.answer
        finally:
            del self.pending_binds[bind.pod.uid]

    def handle(self, bind: Bind) -> BindResult:
        """Bind the pod or refuse, as the API server does; return the result as a binder reads it."""
        uid, placement = bind.pod.uid, bind.placement
        stored = self.pods.stored.get(uid)
        if stored is None:
            return Dropped("the pod is gone, or another has its name")
        if stored.node is not None:
            ours = bound(stored, placement, stored.assignment.at, stored.phase) == stored
            return Bound() if ours else Dropped("bound by somebody else")
        if stored.deleting_since is not None:
            return Dropped("the pod is being deleted")
        if stored.gated:
            return Failed("the pod is gated")
        self.bound_pods += 1
        self.pods.write(uid, bound(stored, placement, f"2026-11-21T01:00:00.{self.bound_pods:06}Z", stored.phase))
        return Bound()
