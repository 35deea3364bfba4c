"""Where the time comes from: the machine's two clocks, or a simulation's.

LAW: a value; whoever wires a process together hands it on, and nobody below asks the machine itself.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clock that never goes back, and the one that people set."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = _now
