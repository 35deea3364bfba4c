"""S8: a stolen renewer token reads the CA and replaces what the webhook serves, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.names import CA_SECRET, RENEWER, SERVING_SECRET
from tests.attacks.installed_cluster import lacks
from tests.attacks.serving_secrets import CHANGE, NEITHERS, SECRETS
from tests.integration.accounts import RBAC
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.webhook_process import COLLECTIONS, NAME

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Request
    from tests.kube_client import KubeClient


@pytest.fixture
def stolen(cluster: InstalledCluster, secrets: None) -> KubeClient:
    """A client with the renewer's token."""
    return cluster.account(RENEWER)


RIGHTS: Final[dict[str, Request]] = {
    **NEITHERS,
    "watches the two Secrets": ("GET", f"{SECRETS}?watch=true&fieldSelector=metadata.name={SERVING_SECRET}", None),
    "makes a Secret": ("POST", SECRETS, {"metadata": {"name": "spy"}}),
    "replaces the CA": ("PUT", f"{SECRETS}/{CA_SECRET}", {"metadata": {"name": CA_SECRET}, **CHANGE}),
    "lets the API server trust another CA": ("PATCH", f"{COLLECTIONS['MutatingWebhookConfiguration']}/{NAME}", {}),
    "unregisters the webhook": ("DELETE", f"{COLLECTIONS['ValidatingWebhookConfiguration']}/{NAME}", None),
    "changes its own CronJob": ("PATCH", f"/apis/batch/v1/namespaces/{SYSTEM_NAMESPACE}/cronjobs/{RENEWER}", {}),
    "widens its own role": ("PATCH", f"{RBAC}/namespaces/{SYSTEM_NAMESPACE}/roles/{RENEWER}", {"rules": []}),
}


@pytest.mark.promise("hook-6")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(stolen, RIGHTS[what], f"{SYSTEM_NAMESPACE}:{RENEWER}")


def test_a_stolen_token_reads_the_ca_and_replaces_the_pair(stolen: KubeClient) -> None:
    """That is its work. Whoever has it can answer in the webhook's place, if the network lets them."""
    assert stolen.call("GET", f"{SECRETS}/{CA_SECRET}")[0] == 200
    assert stolen.merge(f"{SECRETS}/{SERVING_SECRET}", CHANGE)[0] == 200
