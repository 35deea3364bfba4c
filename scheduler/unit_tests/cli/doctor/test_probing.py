from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.cli.doctor.objects import read_own_pod
from gpu_scheduler.cli.doctor.probing import ask_admission, ask_replicas, ask_rights, our_pod
from gpu_scheduler.cli.doctor.rights import controller_account, renewer_account
from gpu_scheduler.cli.doctor.sources import read_pods
from gpu_scheduler.kube.http.client import NoResponseError
from gpu_scheduler.kube.lists import UnlistedError
from unit_tests.cli.doctor.scripted_installation import (
    BUILD,
    CLOCK,
    FORBIDDEN,
    NAMESPACE,
    PODS,
    READY,
    REVIEWS,
    own_pod,
    probed,
    proxied,
)
from unit_tests.cli.scripted_cluster import items
from unit_tests.kube.server import FakeServer, Reply, connected

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient

REPLICAS: dict[str, tuple[Reply, Reply, dict[str, object]]] = {
    "it is ready": (READY, Reply(body=BUILD), {"version": "0.1.0", "commit": "0a1b2c3"}),
    "a check fails": (
        Reply(503, "[+]caches ok\n[-]watches failed: no data about pods for 200 s\nreadyz check failed\n"),
        Reply(body=BUILD),
        {"failed": ("watches failed: no data about pods for 200 s",), "version": "0.1.0"},
    ),
    "it cannot be reached": (
        Reply(503, {"message": "error trying to reach service: dial tcp 10.0.0.1:8080"}),
        Reply(503, {"message": "error trying to reach service: dial tcp 10.0.0.1:8080"}),
        {"unreachable": "error trying to reach service: dial tcp 10.0.0.1:8080"},
    ),
    "it has no metrics": (READY, Reply(404, {"message": "not found"}), {"unreachable": "not found"}),
    "it is another program": (READY, Reply(body="up 1\n"), {"version": "", "commit": ""}),
}


async def ask_one(server: FakeServer, api: ApiClient, readyz: Reply, metrics: Reply) -> Any:
    """Ask one replica that answers like this, beside pods that are not asked."""
    server.on("GET", proxied("gpu-scheduler-0", "readyz"), readyz)
    server.on("GET", proxied("gpu-scheduler-0", "metrics"), metrics)
    others = [own_pod("a", "monitor"), own_pod("b", "scheduler", "Pending"), own_pod("c", "scheduler", app="other")]
    server.on("GET", PODS, items(own_pod("gpu-scheduler-0", "scheduler"), *others))
    return await ask_replicas(api, NAMESPACE, await read_pods(api, NAMESPACE), CLOCK)


@pytest.mark.parametrize(("readyz", "metrics", "expected"), REPLICAS.values(), ids=REPLICAS)
async def test_a_replica_is_asked_through_the_api_server(
    readyz: Reply, metrics: Reply, expected: dict[str, object]
) -> None:
    """Readiness and build, or why there is no answer. Pods of others, and those that do not run, are not asked."""
    async with connected() as (server, api):
        (replica,) = await ask_one(server, api, readyz, metrics)

    assert {name: getattr(replica, name) for name in expected} == expected
    assert server.asked("GET", proxied("gpu-scheduler-0", "readyz"))[0].query == {"verbose": ""}


async def test_a_replica_may_not_be_asked() -> None:
    """The right to pods/proxy is missing."""
    async with connected() as (server, api):
        with pytest.raises(UnlistedError, match="cannot ask pod gpu-scheduler-0") as refusal:
            await ask_one(server, api, READY, FORBIDDEN)

    assert refusal.value.forbidden


async def test_a_replica_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server waits for it for too long."""

    async def silent(*_: object, **__: object) -> None:
        raise NoResponseError("GET /readyz: TimeoutError")

    async with connected() as (_, api):
        monkeypatch.setattr(api, "call", silent)
        (replica,) = await ask_replicas(
            api, NAMESPACE, [read_own_pod(json.dumps(own_pod("gpu-scheduler-0", "scheduler")).encode())], CLOCK
        )

    assert replica.unreachable == "GET /readyz: TimeoutError"


async def test_rights_are_asked_for_as_the_account() -> None:
    """With the groups that each service account is in. Only the verbs that are denied are named."""
    async with connected() as (server, api):
        server.on("POST", REVIEWS, *(Reply(201, {"status": {"allowed": allowed}}) for allowed in (True, True, False)))
        denied = await ask_rights(api, [renewer_account(NAMESPACE)])

    (rights,) = denied.values()
    assert len(rights) == 1
    assert server.requests[0].body["spec"]["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{NAMESPACE}",
        "system:authenticated",
    ]
    attributes = [each.body["spec"]["resourceAttributes"] for each in server.requests]
    assert {"verb": "get", "resource": "secrets", "name": "gpu-scheduler-webhook-ca"}.items() <= attributes[0].items()


def test_a_right_is_written_as_people_read_it() -> None:
    """Verbs, resource, object, namespace."""
    lease_right = controller_account(NAMESPACE).rights[-1]

    assert str(lease_right) == (
        f'get, update leases.coordination.k8s.io "gpu-scheduler-controller" in namespace {NAMESPACE}'
    )
    status = controller_account(NAMESPACE).rights[1].attributes("patch")
    assert (status["resource"], status["subresource"]) == ("gpuworkloads", "status")


ANSWERS = {
    "with our variables": (probed("CUDA_VISIBLE_DEVICES"), (True, True, "")),
    "without": (probed(), (True, False, "")),
    "refused": (Reply(403, {"message": "policy says no"}), (False, False, "policy says no")),
}


@pytest.mark.parametrize(("reply", "expected"), ANSWERS.values(), ids=ANSWERS)
async def test_a_pod_is_tried(reply: Reply, expected: tuple[bool, bool, str]) -> None:
    """As a dry run."""
    async with connected() as (server, api):
        server.on("POST", PODS, reply)
        answer = await ask_admission(api, NAMESPACE, our_pod("mine", "registry.invalid/none"))

    assert (answer.accepted, answer.injected, answer.message) == expected
    assert server.requests[0].query == {"dryRun": "All"}
    assert server.requests[0].body["spec"]["schedulerName"] == "mine"
