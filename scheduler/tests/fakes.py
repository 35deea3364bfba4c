"""The loop's ports in memory: they remember what they were asked, and can refuse, hang or answer late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_scheduler.scheduler.ports import BindResult, Bound

if TYPE_CHECKING:
    import asyncio

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.scheduler.ports import Notice, Result


@dataclass
class FakeBinder:
    """Says Bound, unless `results` holds other answers; `hold` keeps every bind in the air until it is set."""

    results: list[BindResult | Exception] = field(default_factory=list)
    hold: asyncio.Event | None = None
    sent: list[Bind] = field(default_factory=list)
    most_at_once: int = 0
    _flying: int = 0

    async def bind(self, bind: Bind) -> BindResult:
        """See Binder."""
        self.sent.append(bind)
        self._flying += 1
        self.most_at_once = max(self.most_at_once, self._flying)
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self._flying -= 1
        result = self.results.pop(0) if self.results else Bound()
        if isinstance(result, Exception):
            raise result
        return result

    def names(self) -> list[str]:
        """Give the names of the pods that were to be bound, in order."""
        return [bind.pod.name for bind in self.sent]


@dataclass
class FakeEventRecorder:
    """Writes notices down; `full` refuses them, `unwritten` says that a withdrawn one was never written."""

    told: list[tuple[str, Notice]] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    full: bool = False
    unwritten: bool = False

    def record(self, pod: PodRef, notice: Notice) -> bool:
        """See Announcer."""
        if not self.full:
            self.told.append((pod.name, notice))
        return not self.full

    async def withdraw(self, pod: PodRef) -> bool:
        """See Announcer."""
        self.withdrawn.append(pod.name)
        return self.unwritten

    def notes(self, name: str) -> list[str]:
        """Give what was told of a pod, without the cure."""
        return [notice.note.partition(";")[0] for told, notice in self.told if told == name]


@dataclass
class FakeClaims:
    """Writes selections down, and answers with `failures` first."""

    selected: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        """See VolumeBinder."""
        self.selected.append((namespace, claim, node))
        return self.failures.pop(0) if self.failures else None


@dataclass
class FakeRecorder:
    """Counts."""

    attempts: list[Result] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    repairs: list[int] = field(default_factory=list)

    def repaired(self, entries: int) -> None:
        """See RepairMetrics."""
        self.repairs.append(entries)

    def attempted(self, result: Result, seconds: float) -> None:
        """See Recorder."""
        assert seconds >= 0
        self.attempts.append(result)

    def placed(self, seconds: float) -> None:
        """See Recorder."""
        self.waits.append(seconds)
