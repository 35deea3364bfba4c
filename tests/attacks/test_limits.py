"""A tenant with a limit wants more: more pods, more workloads, other ways to ask, another line, another priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration import limits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.attacks.house import House, Tenant
    from tests.objects import Object

MAP: Final = "0=node1:0,1\n1=node2:0\n2=node3:0\n3=node4:0\n"
ALLOWED: Final = 2
KEEP: Final = {"agentaflow.gpu/keep-env": "true"}


@pytest.fixture
def limited(house: House, tenant: Tenant) -> Iterator[Tenant]:
    """A tenant whose pods may hold two devices, and hold them; priorities count up to 10."""
    house.allow(tenant.namespace, "keepenvs")
    limits.write(house.kube, f"{tenant.namespace}: devices={ALLOWED} priority=10")
    eventually("the limits hold", lambda: told(house, tenant), seconds=10)
    create(tenant, pod("train-0"))
    assert tenant.bench.placed("train-0").devices == "0,1"
    yield tenant
    house.kube.delete(limits.LIMITS)


def told(house: House, tenant: Tenant) -> bool:
    """Whether the scheduler goes by the limits: a pod that alone asks for more waits for that."""
    name = "probe-0"
    tenant.call("POST", tenant.pods, objects.pod(name, "0=node1:0,1,2"))
    try:
        return bool(tenant.bench.wait_message(name, "QuotaExceeded: ", seconds=2))
    except AssertionError:
        return False
    finally:
        house.kube.call("DELETE", f"{tenant.pods}/{name}?gracePeriodSeconds=0")


def pod(name: str, **more: object) -> Object:
    """A bare pod with the map."""
    return objects.pod(name, MAP, **more)


def create(tenant: Tenant, body: Object, path: str = "") -> None:
    """As the tenant; the API server takes it."""
    status, answer = tenant.call("POST", path or tenant.pods, body)
    assert status == 201, answer


def kept(name: str) -> Object:
    """A pod whose line names no device and whose container keeps two."""
    return objects.pod(name, "0=node2:", objects.literal("1,2"), annotations={**KEEP, "agentaflow.gpu/index": "0"})


def counted(name: str, **annotations: str) -> Object:
    """A pod that leaves the choice to a strategy."""
    said = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return objects.pod(name, None, annotations={"agentaflow.gpu/count": "1", **said})


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
    "by sharing with whoever will": lambda name: pod(
        name, annotations={"agentaflow.gpu/index": "3", "agentaflow.gpu/sharing": "any"}
    ),
    "by a priority": lambda name: counted(name, priority="1000000000", scheduling_strategy="priority"),
}


@pytest.mark.promise("quota-1")
@pytest.mark.parametrize("make", MORE.values(), ids=MORE)
def test_a_pod_beyond_the_limit_waits(limited: Tenant, make: Callable[[str], Object]) -> None:
    """However the tenant asks; the same pod is bound as soon as the namespace has room."""
    body = make("more-9")
    name = body["metadata"]["name"]
    create(limited, body)
    limited.bench.wait_message(name, "QuotaExceeded: ")

    limited.bench.terminate("train-0")
    limited.bench.wait_message(name, "QuotaExceeded: ")
    assert limited.bench.count_bound() == 1

    limited.bench.delete("train-0")
    eventually("it is bound", lambda: limited.bench.node_of(name), seconds=12)


@pytest.mark.promise("quota-1")
def test_a_workload_beyond_the_limit_waits(limited: Tenant) -> None:
    """Its pods are its namespace's, and its status says why it waits."""
    container = {"name": "main", "image": "registry.invalid/none"}
    spec = {
        "podTemplate": {"spec": {"containers": [container]}},
        "gpuRequirements": {"gpuCount": 1},
        "priority": 1000000000,
    }
    body = {"apiVersion": "agentaflow.io/v1", "kind": "GPUWorkload", "metadata": {"name": "more"}, "spec": spec}
    create(limited, body, limited.workloads)

    def waits() -> bool:
        status = limited.call("GET", f"{limited.workloads}/more")[1].get("status", {})
        return str(status.get("reason")) == "QuotaExceeded"

    eventually("its status says why", waits, seconds=10)
    assert limited.bench.count_bound() == 1


@pytest.mark.promise("quota-1")
def test_many_pods_at_once_get_no_more_than_the_limit(limited: Tenant) -> None:
    """The decisions are made one by one, and what is decided counts before its bind is sent."""
    limited.bench.delete("train-0")
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

    eventually("the others wait", lambda: limited.bench.count_told("QuotaExceeded") == 10, seconds=20)
    assert len(placed()) == ALLOWED


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
    """Not even read them."""
    body = None if method in {"GET", "DELETE"} else limits.written(f"{limited.namespace}: devices=100")

    assert limited.call(method, path, body, content)[0] == 403


@pytest.mark.promise("quota-8")
def test_a_config_map_of_the_tenants_own_is_no_limit(limited: Tenant) -> None:
    """Only the one in the scheduler's namespace counts."""
    path = f"/api/v1/namespaces/{limited.namespace}/configmaps"
    create(limited, limits.written(f"{limited.namespace}: devices=100"), path)
    create(limited, pod("train-1"))

    limited.bench.wait_message("train-1", "QuotaExceeded: ")


@pytest.mark.promise("quota-8")
@pytest.mark.parametrize("who", ["gpu-scheduler", "gpu-scheduler-controller"])
def test_no_account_of_ours_writes_the_limits(house: House, limited: Tenant, who: str) -> None:
    """A stolen token lifts nobody's limit."""
    body = limits.written(f"{limited.namespace}: devices=100")

    assert house.account(who).call("PATCH", limits.LIMITS, body, "application/merge-patch+json")[0] == 403


@pytest.mark.promise("quota-7")
def test_a_billion_goes_behind_who_came_first_with_the_maximum(house: House, limited: Tenant) -> None:
    """Both count as the maximum; the note says so where the greedy pod is placed."""
    for name, priority in (("modest", "10"), ("greedy", "1000000000")):
        create(limited, counted(name, priority=priority, scheduling_strategy="priority"))
        limited.bench.wait_message(name, "QuotaExceeded: ")
    limits.write(house.kube, f"{limited.namespace}: devices=1 priority=10")
    limited.bench.delete("train-0")

    eventually("the first is bound", lambda: limited.bench.node_of("modest"), seconds=12)
    limited.bench.wait_message("greedy", "QuotaExceeded: ")
    limited.bench.delete("modest")
    eventually("the other is bound", lambda: limited.bench.node_of("greedy"), seconds=12)
    note = limited.bench.wait_event("greedy", "Scheduled")["note"]
    assert "priority 1000000000 counts as 10" in note
