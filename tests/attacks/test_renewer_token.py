"""S8: a stolen renewer token reads the CA and replaces what the webhook serves, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.names import CA_SECRET, RENEWER, SERVING_SECRET
from tests.attacks.installed_cluster import refusal
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.webhook_process import COLLECTIONS, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster
    from tests.kube_client import KubeClient
    from tests.objects import Object

SYSTEM: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
SECRETS: Final = f"{SYSTEM}/secrets"
OTHER: Final = "registry-password"
CHANGE: Final = {"data": {"tls.key": "c3B5"}}


@pytest.fixture(scope="module")
def stored(cluster: InstalledCluster) -> Iterator[None]:
    """The webhook's two Secrets, and one of somebody else."""
    for name in (CA_SECRET, SERVING_SECRET, OTHER):
        cluster.kube.create(SECRETS, {"metadata": {"name": name}, "data": {"tls.key": "a2V5"}})
    yield
    for name in (CA_SECRET, SERVING_SECRET, OTHER):
        cluster.kube.delete(f"{SECRETS}/{name}")


@pytest.fixture
def stolen(cluster: InstalledCluster, stored: None) -> KubeClient:
    """A client with the renewer's token."""
    return cluster.account(RENEWER)


RIGHTS: Final[dict[str, tuple[str, str, Object | None]]] = {
    "reads another Secret of its namespace": ("GET", f"{SECRETS}/{OTHER}", None),
    "reads a Secret of another namespace": ("GET", f"/api/v1/namespaces/default/secrets/{CA_SECRET}", None),
    "lists Secrets": ("GET", SECRETS, None),
    "watches the two Secrets": ("GET", f"{SECRETS}?watch=true&fieldSelector=metadata.name={SERVING_SECRET}", None),
    "makes a Secret": ("POST", SECRETS, {"metadata": {"name": "spy"}}),
    "changes the CA": ("PATCH", f"{SECRETS}/{CA_SECRET}", CHANGE),
    "replaces the CA": ("PUT", f"{SECRETS}/{CA_SECRET}", {"metadata": {"name": CA_SECRET}, **CHANGE}),
    "deletes the CA": ("DELETE", f"{SECRETS}/{CA_SECRET}", None),
    "deletes the serving pair": ("DELETE", f"{SECRETS}/{SERVING_SECRET}", None),
    "changes another Secret": ("PATCH", f"{SECRETS}/{OTHER}", CHANGE),
    "lets the API server trust another CA": ("PATCH", f"{COLLECTIONS['MutatingWebhookConfiguration']}/{NAME}", {}),
    "unregisters the webhook": ("DELETE", f"{COLLECTIONS['ValidatingWebhookConfiguration']}/{NAME}", None),
    "reads pods": ("GET", "/api/v1/pods", None),
    "makes a pod": ("POST", f"{SYSTEM}/pods", {"metadata": {"name": "spy"}}),
    "runs a command in a pod": ("POST", f"{SYSTEM}/pods/any/exec?command=sh", None),
    "changes its own CronJob": ("PATCH", f"/apis/batch/v1/namespaces/{SYSTEM_NAMESPACE}/cronjobs/{RENEWER}", {}),
    "asks for another account's token": (
        "POST",
        f"{SYSTEM}/serviceaccounts/gpu-scheduler/token",
        {"spec": {"audiences": []}},
    ),
    "grants itself a right": (
        "PATCH",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/roles/{RENEWER}",
        {"rules": []},
    ),
}


@pytest.mark.promise("hook-6")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    method, path, body = RIGHTS[what]
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"

    refused = refusal(stolen.call(method, path, body, content))

    assert f'User "system:serviceaccount:{SYSTEM_NAMESPACE}:{RENEWER}" cannot ' in refused


def test_a_stolen_token_reads_the_ca_and_replaces_the_pair(stolen: KubeClient) -> None:
    """That is its work. Whoever has it can answer in the webhook's place, if the network lets them."""
    assert stolen.call("GET", f"{SECRETS}/{CA_SECRET}")[0] == 200
    assert stolen.merge(f"{SECRETS}/{SERVING_SECRET}", CHANGE)[0] == 200
