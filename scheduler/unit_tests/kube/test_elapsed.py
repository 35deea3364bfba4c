import inspect
import runpy
import time

import pytest

from gpu_scheduler.kube import elapsed
from gpu_scheduler.kube.elapsed import elapsed_clock, read_elapsed
from gpu_scheduler.kube.leader_election import LeaderElector
from gpu_scheduler.process.lifecycle import Clocks

# What happens, as seconds that pass on the monotonic clock, and on the boot clock.
PASSED = {
    "the machine is suspended for an hour": (1, 3601, 3601),
    "the boot clock stops": (5, 0, 5),
    "both run": (5, 5, 5),
}


@pytest.mark.parametrize(("monotonic", "boot", "seconds"), PASSED.values(), ids=PASSED)
def test_the_faster_of_both_clocks_counts(monotonic: float, boot: float, seconds: float) -> None:
    """They count from different moments, so only what has passed is compared."""
    clocks = [7.0, 100.0]
    clock = elapsed_clock(lambda: clocks[0], lambda: clocks[1])
    began = clock()

    clocks[0] += monotonic
    clocks[1] += boot

    assert clock() - began == seconds


def test_without_a_boot_clock_the_monotonic_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux has CLOCK_BOOTTIME. Our command line also runs on macOS."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    clock = runpy.run_path(str(elapsed.__file__))["read_elapsed"]
    first = clock()

    assert first <= clock()


@pytest.mark.promise("lead-2")
def test_leader_election_and_the_loop_use_this_clock() -> None:
    """The fence is leader election's own; the scheduling loop gives it its heartbeat."""
    assert inspect.signature(LeaderElector).parameters["clock"].default is read_elapsed
    assert Clocks().elapsed is read_elapsed
