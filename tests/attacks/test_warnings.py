"""The path that warns: whoever calls it, and whatever a template contains, it refuses nothing and changes nothing."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.pod_controllers import collection, controller
from tests.objects import MAP

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant

HOSTILE: Final[dict[str, dict[str, str]]] = {
    "a map of control characters": {MAP: "\x00\x1b[2J\x1b[31m\u202e\u2028"},
    "a map that no pod may have": {MAP: "0=node1:0\n" * 7_000},
    "a map of endless lines": {MAP: "0=node1:" + "0," * 30_000},
    "an index that fills the memory": {MAP: "0=node1:0\n", "agentaflow.gpu/index": "9" * 100_000},
    "thousands of nearly right keys": {f"agentaflow.gpu/{'x' * 40}{number}": "" for number in range(2_000)},
}
BODIES: Final[dict[str, tuple[bytes, int]]] = {
    "nothing": (b"", 400),
    "no JSON": (b"\xff\xfe\x00", 400),
    "JSON that is no review": (b'{"request": []}', 400),
    "nesting without an end": (b'{"request":' * 50_000, 400),
}
TOO_LONG: Final = 8 * 1024 * 1024 + 1
"""Bytes of a body that is longer than any review of an API server."""


@pytest.mark.promise("warn-3")
@pytest.mark.parametrize("annotations", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_hostile_template_is_stored_unchanged(tenant: Tenant, kind: str, annotations: dict[str, str]) -> None:
    """Its author gets few, short, printable warnings, which fit into the headers of the answer whole."""
    body = controller(kind)
    job = body["spec"]["jobTemplate"] if kind == "CronJob" else body
    job["spec"]["template"]["metadata"]["annotations"] = annotations

    warnings = tenant.kube.create_with_warnings(f"{collection(tenant.namespace.name, kind)}?dryRun=All", body)
    status, stored = tenant.call("POST", f"{collection(tenant.namespace.name, kind)}?dryRun=All", body)

    assert status == 201, stored
    job = stored["spec"]["jobTemplate"] if kind == "CronJob" else stored
    assert job["spec"]["template"]["metadata"]["annotations"] == annotations
    assert 1 <= len(warnings) <= 6
    assert all(each.isprintable() and len(each.encode()) <= 1000 for each in warnings)
    assert sum(map(len, warnings)) < 4096


@pytest.mark.promise("warn-3")
@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_a_forged_review_gets_an_answer(cluster: InstalledCluster, body: bytes, status: int) -> None:
    """Every client that reaches the port may send one. The process goes on."""
    assert _post(cluster, body)[0] == status
    assert _post(cluster, b"", announced=TOO_LONG)[0] == 413
    assert cluster.webhook.command.process.alive()


@pytest.mark.promise("warn-3")
def test_a_forged_review_of_another_object_is_allowed_in_silence(cluster: InstalledCluster) -> None:
    """A pod that `/mutate` would refuse, or a controller of another scheduler."""
    pod = objects.review(objects.pod("train-0", "nonsense"))
    foreign = objects.review(controller("Job", "train", "nonsense", None), kind={"group": "batch", "kind": "Job"})

    for body in (pod, foreign):
        status, answer = _post(cluster, json.dumps(body).encode())
        assert (status, json.loads(answer)["response"]) == (200, {"uid": "review-1", "allowed": True})


def _post(cluster: InstalledCluster, body: bytes, announced: int | None = None) -> tuple[int, str]:
    """Send a body to the webhook's own port, as a client that shows no certificate."""
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body) if announced is None else announced)}
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with closing(http.client.HTTPSConnection("127.0.0.1", cluster.webhook.port, timeout=60, context=tls)) as connection:
        connection.request("POST", "/warn", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
