"""What the auditor finds, and how much it lets pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.waiting import limit


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One invariant that did not hold: its id, I1 to I11, and a sentence."""

    invariant: str
    sentence: str

    def __str__(self) -> str:
        """As a failed test shows it."""
        return f"{self.invariant}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Times in seconds and amounts beyond which something is a violation."""

    staleness: float = 2.0
    """So long may what a decision went by be out of date: nodes, and pods of others."""
    liveness: float = 30.0
    """So long may a pod wait that fits, once the faults are over: from the call of `report` on (I7)."""
    reuse: float = 2.0
    """So long may a freed GPU stay idle that somebody waits for, while it is calm (I9)."""
    settling: float = 5.0
    """So long may the ledger differ from a fresh list (I5)."""
    calls_a_minute: int = 60
    """Requests about one pod in any minute (I10)."""
    calls_a_second: int = 20
    """Requests of one verb and path in any second (I10)."""
    memory: float = 250.0
    """MB resident (I10)."""
    files: int = 150
    """Open files and sockets (I10)."""
    threads: int = 40
    """Threads (I10)."""

    def here(self) -> Allowed:
        """Give as much more time as this machine needs."""
        return replace(
            self,
            staleness=limit(self.staleness),
            liveness=limit(self.liveness),
            reuse=limit(self.reuse),
            settling=limit(self.settling),
        )
