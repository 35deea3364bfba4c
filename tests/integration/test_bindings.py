"""What is never bound, never bound twice, and what is told when a Binding is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.asking import asker
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-scheduler"


@pytest.mark.promise("place-2")
def test_a_pod_that_is_being_deleted_is_never_bound(bench: Bench, scheduler: Command) -> None:
    """A finalizer keeps it there; when what it waited for comes, the next pod has it."""
    body = asker("0=later:0\n")
    body["metadata"]["finalizers"] = ["example.com/keep"]
    bench.make(body)
    bench.wait_message("asker-0", "NodeNotFound: ")
    bench.delete("asker-0")
    bench.node("later")
    bench.pod("next-0", "0=later:0\n1=later:1\n", "0")

    bench.wait_bound("next-0", "later")

    assert bench.read("asker-0")["metadata"]["deletionTimestamp"]
    assert bench.node_of("asker-0") == ""
    bench.kube.patch(f"{bench.pods}/asker-0", {"metadata": {"finalizers": []}})


@pytest.mark.promise("place-4")
def test_a_pod_that_is_bound_stays_where_it_is(bench: Bench, scheduler: Command) -> None:
    """Even where its map says otherwise: nothing is written on it, and what it has is held."""
    bench.node("node1")
    bench.node("node2")
    bench.make(pod("elsewhere-0", "0=node1:0\n", literal("0"), nodeName="node2"))
    bench.make(pod("next-0", "0=node2:0\n1=node2:1\n", literal("0")))

    assert f"{bench.namespace}/elsewhere-0" in bench.wait_message("next-0", "GpuHeld: ")

    assert bench.node_of("elsewhere-0") == "node2"
    assert "agentaflow.gpu/assigned-node" not in bench.read("elsewhere-0")["metadata"]["annotations"]
    assert bench.events("elsewhere-0") == []


@pytest.mark.promise("place-5")
def test_a_new_pod_of_the_same_name_never_gets_the_old_ones_place(bench: Bench, scheduler: Command) -> None:
    """Deleted and made anew between decision and Binding, with another line: what it is given is its own."""
    bench.node("node1")
    for number in range(25):
        bench.pod("train-0", "0=node1:0,1\n", "0,1")
        bench.delete("train-0")
        bench.pod("train-0", f"0=node1:{number + 2}\n", str(number + 2))

        assert bench.placed("train-0").devices == str(number + 2)

        bench.delete("train-0")


@pytest.mark.promise("env-4")
def test_literal_values_cannot_be_changed(bench: Bench, scheduler: Command) -> None:
    """The API server refuses it: a pod's environment is as it was created."""
    bench.node("node1")
    bench.make(asker())
    body = bench.wait_bound("asker-0", "node1")
    body["spec"]["containers"][0]["env"] = literal("1")

    status, answer = bench.kube.call("PUT", f"{bench.pods}/asker-0", body)

    assert status == 422, answer


@pytest.mark.promise("text-4", "hold-1")
def test_a_refused_binding_is_our_own_fault(bench: Bench, scheduler: Command) -> None:
    """Without the right to bind the pod reads `SchedulerError` and `BindFailed`; given back, it is placed by itself."""
    bench.node("node1")
    role = bench.kube.get(ROLE)
    assert role is not None
    fewer = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
    bench.kube.patch(ROLE, {"rules": fewer})
    try:
        # An API server takes a moment to notice; what is bound until then is no matter.
        bench.pod("probe-0", "0=node1:0\n", "0")
        eventually("binding is refused", lambda: _refused(bench))
        bench.make(asker("0=node1:5\n", literal("5")))
        message = bench.wait_message("asker-0", "BindFailed: ")
        assert bench.condition("asker-0")["reason"] == "SchedulerError"
        assert bench.wait_event("asker-0", "FailedScheduling")["note"] == message
    finally:
        bench.kube.patch(ROLE, {"rules": role["rules"]})

    bench.wait_bound("asker-0", "node1", seconds=20)


def _refused(bench: Bench) -> bool:
    """Try with a pod after the other until one is refused."""
    if bench.condition("probe-0").get("status") == "True":
        bench.delete("probe-0")
        bench.pod("probe-0", "0=node1:0\n", "0")
    return bench.condition("probe-0").get("reason") == "SchedulerError"
