"""Limits of a namespace: how many devices its pods hold, and their highest priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.limits import counted, limit, train
from tests.integration.namespace import Namespace
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command


@pytest.mark.promise("quota-1", "quota-2", "quota-3")
def test_pods_beyond_the_limit_wait(limited: Namespace, scheduler: Command) -> None:
    """The pod waits with condition and event, and gets a released device. Other namespaces have their own limit."""
    limit(limited, scheduler, "devices=3", "*: devices=1")
    train(limited, 0, 1)
    assert [limited.placed(f"train-{index}").devices for index in (0, 1)] == ["0,1", "0"]

    train(limited, 2)
    message = limited.wait_message("train-2", "QuotaExceeded: ")
    assert f": namespace {limited.name} may hold 3, and its pods hold 3; " in message
    assert limited.wait_event("train-2", "FailedScheduling")["note"] == message
    other = Namespace(limited.kube, f"{limited.name}-other")
    other.make(objects.pod("other-0", "0=node2:2", objects.literal("2")))
    other.make(objects.pod("other-1", "1=node2:3", objects.literal("3")))
    assert other.placed("other-0").devices == "2"
    other.wait_message("other-1", "QuotaExceeded: ")

    limited.terminate("train-1")
    limited.wait_message("train-2", "QuotaExceeded: ")
    limited.delete("train-1")
    assert limited.placed("train-2").devices == "1"
    # The namespace holds this device already, so it is not counted again.
    train(limited, 3)
    assert limited.placed("train-3").devices == "1"
    other.empty()


@pytest.mark.promise("quota-1")
def test_a_pod_that_alone_asks_for_more_gets_the_remedy(limited: Namespace, scheduler: Command) -> None:
    """The message has both numbers. The pod is bound after the limit is raised, by that alone."""
    limit(limited, scheduler, "devices=1")
    train(limited, 0)
    limited.wait_message("train-0", "QuotaExceeded: ", parts=("2 GPUs", "may hold 1;"))

    limit(limited, scheduler, "devices=2")
    eventually("it is bound", lambda: limited.node_of("train-0"))


@pytest.mark.promise("quota-7")
def test_a_priority_beyond_the_limit_counts_as_the_maximum(limited: Namespace, scheduler: Command) -> None:
    """A pod with a billion is placed after an older pod with the maximum. Its Scheduled event names the maximum."""
    for name in ("node1", "node2"):
        limited.cordon(name, cordoned=True)
    limit(limited, scheduler, "priority=10")
    counted(limited, "modest", priority="10", scheduling_strategy="priority")
    limited.wait_message("modest", "NodeUnschedulable: ")
    counted(limited, "greedy", priority="1000000000", scheduling_strategy="priority")
    limited.wait_message("greedy", "NodeUnschedulable: ")
    limit(limited, scheduler, "priority=10 devices=1")
    limited.cordon("node1", cordoned=False)

    limited.wait_bound("modest", "node1")
    limited.wait_message("greedy", "QuotaExceeded: ")
    limited.delete("modest")
    limited.wait_bound("greedy", "node1")
    note = limited.wait_event("greedy", "Scheduled")["note"]
    assert f"priority 1000000000 counts as 10, the maximum of namespace {limited.name}" in note
