"""Pods that are never bound or never bound again, and the message about a refused Binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.feasibility_case import asker
from tests.objects import literal
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-scheduler"


@pytest.mark.promise("place-2")
def test_a_pod_that_is_being_deleted_is_never_bound(namespace: Namespace, scheduler: Command) -> None:
    """A finalizer keeps the deleted pod. When the node that it waited for is created, the next pod gets the device."""
    body = asker("0=later:0\n")
    body["metadata"]["finalizers"] = ["example.com/keep"]
    namespace.make(body)
    namespace.wait_message("asker-0", "NodeNotFound: ")
    namespace.delete("asker-0")
    namespace.node("later")
    namespace.pod("next-0", "0=later:0\n1=later:1\n", "0")

    namespace.wait_bound("next-0", "later")

    assert namespace.read("asker-0")["metadata"]["deletionTimestamp"]
    assert namespace.node_of("asker-0") == ""
    namespace.kube.patch(f"{namespace.pods}/asker-0", {"metadata": {"finalizers": []}})


@pytest.mark.promise("place-5")
def test_a_new_pod_of_the_same_name_never_gets_the_old_pods_placement(namespace: Namespace, scheduler: Command) -> None:
    """The pod is deleted and created again with another line between decision and Binding. It gets its own line."""
    namespace.node("node1")
    for number in range(25):
        namespace.pod("train-0", "0=node1:0,1\n", "0,1")
        namespace.delete("train-0")
        namespace.pod("train-0", f"0=node1:{number + 2}\n", str(number + 2))

        assert namespace.placed("train-0").devices == str(number + 2)

        namespace.delete("train-0")


@pytest.mark.promise("text-4", "hold-1")
def test_a_refused_binding_is_reported_as_scheduler_error(namespace: Namespace, scheduler: Command) -> None:
    """Without the right to bind, the condition has SchedulerError and BindFailed. With the right the pod is bound."""
    namespace.node("node1")
    role = namespace.kube.get(ROLE)
    assert role is not None
    fewer = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
    namespace.kube.patch(ROLE, {"rules": fewer})
    try:
        # The API server applies the new role after a moment. Pods may still be bound until then.
        namespace.pod("probe-0", "0=node1:0\n", "0")
        eventually("binding is refused", lambda: _refused(namespace))
        namespace.make(asker("0=node1:5\n", literal("5")))
        message = namespace.wait_message("asker-0", "BindFailed: ")
        assert namespace.condition("asker-0")["reason"] == "SchedulerError"
        assert namespace.wait_event("asker-0", "FailedScheduling")["note"] == message
    finally:
        namespace.kube.patch(ROLE, {"rules": role["rules"]})

    namespace.wait_bound("asker-0", "node1", seconds=20)


def _refused(namespace: Namespace) -> bool:
    """Return whether the bind of the pod `probe-0` was refused. Replace the pod if it was bound."""
    if namespace.condition("probe-0").get("status") == "True":
        namespace.delete("probe-0")
        namespace.pod("probe-0", "0=node1:0\n", "0")
    return namespace.condition("probe-0").get("reason") == "SchedulerError"
