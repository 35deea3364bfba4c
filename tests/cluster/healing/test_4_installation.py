"""Damage in the cluster: the webhook's certificate has expired, or its namespace was deleted."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.clusters import SYSTEM
from tests.cluster.healing import runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.clusters import Cluster

    MakePod = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.timeout(runs.LONGEST)

SECRET: Final = "gpu-scheduler-webhook-tls"  # noqa: S105 - a name
WEBHOOK: Final = "app.kubernetes.io/component=webhook"
SERVICE: Final = f"gpu-scheduler-webhook.{SYSTEM}.svc"


def _expired_pair() -> dict[str, str]:
    """Return a serving pair that expired an hour ago, as a Secret's data."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVICE)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now - timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVICE)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    no_password = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)
    public = certificate.public_bytes(serialization.Encoding.PEM)
    return {"tls.key": base64.b64encode(private).decode(), "tls.crt": base64.b64encode(public).decode()}


def _refused(cluster: Cluster, pod: dict[str, Any]) -> str:
    """Return the reason why a create of the pod is refused now; empty if it would succeed."""
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod), check=False)
    return done.stderr if done.returncode else ""


def _none_serves(cluster: Cluster) -> bool:
    pods = cluster.get("pods", "-n", SYSTEM, "-l", WEBHOOK)["items"]
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return [(status["started"], status["ready"]) for status in statuses] == [(True, False)] * 2


def test_certificate_expired(cluster: Cluster, healthy: None, make_pod: MakePod) -> None:
    """An expired serving pair is renewed, and our pods are admitted again; no other role rolls anything out."""
    del healthy
    pod = make_pod("refused-0", "0=node1:6")
    assert _refused(cluster, pod) == ""
    cluster.kubectl("patch", "secret", "-n", SYSTEM, SECRET, "-p", json.dumps({"data": _expired_pair()}))
    # New pods load it at once, and the API server has no old connections to them that it could use again.
    cluster.kubectl("delete", "pods", "-n", SYSTEM, "-l", WEBHOOK, "--grace-period=1", "--wait")
    eventually("both webhooks to run and not to serve", partial(_none_serves, cluster), 60, 1)
    assert "failed calling webhook" in _refused(cluster, pod)

    changed = runs.changed(runs.up())

    assert {"certificates"} == changed
    assert _refused(cluster, pod) == ""
    runs.prove(cluster)


def test_namespace_deleted(cluster: Cluster, healthy: None, make_pod: MakePod) -> None:
    """A deleted system namespace is created again, although the API server still calls the missing webhook.

    The records of all roles were in it, so each role writes its record anew, and roles outside it change nothing else.
    """
    del healthy
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait")
    pod = make_pod("refused-0", "0=node1:6")
    assert "failed calling webhook" in _refused(cluster, pod)

    changed = runs.changed(runs.up())

    installed = {"certificates", "scheduler", "webhook", "controller"}
    assert {*installed, "crds", "policies", "network_policies", "check"} == changed
    assert _refused(cluster, pod) == ""
    runs.prove(cluster)
