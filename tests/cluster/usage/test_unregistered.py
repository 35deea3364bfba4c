"""The webhook's registrations are gone: no pod runs without its variable, and the play registers again."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster, run_playbook
from tests.cluster.verify.pods import bound, literals, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.verify.pods import MakePod

NAME = "gpu-scheduler-webhook"
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


@pytest.fixture
def unregistered(cluster: Cluster, make_pod: MakePod) -> Iterator[None]:
    """Delete the webhook's registrations, as by mistake; the playbook's tag restores them."""
    probe = make_pod("probe-0", "0=node1:44")

    def forgotten() -> bool:
        options = ("-f", "-", "--dry-run=server", "--output=json")
        answer = cluster.kubectl("create", *options, stdin=json.dumps(probe), check=False)
        # While only the mutating registration is gone, the validating one still refuses the pod.
        return not answer.returncode and literals(json.loads(answer.stdout)) == {"absent"}

    try:
        for kind in CONFIGURATIONS:
            cluster.kubectl("delete", kind, NAME)
        eventually("the API server to forget the webhook", forgotten)
        yield
    finally:
        missing = [kind for kind in CONFIGURATIONS if cluster.kubectl("get", kind, NAME, check=False).returncode]
        if missing:
            run_playbook("site.yml", "--tags", "webhook").check_returncode()


def _reported(cluster: Cluster, name: str) -> list[str]:
    """Return the notes of the pod's FailedScheduling events."""
    uid = cluster.get("pod", "-n", TESTS, name)["metadata"]["uid"]
    about = f"reason=FailedScheduling,regarding.uid={uid}"
    events = cluster.get("events.events.k8s.io", "-n", TESTS, "--field-selector", about)["items"]
    return [event["note"] for event in events if event["reportingController"] == "gpu-scheduler"]


@pytest.mark.timeout(400)
@pytest.mark.promise("gate-2", "text-1", "text-2")
def test_unregistered_webhook_lets_no_pod_run_without_its_variable(
    cluster: Cluster,
    make_pod: MakePod,
    unregistered: None,
) -> None:
    """Without registrations a pod is created without its variable and never bound; condition and event have the remedy.

    The playbook's tag `webhook` registers again. Then the remedy works: a deleted and recreated pod is placed.
    """
    pod = make_pod("bare-0", "0=node1:45")
    cluster.create(pod)
    condition = eventually("bare-0 to have its reason", partial(waits, cluster, "bare-0", "EnvNotInjected"))
    notes = eventually("bare-0 to have an event", partial(_reported, cluster, "bare-0"))

    assert condition["status"] == "False"
    assert condition["reason"] == "Unschedulable"
    assert "delete the pod" in condition["message"]
    assert notes == [condition["message"]]

    done = run_playbook("site.yml", "--tags", "webhook")
    assert done.returncode == 0, done.stdout
    found = cluster.get("pod", "-n", TESTS, "bare-0")
    assert literals(found) == {"absent"}
    assert "nodeName" not in found["spec"]

    cluster.kubectl("delete", "pod", "-n", TESTS, "bare-0", "--wait")
    cluster.create(pod)
    found = eventually("bare-0, made anew, to be bound", partial(bound, cluster, "bare-0"))
    assert literals(found) == {"45"}
    assert found["spec"]["nodeName"] == "node1"
