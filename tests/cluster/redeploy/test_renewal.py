"""Certificates renewed by force, step by step, while pods of ours are being created: none is lost."""

from __future__ import annotations

import base64
import logging
import re
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from kubernetes import client, config

from tests.cluster import plays
from tests.cluster.clusters import NAME, SYSTEM, TESTS, Cluster
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Plays on a busy machine, and a wait for kubelets.
pytestmark = pytest.mark.timeout(900)

LOG: Final = logging.getLogger(__name__)

SERVER: Final = f"gpu-scheduler-webhook.{SYSTEM}.svc"
REGISTRATIONS: Final = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
CA: Final = "gpu-scheduler-webhook-ca"
PAIR: Final = "gpu-scheduler-webhook-tls"
# Kubelets look at their Secrets about once a minute, replicas at their files every few seconds.
SERVED_WITHIN: Final = 150
EVERY: Final = 0.1
# One creation of so many is a real one.
REAL: Final = 50


def renew(step: str, tags: str = "certificates,webhook") -> plays.Run:
    """Renew by force, as a user would."""
    options = ("--tags", tags, "-e", f"certificates_force={step}", "-e", "@tests/cluster/vars.yml")
    return plays.run("ansible-playbook", "site.yml", *options)


class Creations:
    """Creates pods of ours ten times a second, nearly all as dry runs, and keeps what went wrong."""

    def __init__(self, cluster: Cluster, describe: Callable[..., dict[str, Any]]) -> None:
        loaded = config.new_client_from_config(str(cluster.kubeconfig), f"kind-{NAME}")  # type: ignore[no-untyped-call]
        # Its methods are typed for its own classes; we speak in plain manifests.
        self._api: Any = client.CoreV1Api(loaded)
        self._describe = describe
        self._asked = describe("renewal-asked-0", "0=node1:1,0")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0
        self.lost: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            try:
                self._create(self.count, is_real=self.count % REAL == 0)
            except Exception as error:  # noqa: BLE001 - whatever loses a pod is told by the test
                self.lost.append(f"{time.strftime('%X')} {error}")
            self.count += 1

    def _create(self, number: int, *, is_real: bool) -> None:
        # Real ones without a GPU, so that they hold nothing and wait for nobody.
        pod = self._describe(f"renewal-{number}", f"{number}=node1:") if is_real else self._asked
        how = {} if is_real else {"dry_run": "All"}
        made = self._api.create_namespaced_pod(TESTS, pod, _request_timeout=15, **how)
        variables = {each.name: each.value or "" for each in made.spec.containers[0].env}
        assert variables.get("CUDA_VISIBLE_DEVICES") == ("" if is_real else "1,0"), variables


@contextmanager
def way_to(cluster: Cluster, pod: str) -> Iterator[int]:
    """Yield a port of this host that leads to one replica of the webhook, past the Service."""
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
    """Return the certificate that a replica serves; raise where these do not vouch for it as the Service's."""
    context = ssl.create_default_context(cadata=trusted)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=SERVER) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate
    return ssl.DER_cert_to_PEM_cert(certificate).strip()


def bundle(cluster: Cluster, kind: str) -> str:
    """Return the certificates by which the API server knows the webhook."""
    (webhook,) = cluster.get(kind, "gpu-scheduler-webhook")["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()


def stored(cluster: Cluster, secret: str, key: str) -> str:
    """Return a certificate that a Secret holds."""
    return base64.b64decode(cluster.get("secret", "-n", SYSTEM, secret)["data"][key]).decode().strip()


def replicas(cluster: Cluster) -> list[str]:
    """Return the names of the webhook's pods."""
    pods = cluster.get("pod", "-n", SYSTEM, "-l", "app.kubernetes.io/component=webhook")["items"]
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def served_by_all(cluster: Cluster, ports: list[int]) -> set[str]:
    """Return what the replicas serve now; raise where one of the registrations does not trust it."""
    # Read first: who is trusted later may not be trusted when it is served.
    trusted = [bundle(cluster, kind) for kind in REGISTRATIONS]
    return {served(port, each) for port in ports for each in trusted}


def test_forced_renewal_loses_no_create(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """A new CA, then a pair signed by it, until every replica serves it: no create fails or lacks its variable."""
    before = {key: stored(cluster, *key) for key in ((CA, "ca.crt"), (PAIR, "tls.crt"))}
    with ExitStack() as ways, Creations(cluster, make_pod) as creations:
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
        LOG.info("the new pair was served after %.0f s, %d pods asked for", time.monotonic() - started, creations.count)
        # The API server asks anew where its connection has ended.
        cluster.kubectl("get", "--raw", "/readyz")
        time.sleep(2)

    assert creations.lost == []
    assert creations.count > 5 / EVERY


def test_serving_pair_of_an_untrusted_ca_is_refused(cluster: Cluster) -> None:
    """Between a new CA and the role that has it trusted no pair is signed: the run says which role comes first."""
    renew("ca", tags="certificates").succeeded()
    kept = stored(cluster, PAIR, "tls.crt")
    refused = renew("serving", tags="certificates")

    assert refused.code != 0
    assert "does not trust the CA that would sign" in refused.output
    assert stored(cluster, PAIR, "tls.crt") == kept
    plays.run("ansible-playbook", "site.yml", "--tags", "webhook", "-e", "@tests/cluster/vars.yml").succeeded()


def test_old_cas_do_not_pile_up(cluster: Cluster) -> None:
    """However often the CA is renewed, only the last two and the one that signed what is served stay trusted."""
    signed = stored(cluster, PAIR, "tls.crt")
    for _ in range(3):
        renew("ca").succeeded()
    trusted = stored(cluster, PAIR, "ca.crt")
    pods = replicas(cluster)
    with way_to(cluster, pods[0]) as port:
        assert served(port, trusted) == signed

    assert trusted.count("BEGIN CERTIFICATE") == 1 + 2 + 1


def test_check_mode_tells_of_a_due_pair_and_writes_nothing(cluster: Cluster) -> None:
    """With a renewal due, `--check` reports a change of the role and leaves both Secrets as they are."""

    def versions() -> list[str]:
        return [cluster.get("secret", "-n", SYSTEM, name)["metadata"]["resourceVersion"] for name in (CA, PAIR)]

    before = versions()
    options = ("--tags", "certificates", "-e", "certificates_force=ca", "-e", "@tests/cluster/vars.yml", "--check")
    told = plays.run("ansible-playbook", "site.yml", *options).succeeded()

    assert told.changed == {"certificates": 1}
    assert versions() == before
