"""Each rejection by a kubelet delays the next bind of that workload for longer. Other pods are bound at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.decision import BY_MAP, Bind
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.scheduler.rejection_backoff import LONGEST, RejectionBackoff
from tests.messages import says
from unit_tests.core.build import pod
from unit_tests.scheduler.test_scheduling_loop import looping

if TYPE_CHECKING:
    from gpu_scheduler.core.pods.pod import Pod

WHY: Final = "UnexpectedAdmissionError"
MAP: Final = "0=node1:0\n1=node2:1\n"


def rejected(given: Pod, node: str = "node1", why: str = WHY) -> tuple[Pod, Pod]:
    """Return the bound pod, and the same pod after its kubelet rejected it."""
    bound = replace(given, node=node)
    return bound, replace(bound, phase="Failed", rejected=why)


def seconds_of_backoff(rejection_backoff: RejectionBackoff, of: Pod, now: float, node: str = "node1") -> float:
    """Return the seconds for which the pod has to wait; 0 if it may be bound now."""
    delayed = rejection_backoff.delay(of, Bind(of.ref, Placement(node, ("0",), 0), "assigned", BY_MAP, "index 0"), now)
    return 0.0 if delayed is None else delayed[1]


@pytest.mark.promise("wait-5")
def test_each_rejection_doubles_the_backoff_up_to_a_minute() -> None:
    """Each next pod is bound as soon as the back-off ends, and is rejected too."""
    rejection_backoff, now, seconds = RejectionBackoff(), 100.0, []
    for _ in range(9):
        rejection_backoff.pod_changed(*rejected(pod()), now)
        seconds.append(seconds_of_backoff(rejection_backoff, pod(), now))
        now += seconds[-1]
        assert seconds_of_backoff(rejection_backoff, pod(), now) == 0

    assert seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_replicas_that_are_rejected_together_count_once() -> None:
    """Eight replicas are rejected while the first one's back-off lasts."""
    rejection_backoff = RejectionBackoff()
    for number in range(8):
        rejection_backoff.pod_changed(*rejected(pod(f"train-{number}")), 100 + number / 10)

    assert seconds_of_backoff(rejection_backoff, pod(), 100.7) == pytest.approx(0.3)


@pytest.mark.promise("wait-5")
@pytest.mark.parametrize(
    ("other", "node"),
    [
        pytest.param(pod(), "node2", id="the same workload on another node"),
        pytest.param(pod(owner=Owner("StatefulSet", "serve")), "node1", id="another workload on that node"),
        pytest.param(pod(namespace="others"), "node1", id="a workload of that name in another namespace"),
        pytest.param(pod("alone-0", owner=None), "node1", id="a pod without a controller"),
    ],
)
def test_other_pods_have_no_backoff(other: Pod, node: str) -> None:
    """A rejection concerns this workload on this node, and nothing else."""
    rejection_backoff = RejectionBackoff()
    rejection_backoff.pod_changed(*rejected(pod()), 100)

    assert seconds_of_backoff(rejection_backoff, other, 100, node) == 0


def test_a_running_pod_ends_the_backoff() -> None:
    """The node is repaired."""
    rejection_backoff = RejectionBackoff()
    rejection_backoff.pod_changed(*rejected(pod()), 100)
    bound = replace(pod(), node="node1")
    rejection_backoff.pod_changed(bound, replace(bound, phase="Running"), 100.5)

    assert seconds_of_backoff(rejection_backoff, pod(), 100.5) == 0


def test_after_a_long_time_the_first_backoff_is_short_again() -> None:
    """A rejection of yesterday says nothing about the node today."""
    rejection_backoff = RejectionBackoff()
    for now in (100.0, 101.0, 103.0):
        rejection_backoff.pod_changed(*rejected(pod()), now)
    assert seconds_of_backoff(rejection_backoff, pod(), 103) == 4
    rejection_backoff.pod_changed(*rejected(pod()), 107 + LONGEST)

    assert seconds_of_backoff(rejection_backoff, pod(), 107 + LONGEST) == 1


def test_a_rejected_pod_that_changes_again_counts_once() -> None:
    """Its owner may label it, and each list shows it again."""
    rejection_backoff = RejectionBackoff()
    _, failed = rejected(pod())
    rejection_backoff.pod_changed(failed, failed, 100)

    assert seconds_of_backoff(rejection_backoff, pod(), 100) == 0


def test_old_rejections_are_forgotten() -> None:
    """The back-off keeps only the rejections of the last minutes."""
    rejection_backoff = RejectionBackoff()
    for number in range(1000):
        rejection_backoff.pod_changed(*rejected(pod(owner=Owner("Job", f"job{number}"))), 100 + number)

    assert len(rejection_backoff._streaks) <= LONGEST + 2


async def test_the_owner_reads_why_the_pod_waits_and_the_pod_is_bound_later() -> None:
    """No event is needed for it, only time. No pod holds the GPU meanwhile."""
    async with looping() as loop:
        first, second = pod("train-0", MAP), pod("train-0-again", MAP, labels={"apps.kubernetes.io/pod-index": "0"})
        other = pod("other-0", "0=node1:0\n", owner=Owner("Job", "other"))
        await loop.see(first)
        await loop.see(*rejected(first))
        await loop.later(0.1)
        await loop.see(second)
        await loop.later(0.1)
        assert loop.binder.names() == ["train-0"]
        (note,) = loop.event_recorder.notes("train-0-again")
        says(note, "BindFailed", "node1", "(UnexpectedAdmissionError)")
        await loop.see(other)
        assert loop.binder.names() == ["train-0", "other-0"]
        await loop.see(replace(other, node="node1", phase="Succeeded"))
        await loop.later(1)

        assert loop.binder.names() == ["train-0", "other-0", "train-0-again"]
