"""A tenant tries to exceed its limit: by more pods and workloads, other requests, lines and priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration import limits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.objects import Object

MAP: Final = "0=node1:0,1\n1=node2:0\n2=node3:0\n3=node4:0\n"
ALLOWED: Final = 2
KEEP: Final = {"agentaflow.gpu/keep-env": "true"}


@pytest.fixture
def limited(cluster: InstalledCluster, new_tenant: Tenant) -> Iterator[Tenant]:
    """A tenant with a limit of two devices, which a pod holds, and of priority 10."""
    tenant = new_tenant
    cluster.allow(tenant.namespace.name, "keepenvs")
    limits.write(cluster.kube, f"{tenant.namespace.name}: devices={ALLOWED} priority=10")
    eventually("the limits hold", lambda: reported(cluster, tenant), seconds=10)
    create(tenant, pod("train-0"))
    assert tenant.namespace.placed("train-0").devices == "0,1"
    yield tenant
    cluster.kube.delete(limits.LIMITS)


def reported(cluster: InstalledCluster, tenant: Tenant) -> bool:
    """Return whether the scheduler applies the limits: a pod that asks for more waits with QuotaExceeded."""
    name = "probe-0"
    tenant.call("POST", tenant.pods, objects.pod(name, "0=node1:0,1,2"))
    try:
        return bool(tenant.namespace.wait_message(name, "QuotaExceeded: ", seconds=2))
    except AssertionError:
        return False
    finally:
        cluster.kube.call("DELETE", f"{tenant.pods}/{name}?gracePeriodSeconds=0")


def pod(name: str, **more: object) -> Object:
    """Return a pod without a controller, with MAP."""
    return objects.pod(name, MAP, **more)


def create(tenant: Tenant, body: Object, path: str = "") -> None:
    """Create an object as the tenant; AssertionError unless the API server accepts it."""
    status, answer = tenant.call("POST", path or tenant.pods, body)
    assert status == 201, answer


def kept(name: str) -> Object:
    """Return a pod whose line names no device and whose container keeps two."""
    return objects.pod(name, "0=node2:", objects.literal("1,2"), annotations={**KEEP, "agentaflow.gpu/index": "0"})


def counted(name: str, **annotations: str) -> Object:
    """Return a pod that asks for a count of devices, which a strategy chooses."""
    output = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return objects.pod(name, None, annotations={"agentaflow.gpu/count": "1", **output})


MORE: Final[dict[str, Callable[[str], Object]]] = {
    "by another line": lambda name: pod(name, annotations={"agentaflow.gpu/index": "1"}),
    "by another map": lambda name: objects.pod(name, "0=node3:1", annotations={"agentaflow.gpu/index": "0"}),
    "by another owner": lambda name: pod(name, owner=("Job", "mine"), annotations={"agentaflow.gpu/index": "2"}),
    "by the first free line": lambda name: objects.pod(
        f"{name}-x",
        "0=node3:1\n1=node3:2",
        owner=("Job", "mine"),
        labels={"training.kubeflow.org/replica-type": "worker"},
    ),
    "by what a container keeps": kept,
    "by count": counted,
    "by sharing with any pod": lambda name: pod(
        name, annotations={"agentaflow.gpu/index": "3", "agentaflow.gpu/sharing": "any"}
    ),
    "by a priority": lambda name: counted(name, priority="1000000000", scheduling_strategy="priority"),
}


@pytest.mark.promise("quota-1")
@pytest.mark.parametrize("make", MORE.values(), ids=MORE)
def test_a_pod_beyond_the_limit_waits(limited: Tenant, make: Callable[[str], Object]) -> None:
    """The pod waits whatever its request, and is bound when the namespace is below its limit."""
    body = make("more-9")
    name = body["metadata"]["name"]
    create(limited, body)
    limited.namespace.wait_message(name, "QuotaExceeded: ")

    limited.namespace.terminate("train-0")
    limited.namespace.wait_message(name, "QuotaExceeded: ")
    assert limited.namespace.count_bound() == 1

    limited.namespace.delete("train-0")
    eventually("it is bound", lambda: limited.namespace.node_of(name), seconds=12)


@pytest.mark.promise("quota-1")
def test_a_workload_beyond_the_limit_waits(limited: Tenant) -> None:
    """Its pods count for its namespace, and its status has the reason."""
    body = objects.gpu_workload("more", gpuRequirements={"gpuCount": 1}, priority=1000000000)
    create(limited, body, limited.workloads)

    def waits() -> bool:
        status = limited.call("GET", f"{limited.workloads}/more")[1].get("status", {})
        return str(status.get("reason")) == "QuotaExceeded"

    eventually("its status says why", waits, seconds=10)
    assert limited.namespace.count_bound() == 1


@pytest.mark.promise("quota-1")
def test_many_pods_at_once_get_no_more_than_the_limit(limited: Tenant) -> None:
    """The scheduler decides on one pod at a time, and an assumed placement counts before its bind is sent."""
    limited.namespace.delete("train-0")
    for number in range(12):
        create(
            limited,
            objects.pod(f"crowd-{number}", "\n".join(f"{each}=node{each % 4 + 1}:{each // 4}" for each in range(12))),
        )

    def placed() -> set[tuple[str, str]]:
        pods = limited.call("GET", limited.pods)[1]["items"]
        return {
            (each["spec"]["nodeName"], each["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"])
            for each in pods
            if each["spec"].get("nodeName")
        }

    eventually("the others wait", lambda: limited.namespace.count_waiting("QuotaExceeded") == 10, seconds=20)
    assert len(placed()) == ALLOWED


@pytest.mark.promise("together-1", "together-4")
def test_lines_that_start_together_keep_no_gpu_beyond_the_limit(limited: Tenant, tenant: Tenant) -> None:
    """The tenant asks for one GPU, and for as many as it likes to be kept. They stay free for others."""
    together = {"agentaflow.gpu/start": "together", "agentaflow.gpu/index": "1"}
    create(limited, objects.pod("greedy", "1=node2:0\n2=node2:1\n3=node3:1\n", annotations=together))
    limited.namespace.wait_message("greedy", "QuotaExceeded: ")
    limited.namespace.delete("train-0")
    limited.namespace.wait_message("greedy", "QuotaExceeded: ", parts=("3 GPUs", "3 lines"))
    for name, line in (("one-0", "0=node2:0"), ("two-0", "0=node2:1")):
        create(tenant, objects.pod(name, line))
        assert tenant.namespace.placed(name).node == "node2"
    assert not limited.namespace.node_of("greedy")


@pytest.mark.promise("quota-8")
@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", limits.LIMITS, "json"),
        ("PATCH", limits.LIMITS, "merge-patch+json"),
        ("PATCH", f"{limits.LIMITS}?fieldManager=mine&force=true", "apply-patch+yaml"),
        ("PUT", limits.LIMITS, "json"),
        ("DELETE", limits.LIMITS, "json"),
        ("POST", limits.CONFIG_MAPS, "json"),
    ],
)
def test_a_tenant_cannot_touch_the_limits(limited: Tenant, method: str, path: str, content: str) -> None:
    """The tenant can neither read nor write them."""
    body = None if method in {"GET", "DELETE"} else limits.written(f"{limited.namespace.name}: devices=100")

    assert limited.call(method, path, body, content)[0] == 403


@pytest.mark.promise("quota-8")
def test_a_config_map_of_the_tenants_own_is_no_limit(limited: Tenant) -> None:
    """Only the ConfigMap in the scheduler's namespace counts."""
    path = f"/api/v1/namespaces/{limited.namespace.name}/configmaps"
    create(limited, limits.written(f"{limited.namespace.name}: devices=100"), path)
    create(limited, pod("train-1"))

    limited.namespace.wait_message("train-1", "QuotaExceeded: ")


@pytest.mark.promise("quota-7")
def test_a_priority_above_the_maximum_counts_as_the_maximum(cluster: InstalledCluster, limited: Tenant) -> None:
    """Both pods count with the maximum, so the older one is first. The event of the other reports its priority."""
    for name, priority in (("modest", "10"), ("greedy", "1000000000")):
        create(limited, counted(name, priority=priority, scheduling_strategy="priority"))
        limited.namespace.wait_message(name, "QuotaExceeded: ")
    limits.write(cluster.kube, f"{limited.namespace.name}: devices=1 priority=10")
    limited.namespace.delete("train-0")

    eventually("the first is bound", lambda: limited.namespace.node_of("modest"), seconds=12)
    limited.namespace.wait_message("greedy", "QuotaExceeded: ")
    limited.namespace.delete("modest")
    eventually("the other is bound", lambda: limited.namespace.node_of("greedy"), seconds=12)
    note = limited.namespace.wait_event("greedy", "Scheduled")["note"]
    assert "priority 1000000000 counts as 10" in note
