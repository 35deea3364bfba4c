"""The scheduling loop's ports in memory: they record every call, and can refuse, hang or answer late."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_scheduler.scheduler.ports import BindResult, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.reasons import Reason
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.scheduler.ports import AllocationOutcome, AttemptResult, Failed, Notice, NotSent


@dataclass
class Gate:
    """A fence that can be closed."""

    open: bool = True

    def may_write(self) -> bool:
        return self.open


@dataclass
class FakeBinder:
    """A Binder that returns Bound, or the next of `results`; while `hold` is not set, binds stay in flight."""

    results: list[BindResult | Exception] = field(default_factory=list)
    hold: asyncio.Event | None = None
    sent: list[Bind] = field(default_factory=list)
    most_at_once: int = 0
    _in_flight: int = 0

    async def bind(self, bind: Bind) -> BindResult:
        self.sent.append(bind)
        self._in_flight += 1
        self.most_at_once = max(self.most_at_once, self._in_flight)
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self._in_flight -= 1
        result = self.results.pop(0) if self.results else Bound()
        if isinstance(result, Exception):
            raise result
        return result

    def names(self) -> list[str]:
        return [bind.pod.name for bind in self.sent]


@dataclass
class FakeEventRecorder:
    """An EventRecorder that keeps notices; `full` refuses them, `unwritten` is the result of `withdraw`."""

    recorded: list[tuple[str, Notice]] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    full: bool = False
    unwritten: bool = False

    def record(self, pod: PodRef, notice: Notice) -> bool:
        if not self.full:
            self.recorded.append((pod.name, notice))
        return not self.full

    async def withdraw(self, pod: PodRef) -> bool:
        self.withdrawn.append(pod.name)
        return self.unwritten

    def notes(self, name: str) -> list[str]:
        """Return the notes that were recorded for a pod, without their remedies."""
        return [notice.note.partition(";")[0] for pod, notice in self.recorded if pod == name]


@dataclass
class FakeClaims:
    """A VolumeBinder that keeps selections, and returns `failures` first."""

    selected: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        self.selected.append((namespace, claim, node))
        return self.failures.pop(0) if self.failures else None


@dataclass
class FakeAllocator:
    """A ClaimAllocator that keeps its calls and returns the next of `results`; `shows` applies what it allocates.

    A release takes `seconds`.
    """

    shows: Callable[[Bind], None] = lambda _: None
    results: list[Failed | NotSent] = field(default_factory=list)
    allocated: list[Bind] = field(default_factory=list)
    released: list[tuple[str, list[str]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    without_gpus: set[str] = field(default_factory=set)

    def may_give_gpus(self, device_class: str) -> bool:
        return device_class not in self.without_gpus

    async def allocate(self, bind: Bind) -> dict[str, str] | Failed | NotSent:
        self.allocated.append(bind)
        if self.results:
            return self.results.pop(0)
        self.shows(bind)
        return self.versions

    async def release(self, pod: PodRef, claims: Sequence[AllocatedClaim]) -> str | None:
        self.released.append((pod.name, [claim.name for claim in claims]))
        await asyncio.sleep(self.seconds)
        return self.failures.pop(0) if self.failures else None


@dataclass
class FakeRecorder:
    attempts: list[AttemptResult] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    repairs: list[int] = field(default_factory=list)
    allocations: list[AllocationOutcome] = field(default_factory=list)

    def allocation(self, outcome: AllocationOutcome, seconds: float) -> None:
        assert seconds >= 0
        self.allocations.append(outcome)

    def repaired(self, entries: int) -> None:
        self.repairs.append(entries)

    def attempted(self, result: AttemptResult, seconds: float) -> None:
        assert seconds >= 0
        self.attempts.append(result)

    def waits(self, reason: Reason) -> None:
        self.reasons.append(reason)

    def placed(self, pod: Pod, bind: Bind, seconds: float) -> None:
        assert pod.ref == bind.pod
        self.waited.append(seconds)
