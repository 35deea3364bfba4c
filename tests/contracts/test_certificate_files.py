"""The Secrets of Job and files are those of role certificates, so that each may go on with what the other made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from gpu_scheduler.certificates.issuing import Terms, issue, issue_ca, names_of, read_authority
from gpu_scheduler.certificates.secrets import manifest
from gpu_scheduler.names import CA_SECRET, SERVING_SECRET, WEBHOOK
from gpu_scheduler.settings import IssuerSettings
from tests.contracts.cluster_modules import load_module
from tests.contracts.loading import load
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from tests.objects import Object

NOW: Final = datetime.now(UTC)
CA: Final = issue_ca(timedelta(days=3650), NOW)
TERMS: Final = Terms(names_of(WEBHOOK, "ns"), timedelta(days=365), timedelta(days=30))
MADE: Final[dict[str, Object]] = {
    "ca": manifest(CA_SECRET, "ns", CA),
    "serving": manifest(SERVING_SECRET, "ns", issue(read_authority(CA), TERMS, NOW)),
}


def of_role(file: str, role: str = "certificates") -> Object:
    """Return a YAML file of a role."""
    found: Object = yaml.safe_load((ROOT / "roles" / role / file).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("part", MADE)
def test_preflight_takes_the_secrets_for_ours(part: str) -> None:
    """The labels are the role's, without managed-by: no installer but the next one has them."""
    metadata = MADE[part]["metadata"]
    managers = [{"manager": "kubectl-client-side-apply"}, {"manager": "gpu-scheduler-issuer"}]
    role = of_role("vars/main.yml", "common")["_common_selector"]

    cluster_access = load_module("roles", "preflight", "library", "cluster_access.py")

    assert cluster_access.owner_of({**metadata, "managedFields": managers}) == ""
    assert metadata["labels"] == {
        **role,
        "app.kubernetes.io/component": "certificates",
        "app.kubernetes.io/part-of": "gpu-scheduler",
    }


def test_the_role_reads_what_the_api_server_has() -> None:
    """A Secret without data, a registration without webhooks, and one without a CA, which trusts none."""
    rotated = load("plugins", "action", "rotated_certificates.py")
    webhook = {"clientConfig": {"caBundle": MADE["serving"]["data"]["ca.crt"]}}
    found = [
        {"kind": "Namespace", "metadata": {"name": "ns"}},
        {**MADE["ca"], "data": None},
        MADE["serving"],
        {"kind": "MutatingWebhookConfiguration", "webhooks": [webhook, {"clientConfig": {}}]},
        {"kind": "ValidatingWebhookConfiguration", "webhooks": None},
    ]

    assert (rotated.data_of(found, CA_SECRET), rotated.data_of(found[:1], SERVING_SECRET)) == ({}, {})
    assert rotated.data_of(found, SERVING_SECRET)["ca.crt"] == CA["ca.crt"]
    assert rotated.bundles_of(found) == (CA["ca.crt"], b"")
    assert rotated.encoded(CA) == MADE["ca"]["data"]


def test_the_days_are_the_roles_defaults() -> None:
    """Of CA, certificate and renewal."""
    role = of_role("defaults/main.yml")
    own = (IssuerSettings.ca_days, IssuerSettings.serving_days, IssuerSettings.renew_days)

    assert own == tuple(role[f"certificates_{name}_days"] for name in ("ca", "serving", "renew"))
