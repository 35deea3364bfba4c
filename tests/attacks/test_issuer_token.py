"""A stolen token of the issuer, which only manifests leave in a cluster: what it can do, and what not."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from gpu_scheduler.names import ISSUER, SERVING_SECRET
from tests.attacks.installed_cluster import lacks, refusal
from tests.attacks.serving_secrets import NEITHERS, SECRETS
from tests.integration.accounts import RBAC, collections
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.role_manifests import rendered, values_of
from tests.integration.webhook_process import COLLECTIONS as REGISTRATIONS
from tests.integration.webhook_process import NAME
from tests.messages import denial
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Request
    from tests.kube_client import KubeClient
    from tests.objects import Object

PATHS: Final = collections(SYSTEM_NAMESPACE) | {
    kind: f"/apis/admissionregistration.k8s.io/v1/{kind.lower()[:-1]}{ending}"
    for kind, ending in (("ValidatingAdmissionPolicy", "ies"), ("ValidatingAdmissionPolicyBinding", "gs"))
}
MUTATING: Final = REGISTRATIONS["MutatingWebhookConfiguration"]


@pytest.fixture(scope="module")
def stolen(cluster: InstalledCluster, secrets: None) -> Iterator[KubeClient]:
    """A client with the issuer's token."""
    made = []
    objects = rendered("certificates", "issuing/job", values_of("certificates"))
    for body in (one for one in objects if one["kind"] in PATHS):
        cluster.kube.create(PATHS[body["kind"]], body)
        made.append(f"{PATHS[body['kind']]}/{body['metadata']['name']}")
    client = cluster.account(ISSUER)
    eventually("its rights count", lambda: client.call("GET", f"{MUTATING}/{NAME}")[0] == 200)
    yield client
    for path in made:
        cluster.kube.delete(path)


RIGHTS: Final[dict[str, Request]] = {
    **NEITHERS,
    "makes a Secret in another namespace": (
        "POST",
        "/api/v1/namespaces/default/secrets",
        {"metadata": {"name": "spy"}},
    ),
    "registers a webhook of its own": ("POST", MUTATING, {"metadata": {"name": "spy"}, "webhooks": []}),
    "changes the registration of others": ("PATCH", f"{MUTATING}/others", {}),
    "unregisters the webhook": ("DELETE", f"{MUTATING}/{NAME}", None),
    "widens its own role": ("PATCH", f"{RBAC}/clusterroles/{ISSUER}", {"rules": []}),
}


@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(stolen, RIGHTS[what], f"{SYSTEM_NAMESPACE}:{ISSUER}")


def test_a_stolen_token_reads_no_token_of_another_account(stolen: KubeClient) -> None:
    """It may make a Secret that gets another account's token, but not read it: the names that it may read are taken."""
    token: Object = {
        "metadata": {"name": "spy", "annotations": {"kubernetes.io/service-account.name": "gpu-scheduler"}},
        "type": "kubernetes.io/service-account-token",
    }

    stolen.call("POST", SECRETS, token)
    taken = stolen.call("POST", SECRETS, {**token, "metadata": {**token["metadata"], "name": SERVING_SECRET}})

    assert refusal(stolen.call("GET", f"{SECRETS}/spy"))
    assert taken[0] == 409


def _patch(stolen: KubeClient, entry: Object) -> tuple[int, Object]:
    body = {"webhooks": [{"name": "mutate.gpu-scheduler.agentaflow.io", **entry}]}
    return stolen.call("PATCH", f"{MUTATING}/{NAME}?dryRun=All", body, "application/strategic-merge-patch+json")


@pytest.mark.promise("hook-7")
@pytest.mark.parametrize(
    "entry",
    [
        {"failurePolicy": "Ignore"},
        {"clientConfig": {"service": None, "url": "https://spy.example.com/mutate"}},
        {"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
        {
            "name": "mutate.spy.example.com",
            "clientConfig": {"url": "https://spy.example.com/mutate"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        },
    ],
    ids=["lets pods pass without a review", "asks another address", "asks about any object", "adds a webhook"],
)
def test_a_stolen_token_changes_nothing_but_the_cas(stolen: KubeClient, entry: Object) -> None:
    """A policy limits the right, which RBAC cannot."""
    # An API server uses a policy about a second late.
    eventually("the policy is in force", lambda: _patch(stolen, {"failurePolicy": "Ignore"})[0] == 403)

    message = refusal(_patch(stolen, entry))

    assert message.endswith(denial("issuer", "the issuer writes more of a registration than its CAs"))


def test_a_stolen_token_changes_whom_the_api_server_trusts(stolen: KubeClient) -> None:
    """That is its work."""
    bundle = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()

    assert _patch(stolen, {"clientConfig": {"caBundle": bundle}})[0] == 200
