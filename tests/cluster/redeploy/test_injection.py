"""One run changes which component injects variables, in both directions.

Every pod created meanwhile has its variable.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest

from tests.background import running
from tests.cluster import plays
from tests.cluster.clusters import ROOT, SYSTEM, TESTS, Cluster
from tests.cluster.verify.pods import bound, literals
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.verify.pods import Json, MakePod

SITE: Final = ("ansible-playbook", "site.yml", "-e", f"@{ROOT}/tests/cluster/vars.yml")
TAGS: Final = ("--tags", "certificates,policies,webhook")
POLICY: Final = (*SITE, *TAGS, "-e", "injection=policy")


class CheckPod:
    """Creates the same pod repeatedly, as a dry run, and notes the variable in its containers."""

    def __init__(self, cluster: Cluster, pod: Json) -> None:
        """Start."""
        self._cluster, self._text = cluster, json.dumps(pod)
        self._over = threading.Event()
        self._noted: list[str] = []
        self._thread = threading.Thread(target=self._note)
        self._thread.start()

    def _note(self) -> None:
        while not self._over.is_set():
            options = ("create", "-f", "-", "--dry-run=server", "--output=json")
            done = self._cluster.kubectl(*options, stdin=self._text, check=False)
            self._noted.append(done.stderr if done.returncode else literals(json.loads(done.stdout)).pop())

    def story(self) -> list[str]:
        """End, and return the values in their order, repeated ones once."""
        self._over.set()
        self._thread.join()
        return [seen for seen, _ in groupby(self._noted)]


@contextmanager
def services_reached_late(cluster: Cluster) -> Iterator[None]:
    """Let the API server reach Services 3 s after it has a new registration: kube-proxy can know replicas as late.

    A registration is used after about a second.
    """
    control_plane = f"{cluster.name}-control-plane"
    # To a port on which nothing listens.
    refused = ["OUTPUT", "-p", "tcp", "-d", "10.96.0.0/16", "--dport", "443", "-j", "REDIRECT", "--to-ports", "1"]
    cluster.on_node(control_plane, "iptables", "-t", "nat", "-I", *refused)

    def reach(ended: threading.Event) -> None:
        try:
            while not cluster.get("mutatingwebhookconfigurations")["items"] and not ended.wait(0.1):
                pass
            ended.wait(3)
        finally:
            cluster.on_node(control_plane, "iptables", "-t", "nat", "-D", *refused)

    with running(reach):
        yield


@pytest.fixture
def check_pod_values(cluster: Cluster, make_pod: MakePod) -> Iterator[Callable[[], list[str]]]:
    """Return a function that ends the creates and returns their values; the webhook injects before and after."""
    watching = CheckPod(cluster, make_pod("witness-0", "0=node3:8"))
    yield watching.story
    watching.story()
    if cluster.get("mutatingadmissionpolicies")["items"]:
        plays.run(*SITE, *TAGS).succeeded()


@pytest.mark.promise("policy-1")
@pytest.mark.timeout(300)
def test_the_policy_replaces_the_webhook_without_a_gap(
    cluster: Cluster, make_pod: MakePod, check_pod_values: Callable[[], list[str]]
) -> None:
    """The policy replaces the webhook, then the webhook the policy: each pod has its variables from one of them.

    In between the webhook is gone, a second run changes nothing, and a pod runs and sees its devices.
    """
    # Without a webhook there is no certificate to renew: the renewer goes too.
    assert set(plays.run(*POLICY).succeeded().changed) == {"policies", "certificates"}
    assert dict(plays.run(*POLICY).succeeded().changed) == {}
    left = cluster.get("deployments,services,poddisruptionbudgets,serviceaccounts", "-n", SYSTEM)["items"]
    assert {each["metadata"]["name"] for each in left} == {"default", "gpu-scheduler", "gpu-scheduler-controller"}

    cluster.create(make_pod("referring-0", "0=node3:8"))
    pod = eventually("referring-0 to be bound", lambda: bound(cluster, "referring-0"))
    cluster.kubectl("wait", "--for=condition=Ready", "-n", TESTS, "pod/referring-0", "--timeout=60s")
    assert literals(pod) == {"reference"}
    seen = cluster.environment(TESTS, "referring-0")
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("8", "PCI_BUS_ID")

    with services_reached_late(cluster):
        switched = plays.run(*SITE, *TAGS).succeeded()
    assert set(switched.changed) == {"webhook", "certificates"}
    registered = cluster.get("mutatingwebhookconfigurations", "gpu-scheduler-webhook")["webhooks"]
    assert {each["failurePolicy"] for each in registered} == {"Fail"}
    assert check_pod_values() == ["8", "reference", "8"]
    assert cluster.get("mutatingadmissionpolicies")["items"] == []
