"""The cluster renews the webhook's certificate itself before it ends; the CA can be replaced. No create is refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.cluster.clusters import SYSTEM
from tests.cluster.creating import REAL, Stream
from tests.cluster.existing import scenario
from tests.cluster.existing.own_cluster import GPU_NODES, OTHER_NODE
from tests.cluster.existing.page import RENEW
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.clusters import Cluster

# Plays on a busy machine, and kubelets that update mounted Secrets about once a minute.
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("installed")]

CA: Final = "gpu-scheduler-webhook-ca"
PAIR: Final = "gpu-scheduler-webhook-tls"
RENEWER: Final = "gpu-scheduler-renewer"
LEFT: Final = 5
"""Days that the replaced pair is still valid."""
SERVED_WITHIN: Final = 150
"""Seconds: a kubelet takes up to 90, and replicas check their files every few seconds."""
EVERY: Final = 0.1


def creations(cluster: Cluster, describe: Callable[..., dict[str, Any]]) -> Stream:
    """Return a stream of ten creates a second; the real pods ask for no GPU and run on a node without one."""
    asked = describe("renewal-asked-0", f"0={GPU_NODES[0]}:5")

    def pod(number: int) -> dict[str, Any]:
        return asked if number % REAL else describe(f"renewal-{number}", f"{number}={OTHER_NODE}:")

    return Stream(cluster, pod, pause=EVERY)


def stored(cluster: Cluster, secret: str, key: str) -> bytes:
    """Return a part of a Secret."""
    return base64.b64decode(cluster.get("secret", "-n", SYSTEM, secret)["data"][key])


def days_left(cluster: Cluster) -> int:
    """Return for how many days the stored serving certificate is valid."""
    ends = x509.load_pem_x509_certificate(stored(cluster, PAIR, "tls.crt")).not_valid_after_utc
    return (ends - datetime.now(UTC)).days


def replace_pair(cluster: Cluster) -> None:
    """Store a serving pair that ends soon, signed by the CA."""
    issuer = x509.load_pem_x509_certificate(stored(cluster, CA, "ca.crt"))
    signing = serialization.load_pem_private_key(stored(cluster, CA, "ca.key"), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    served = x509.load_pem_x509_certificate(stored(cluster, PAIR, "tls.crt"))
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer.subject, served.subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=360))
        .not_valid_after(now + timedelta(days=LEFT, hours=1))
    )
    for extension in served.extensions:
        if isinstance(extension.value, (x509.SubjectAlternativeName, x509.KeyUsage, x509.ExtendedKeyUsage)):
            builder = builder.add_extension(extension.value, extension.critical)
    certificate = builder.sign(signing, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pair = {
        "tls.crt": certificate.public_bytes(pem),
        "tls.key": key.private_bytes(pem, form, serialization.NoEncryption()),
    }
    data = {name: base64.b64encode(value).decode() for name, value in pair.items()}
    cluster.kubectl("patch", "secret", "-n", SYSTEM, PAIR, "--type=merge", "-p", json.dumps({"data": data}))


def mounted(cluster: Cluster) -> set[bytes]:
    """Return the certificates that the webhook's replicas have in their files."""
    found = set()
    for pod in cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=webhook")["items"]:
        (volume,) = (
            each["name"] for each in pod["spec"]["volumes"] if each.get("secret", {}).get("secretName") == PAIR
        )
        (path,) = (m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"] == volume)
        found.add(cluster.exec(SYSTEM, pod["metadata"]["name"], "cat", f"{path}/tls.crt").strip().encode())
    return found


def wait_served(cluster: Cluster, stream: Stream) -> None:
    """Wait until every replica has the stored certificate, and then for the creates that it must answer."""
    pair = stored(cluster, PAIR, "tls.crt").strip()
    eventually("every replica has the new pair", lambda: mounted(cluster) == {pair}, SERVED_WITHIN, 2)
    stream.wait_for(100)


def test_the_cluster_renews_a_pair_that_ends_soon(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """A Job of the CronJob issues a new pair with its own rights; the CA stays."""
    authority = stored(cluster, CA, "ca.crt")
    with creations(cluster, make_pod) as stream:
        replace_pair(cluster)
        assert days_left(cluster) == LEFT
        cluster.kubectl("create", "job", "-n", SYSTEM, "renew-now", f"--from=cronjob/{RENEWER}")
        try:
            cluster.kubectl("wait", "-n", SYSTEM, "job/renew-now", "--for=condition=Complete", "--timeout=120s")
        finally:
            log = cluster.kubectl("logs", "-n", SYSTEM, "job/renew-now", check=False).stdout
            cluster.kubectl("delete", "job", "-n", SYSTEM, "renew-now")
        assert days_left(cluster) > LEFT, log
        wait_served(cluster, stream)

    assert stored(cluster, CA, "ca.crt") == authority
    assert stream.failures == []


def test_the_page_replaces_the_ca_and_then_the_pair(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """Meanwhile the API server trusts both CAs."""
    authority, pair = stored(cluster, CA, "ca.crt"), stored(cluster, PAIR, "tls.crt")
    with creations(cluster, make_pod) as stream:
        for commands in scenario.page().blocks(RENEW):
            scenario.read(commands).succeeded()
        assert stored(cluster, CA, "ca.crt") != authority
        assert stored(cluster, PAIR, "tls.crt") != pair
        wait_served(cluster, stream)

    assert stream.failures == []
