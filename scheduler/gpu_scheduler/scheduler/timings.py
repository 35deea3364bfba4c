"""The intervals and back-offs of the scheduling loop.

LAW: a value; it is made where the environment is read.
"""

from gpu_scheduler.core.immutable import immutable


@immutable
class Timings:
    """The loop's times, in seconds."""

    interval: float = 5.0
    """The longest sleep of the loop before it checks again what is due."""
    audit: float = 300.0
    """How often the ledger is compared with a new one."""
    backoff_first: float = 1.0
    backoff_longest: float = 10.0
    resync: float = 300.0
    """The longest time that a pod stays unschedulable before it is tried again."""
