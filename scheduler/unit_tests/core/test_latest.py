"""The newest hold, after which round robin continues: test_ledger_machine.py compares it with a slow search."""

from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.refs import PodRef


def holder(name: str, when: str) -> Hold:
    """Return the hold of a pod that was bound at this time."""
    return Hold(PodRef("default", name, f"uid-{name}"), "node1", ("0",), (), 0, None, None, False, when, False)


def test_nothing_is_kept_of_dropped_holds() -> None:
    """Holds are added and dropped without a read: the heap stays short."""
    latest_hold = LatestHold()
    latest_hold.put(holder("a", "2026-11-21T01:00:00Z"))
    for _ in range(1000):
        latest_hold.put(holder("b", "2026-11-21T09:00:00Z"))
        latest_hold.drop("uid-b")

    assert len(latest_hold._heap) < 50
    assert latest_hold.newest() == ("node1", "uid-a")
