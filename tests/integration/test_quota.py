"""What an operator allows each namespace: how many devices its pods hold, and up to which priority they count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.bench import Bench
from tests.integration.limits import counted, limit, train
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command


@pytest.mark.promise("quota-1", "quota-2", "quota-3")
def test_devices_beyond_the_limit_wait(limited: Bench, scheduler: Command) -> None:
    """The pod says so in condition and event, other namespaces go on, and a device that is given back goes to it."""
    limit(limited, scheduler, "devices=3", "*: devices=1")
    train(limited, 0, 1)
    assert [limited.placed(f"train-{index}").devices for index in (0, 1)] == ["0,1", "0"]

    train(limited, 2)
    message = limited.wait_message("train-2", "QuotaExceeded: ")
    assert f"its pods hold 3, and namespace {limited.namespace} may hold 3; " in message
    assert limited.wait_event("train-2", "FailedScheduling")["note"] == message
    other = Bench(limited.kube, f"{limited.namespace}-other")
    other.make(objects.pod("other-0", "0=node2:2", objects.literal("2")))
    other.make(objects.pod("other-1", "1=node2:3", objects.literal("3")))
    assert other.placed("other-0").devices == "2"
    other.wait_message("other-1", "QuotaExceeded: ")

    limited.terminate("train-1")
    limited.wait_message("train-2", "QuotaExceeded: ")
    limited.delete("train-1")
    assert limited.placed("train-2").devices == "1"
    # It is the same device, so it costs its namespace nothing.
    train(limited, 3)
    assert limited.placed("train-3").devices == "1"
    other.empty()


@pytest.mark.promise("quota-1")
def test_a_pod_that_alone_asks_for_more_is_told_the_cure(limited: Bench, scheduler: Command) -> None:
    """No waiting helps; a raised line does, within two seconds."""
    limit(limited, scheduler, "devices=1")
    train(limited, 0)
    message = limited.wait_message("train-0", "QuotaExceeded: cannot give 2 GPUs to one pod: ")
    assert "ask for fewer in the pod's template and make the pod anew" in message

    limit(limited, scheduler, "devices=2")
    eventually("it is bound", lambda: limited.node_of("train-0"), seconds=2)


@pytest.mark.promise("quota-7")
def test_a_priority_beyond_the_limit_counts_as_the_maximum(limited: Bench, scheduler: Command) -> None:
    """Who asks for a billion goes behind who asked for the maximum before; it is said where it is placed."""
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
    assert f"priority 1000000000 counts as 10, the maximum of namespace {limited.namespace}" in note
