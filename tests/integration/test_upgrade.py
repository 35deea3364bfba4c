"""After an upgrade, running pods that the new policies would refuse keep running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.control_plane import ControlPlane
from tests.integration.policies import SCHEDULER, guard
from tests.objects import annotated, binding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects import Object

PODS: Final = "/api/v1/namespaces/guarded/pods"
KUBELET: Final = "system:node:node1"
CONTROLLER: Final = "system:serviceaccount:kube-system:replicaset-controller"
RUNNING: Final[Object] = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
ASSIGNED: Final = {names.ASSIGNED_DEVICES: "0", names.ASSIGNED_INDEX: "0", names.ASSIGNED_NODE: "node1"}


def _setting(value: str) -> list[Object]:
    env = [{"name": names.VISIBLE_DEVICES, "value": value}]
    return [{"name": "main", "image": "none", "env": env}]


OLD: Final[dict[str, tuple[dict[str, str], Object]]] = {
    "observes without the right": ({names.OBSERVER: "true"}, {}),
    "keeps its environment without the right": ({names.KEEP_ENV: "true"}, {"containers": _setting("0")}),
    "keeps a value that the ledger cannot hold": ({names.KEEP_ENV: "true"}, {"containers": _setting("$(FOO)")}),
    "has a long annotation of ours": ({names.SHARING: "x" * 1000}, {}),
    "has only a map": ({names.MAP: "0=node1:0\n"}, {}),
}
"""Annotations and spec of each pod."""


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with bound pods, on which the policies were applied afterwards."""
    plane = ControlPlane(tmp_path_factory.mktemp("upgraded"))
    try:
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": "guarded"}})
        plane.kube.create("/api/v1/nodes", {"metadata": {"name": "node1"}})
        scheduler = plane.client_as(SCHEDULER)
        for number, (annotations, spec) in enumerate(OLD.values()):
            plane.kube.create(PODS, objects.pod(f"old-{number}", annotations=annotations, **spec))
            status, answer = scheduler.call("POST", f"{PODS}/old-{number}/binding", binding(f"old-{number}", ASSIGNED))
            assert status == 201, answer
        guard(plane, "environment")
        yield plane
    finally:
        plane.stop()


@pytest.mark.promise("guard-13")
@pytest.mark.parametrize("what", OLD)
def test_a_pod_older_than_the_policies_runs_to_its_end(upgraded: ControlPlane, what: str) -> None:
    """The kubelet writes its status, controllers and users change its metadata, and it can be deleted."""
    path = f"{PODS}/old-{list(OLD).index(what)}"
    changes: dict[str, tuple[str, Object]] = {
        KUBELET: (f"{path}/status", RUNNING),
        CONTROLLER: (path, {"metadata": {"labels": {"app": "old"}, "finalizers": ["example.com/last"]}}),
        "admin": (path, annotated({"example.com/notes": "kept"})),
    }

    reported = {who: upgraded.client_as(who).merge(*change) for who, change in changes.items()}
    assert {who: status for who, (status, _) in reported.items()} == dict.fromkeys(changes, 200), reported
    ended = upgraded.client_as(CONTROLLER).merge(path, {"metadata": {"finalizers": None}})
    assert ended[0] == 200, ended
    gone = upgraded.client_as(KUBELET).call("DELETE", f"{path}?gracePeriodSeconds=0")

    assert gone[0] == 200, gone
    assert upgraded.kube.get(path) is None


@pytest.mark.promise("guard-13", "guard-7")
def test_a_new_observer_is_refused_after_the_upgrade(upgraded: ControlPlane) -> None:
    """This shows that the policies are in force where the older pods run."""
    status, answer = upgraded.client_as("admin").call(
        "POST", PODS, objects.pod("new", annotations={names.OBSERVER: "true"})
    )

    assert status in {403, 422}, answer
    assert names.OBSERVER in answer["message"]
