"""The times by which the loop lives.

LAW: a value; who reads the environment makes it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """The loop's times, in seconds."""

    interval: float = 5.0
    """The longest sleep between two looks at what is due."""
    audit: float = 300.0
    """How often the ledger is held against one made anew."""
    backoff_first: float = 1.0
    backoff_longest: float = 10.0
    resync: float = 300.0
    """How long a pod waits at most without being looked at."""
