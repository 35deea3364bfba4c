"""`explain` says why a pod waits, its remedy lets the scheduler place it, and it says why a placed pod is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.installed import TEMPLATE, Installed

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads

Item = dict[str, Any]


def explained(cli: Installed, *words: str, code: int = 0, given: str | None = None) -> Item:
    """Return the only explanation that the verb prints as JSON."""
    (item,) = json.loads(cli.run("gpu-scheduler", "explain", *words, "-o", "json", given=given, code=code))["items"]
    return dict(item)


def commands(item: Item) -> list[str]:
    """Return the commands of the remedy."""
    return [step["command"] for step in item["remedy"]["steps"]]


@pytest.mark.promise("explain-1", "explain-2", "explain-3")
def test_the_remedy_of_two_obstacles_lets_the_scheduler_place_the_pod(cli: Installed, populated: Namespace) -> None:
    """GPU 1 of node1 is held, and node1 is cordoned: both are named, and both commands together free the pod."""
    cli.run("kubectl", "cordon", "node1")

    item = explained(cli, "late-0", code=1)
    screen = cli.run("gpu-scheduler", "explain", "late-0", code=1)

    assert (item["state"], item["reason"]) == ("waiting", "NodeUnschedulable")
    (place,) = item["places"]
    assert [each["reason"] for each in place["obstacles"]] == ["NodeUnschedulable", "GpuHeld"]
    (row,) = place["devices"]
    assert (row["node"], row["device"], row["state"]) == ("node1", "1", "held")
    holder = populated.read("train-0")
    assert [(each["name"], each["since"]) for each in row["holders"]] == [
        ("train-0", holder["metadata"]["annotations"]["agentaflow.gpu/assigned-at"])
    ]
    assert commands(item) == ["kubectl uncordon node1", f"kubectl delete pod -n {populated.name} train-0"]
    assert screen.startswith(f"{populated.name}/late-0 waits: NodeUnschedulable: cannot use node node1")
    assert screen.index("HELD BY") < screen.index("SCHEDULABLE") < screen.index("Smallest remedy of line 0 on node1:")
    cli.run(*commands(item)[0].split())
    # No kubelet confirms the end of the holder, so the second command waits for ever.
    populated.delete("train-0")
    populated.wait_bound("late-0", "node1")


@pytest.mark.promise("explain-5")
def test_a_placed_pod_says_why_it_is_where_it_is(cli: Installed, populated: Namespace, workloads: Workloads) -> None:
    """By its map, or by a strategy; a GPUWorkload is asked about by its own name."""
    workloads.place("job", template=TEMPLATE, schedulingStrategy="best_fit")
    workloads.wait("job", "Scheduled")

    by_map, by_count = explained(cli, f"{populated.name}/train-0"), explained(cli, "job")

    written = populated.read("train-0")["metadata"]["annotations"]
    assert written["agentaflow.gpu/assigned-reason"] == "map: index 0"
    assert by_map["state"] == "placed"
    assert {key: by_map["placement"][key] for key in ("node", "strategy", "reason", "at", "by")} == {
        "node": "node1",
        "strategy": "map",
        "reason": "index 0",
        "at": written["agentaflow.gpu/assigned-at"],
        "by": written["agentaflow.gpu/assigned-by"],
    }
    assert (by_count["name"], by_count["placement"]["strategy"]) == ("job-0", "best_fit")
    assert "MiB free" in by_count["placement"]["reason"]
    assert "Strategy   best_fit" in cli.run("gpu-scheduler", "explain", "job")
