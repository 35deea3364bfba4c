"""Certificates are renewed by force, step by step, while our pods are created: no create fails."""

from __future__ import annotations

import base64
import logging
import re
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import NAME, SYSTEM, Cluster
from tests.cluster.creating import REAL, Stream
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# For plays on a busy machine, and a wait for kubelets.
pytestmark = pytest.mark.timeout(900)

LOG: Final = logging.getLogger(__name__)

SERVER: Final = f"gpu-scheduler-webhook.{SYSTEM}.svc"
REGISTRATIONS: Final = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
CA: Final = "gpu-scheduler-webhook-ca"
PAIR: Final = "gpu-scheduler-webhook-tls"
# Seconds. Kubelets update mounted Secrets about once a minute, replicas check their files every few seconds.
SERVED_WITHIN: Final = 150
EVERY: Final = 0.1


def renew(step: str, tags: str = "certificates,webhook") -> plays.Run:
    """Renew by force, as a user would."""
    options = ("--tags", tags, "-e", f"certificates_force={step}")
    return plays.run(*plays.SITE, *options)


def creations(cluster: Cluster, describe: Callable[..., dict[str, Any]]) -> Stream:
    """Return a stream of ten creates a second, which checks the variable of each pod."""
    asked = describe("renewal-asked-0", "0=node1:1,0")

    def pod(number: int) -> dict[str, Any]:
        # Real pods request no GPU, so that they hold none and are bound at once.
        return asked if number % REAL else describe(f"renewal-{number}", f"{number}=node1:")

    def on_create(made: dict[str, Any]) -> None:
        # The API server omits an empty value.
        variables = {each["name"]: each.get("value", "") for each in made["spec"]["containers"][0]["env"]}
        expected = "1,0" if made["metadata"]["name"] == asked["metadata"]["name"] else ""
        assert variables.get("CUDA_VISIBLE_DEVICES") == expected, variables

    return Stream(cluster, pod, pause=EVERY, on_create=on_create)


@contextmanager
def way_to(cluster: Cluster, pod: str) -> Iterator[int]:
    """Yield a port of this host that is forwarded to one replica of the webhook, without the Service."""
    kubectl = ("kubectl", f"--kubeconfig={cluster.kubeconfig}", f"--context=kind-{NAME}")
    command = (*kubectl, "port-forward", "-n", SYSTEM, f"pod/{pod}", ":8443")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found, f"no way to {pod}"
            yield int(found[1])
        finally:
            process.terminate()


def served(port: int, trusted: str) -> str:
    """Return the certificate that a replica serves; raise when `trusted` does not verify it for the Service's name."""
    context = ssl.create_default_context(cadata=trusted)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=limit(10)) as plain,
        context.wrap_socket(plain, server_hostname=SERVER) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate
    return ssl.DER_cert_to_PEM_cert(certificate).strip()


def bundle(cluster: Cluster, kind: str) -> str:
    """Return the CA bundle with which the API server verifies the webhook."""
    (found,) = {each["clientConfig"]["caBundle"] for each in cluster.get(kind, "gpu-scheduler-webhook")["webhooks"]}
    return base64.b64decode(found).decode()


def stored(cluster: Cluster, secret: str, key: str) -> str:
    """Return a certificate from a Secret."""
    return base64.b64decode(cluster.get("secret", "-n", SYSTEM, secret)["data"][key]).decode().strip()


def replicas(cluster: Cluster) -> list[str]:
    """Return the names of the webhook's pods."""
    pods = cluster.get("pod", "-n", SYSTEM, "-l", "app.kubernetes.io/component=webhook")["items"]
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def served_by_all(cluster: Cluster, ports: list[int]) -> set[str]:
    """Return the certificates that the replicas serve now; raise when one of the registrations does not trust them."""
    # Read before: a CA that is added later must not hide that it was missing when the pair was served.
    trusted = [bundle(cluster, kind) for kind in REGISTRATIONS]
    return {served(port, each) for port in ports for each in trusted}


@pytest.mark.promise("hook-5")
def test_forced_renewal_loses_no_create(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """Renew the CA, then the pair, until every replica serves the new pair: no create fails or lacks its variable."""
    before = {key: stored(cluster, *key) for key in ((CA, "ca.crt"), (PAIR, "tls.crt"))}
    with ExitStack() as ways, creations(cluster, make_pod) as stream:
        ports = [ways.enter_context(way_to(cluster, pod)) for pod in replicas(cluster)]
        renew("ca").succeeded()
        assert stored(cluster, CA, "ca.crt") != before[CA, "ca.crt"]
        assert stored(cluster, PAIR, "tls.crt") == before[PAIR, "tls.crt"]
        assert served_by_all(cluster, ports) == {before[PAIR, "tls.crt"]}
        assert all(stored(cluster, CA, "ca.crt") in bundle(cluster, kind) for kind in REGISTRATIONS)

        renew("serving").succeeded()
        renewed = stored(cluster, PAIR, "tls.crt")
        assert renewed != before[PAIR, "tls.crt"]
        started = time.monotonic()
        eventually("the new pair is served", lambda: served_by_all(cluster, ports) == {renewed}, SERVED_WITHIN, 1)
        LOG.info("the new pair was served after %.0f s, %d pods asked for", time.monotonic() - started, stream.count)
        # The API server opens a new connection where the old one ended.
        cluster.kubectl("get", "--raw", "/readyz")
        time.sleep(2)

    assert stream.failures == []
    assert stream.count > 5 / EVERY


def test_serving_pair_of_an_untrusted_ca_is_refused(cluster: Cluster) -> None:
    """A CA that the webhook's role has not registered yet signs no pair: the error names the role to run first."""
    renew("ca", tags="certificates").succeeded()
    kept = stored(cluster, PAIR, "tls.crt")
    refused = renew("serving", tags="certificates")

    assert refused.code != 0
    assert "does not trust the CA that would sign" in refused.output
    assert stored(cluster, PAIR, "tls.crt") == kept
    plays.run(*plays.SITE, "--tags", "webhook").succeeded()


def test_old_cas_are_removed_from_the_bundle(cluster: Cluster) -> None:
    """After any number of renewals the bundle has only the newest CAs and the one that signed the served pair."""
    signed = stored(cluster, PAIR, "tls.crt")
    for _ in range(3):
        renew("ca").succeeded()
    trusted = stored(cluster, PAIR, "ca.crt")
    pods = replicas(cluster)
    with way_to(cluster, pods[0]) as port:
        assert served(port, trusted) == signed

    assert trusted.count("BEGIN CERTIFICATE") == 1 + 2 + 1


def test_check_mode_reports_a_due_pair_and_writes_nothing(cluster: Cluster) -> None:
    """With a renewal due, `--check` reports a change of the role and does not change the two Secrets."""

    def versions() -> list[str]:
        return [cluster.get("secret", "-n", SYSTEM, name)["metadata"]["resourceVersion"] for name in (CA, PAIR)]

    before = versions()
    options = ("--tags", "certificates", "-e", "certificates_force=ca", "--check")
    found = plays.run(*plays.SITE, *options).succeeded()

    assert found.changed == {"certificates": 1}
    assert versions() == before
