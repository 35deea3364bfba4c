"""The violations that the auditor reports, and the tolerances that it allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.waiting import limit


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One invariant that did not hold: its id, I1 to I11, and a sentence."""

    invariant: str
    sentence: str

    def __str__(self) -> str:
        """Return id and sentence, as a failed test shows them."""
        return f"{self.invariant}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The times (seconds) and amounts beyond which the auditor reports a violation."""

    staleness: float = 2.0
    """How old the nodes and foreign pods may be that a decision is based on."""
    liveness: float = 30.0
    """How long a pod that fits may wait after the faults, from the call of `report` on (I7)."""
    reuse: float = 2.0
    """How long a freed GPU may stay idle while a pod waits for it, in a quiet time (I9)."""
    settling: float = 5.0
    """How long the ledger may differ from a fresh list (I5)."""
    calls_a_minute: int = 60
    """Requests about one pod in any minute (I10)."""
    calls_a_second: int = 20
    """Requests of one verb and path in any second (I10)."""
    memory: float = 250.0
    """Resident memory of a process in MB (I10)."""
    files: int = 150
    """Open files and sockets of a process (I10)."""
    threads: int = 40
    """Threads of a process (I10)."""

    def here(self) -> Allowed:
        """Return a copy whose times are extended for the present load and speed of this machine."""
        return replace(
            self,
            staleness=limit(self.staleness),
            liveness=limit(self.liveness),
            reuse=limit(self.reuse),
            settling=limit(self.settling),
        )
