"""What a kubelet rejects is bound ever more slowly; what has nothing to do with it is bound at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.scheduler.rejection_backoff import LONGEST, RejectionBackoff
from tests.core.build import pod
from tests.scheduler.test_scheduling_loop import looping

if TYPE_CHECKING:
    from gpu_scheduler.core.pods.pod import Pod

WHY: Final = "UnexpectedAdmissionError"
MAP: Final = "0=node1:0\n1=node2:1\n"


def rejected(given: Pod, node: str = "node1", why: str = WHY) -> tuple[Pod, Pod]:
    """The pod as it was bound, and as its kubelet left it."""
    bound = replace(given, node=node)
    return bound, replace(bound, phase="Failed", rejected=why)


def rest(damping: RejectionBackoff, of: Pod, now: float, node: str = "node1") -> float:
    """Seconds for which the pod has to wait; 0 where it may be bound."""
    damped = damping.delay(of, Bind(of.ref, Placement(node, ("0",), 0), "assigned"), now)
    return 0.0 if damped is None else damped[1]


def test_each_rejection_doubles_the_rest_up_to_a_minute() -> None:
    """Each next pod is tried as soon as it may be, and rejected."""
    damping, now, rests = RejectionBackoff(), 100.0, []
    for _ in range(9):
        damping.pod_changed(*rejected(pod()), now)
        rests.append(rest(damping, pod(), now))
        now += rests[-1]
        assert rest(damping, pod(), now) == 0

    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_replicas_that_are_rejected_together_count_once() -> None:
    """Eight of them, while the first one's rest lasts."""
    damping = RejectionBackoff()
    for number in range(8):
        damping.pod_changed(*rejected(pod(f"train-{number}")), 100 + number / 10)

    assert rest(damping, pod(), 100.7) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("other", "node"),
    [
        pytest.param(pod(), "node2", id="the same workload on another node"),
        pytest.param(pod(owner=Owner("StatefulSet", "serve")), "node1", id="another workload on that node"),
        pytest.param(pod(namespace="others"), "node1", id="one of that name in another namespace"),
        pytest.param(pod("alone-0", owner=None), "node1", id="a pod without a controller"),
    ],
)
def test_who_has_nothing_to_do_with_it_does_not_rest(other: Pod, node: str) -> None:
    """A rejection says something of this workload on this node, and of nothing else."""
    damping = RejectionBackoff()
    damping.pod_changed(*rejected(pod()), 100)

    assert rest(damping, other, 100, node) == 0


def test_a_pod_that_runs_ends_the_matter() -> None:
    """What was wrong with the node is mended."""
    damping = RejectionBackoff()
    damping.pod_changed(*rejected(pod()), 100)
    bound = replace(pod(), node="node1")
    damping.pod_changed(bound, replace(bound, phase="Running"), 100.5)

    assert rest(damping, pod(), 100.5) == 0


def test_after_long_the_first_rest_is_short_again() -> None:
    """A rejection of yesterday says nothing of today."""
    damping = RejectionBackoff()
    for now in (100.0, 101.0, 103.0):
        damping.pod_changed(*rejected(pod()), now)
    assert rest(damping, pod(), 103) == 4
    damping.pod_changed(*rejected(pod()), 107 + LONGEST)

    assert rest(damping, pod(), 107 + LONGEST) == 1


def test_a_rejected_pod_that_changes_again_counts_once() -> None:
    """Its owner may label it, and each list shows it again."""
    damping = RejectionBackoff()
    _, failed = rejected(pod())
    damping.pod_changed(failed, failed, 100)

    assert rest(damping, pod(), 100) == 0


def test_what_is_long_over_is_forgotten() -> None:
    """There is never more than what was rejected in the last minutes."""
    damping = RejectionBackoff()
    for number in range(1000):
        damping.pod_changed(*rejected(pod(owner=Owner("Job", f"job{number}"))), 100 + number)

    assert len(damping._streaks) <= LONGEST + 2


async def test_the_owner_reads_why_nothing_happens_and_the_pod_is_bound_by_itself() -> None:
    """Nothing has to happen for it but time, and the GPU is nobody's meanwhile."""
    async with looping() as loop:
        first, second = pod("train-0", MAP), pod("train-0-again", MAP, labels={"apps.kubernetes.io/pod-index": "0"})
        other = pod("other-0", "0=node1:0\n", owner=Owner("Job", "other"))
        loop.see(first)
        await loop.settle()
        loop.see(*rejected(first))
        await loop.later(0.1)
        loop.see(second)
        await loop.later(0.1)
        assert loop.binder.names() == ["train-0"]
        told = "cannot bind to node1 yet: its kubelet rejected the last pod of this workload (UnexpectedAdmissionError)"
        assert loop.event_recorder.notes("train-0-again") == [f"BindFailed: {told}"]
        loop.see(other)
        await loop.settle()
        assert loop.binder.names() == ["train-0", "other-0"]
        loop.see(replace(other, node="node1", phase="Succeeded"))
        await loop.later(1)

        assert loop.binder.names() == ["train-0", "other-0", "train-0-again"]
