"""The policies do not restrict kubelets, other controllers and other schedulers, and cost little CPU time."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.policies import SCHEDULER, made, named
from tests.kube_client import MERGE_PATCH
from tests.objects import annotated, binding, null_pod

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

SPACE: Final = "/api/v1/namespaces/guarded"
PODS: Final = f"{SPACE}/pods"
CLAIMS: Final = f"{SPACE}/persistentvolumeclaims"
NODES: Final = "/api/v1/nodes"
KUBELET: Final = "system:node:node1"
BINDER: Final = "system:serviceaccount:kube-system:persistent-volume-binder"
OTHERS: Final = (KUBELET, BINDER, "system:kube-scheduler", "system:kube-controller-manager", "admin")
CLAIM: Final[Object] = {
    "metadata": {"labels": {"app": "db"}, "annotations": None},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
BODIES: Final = {NODES: [{"metadata": {}}], CLAIMS: [CLAIM], PODS: [objects.pod(""), null_pod("")]}


READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}}
CHANGES: Final[dict[str, tuple[str, str, Object]]] = {
    "a node": (NODES, "", {"metadata": {"labels": {"gpu-node-name": "a"}}, "spec": {"unschedulable": True}}),
    "a node's status": (NODES, "/status", READY),
    "a claim": (
        CLAIMS,
        "",
        {"metadata": {"labels": None, "annotations": {"a": "b"}}, "spec": {"volumeName": "theirs"}},
    ),
    "a claim's status": (CLAIMS, "/status", {"status": {"phase": "Bound"}}),
    "a pod": (PODS, "", {"metadata": {"labels": {"app": "theirs"}, "finalizers": None}}),
    "a pod's status": (PODS, "/status", READY),
}


@pytest.mark.promise("guard-6")
@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("what", CHANGES)
def test_other_accounts_are_not_restricted(guarded: ControlPlane, admin: KubeClient, what: str, who: str) -> None:
    """They write to nodes, claims, our pods and pods with null fields."""
    collection, part, change = CHANGES[what]

    for body in BODIES[collection]:
        status, answer = guarded.client_as(who).merge(made(admin, collection, body) + part, change)
        assert status == 200, answer


@pytest.mark.promise("guard-6")
@pytest.mark.parametrize("who", OTHERS)
def test_server_side_apply_still_works(guarded: ControlPlane, who: str) -> None:
    """A pod is created and changed by server-side apply, as installers do."""
    name = named()
    for label in ("a", "b"):
        body = {**objects.pod(name, labels={"app": label}), "apiVersion": "v1", "kind": "Pod"}
        path = f"{PODS}/{name}?fieldManager=tests&force=true"
        status, answer = guarded.client_as(who).call("PATCH", path, body, "application/apply-patch+yaml")
        assert status in {200, 201}, answer


FEW: Final = 4_000
MANY: Final = 8 * FEW
TOO_STEEP: Final = 20
"""Eight times as many annotations take the API server 9 to 12 times as long. The square of their number is 64 times as
much: with policies that loop over all of them, a forgery does not end in time."""
NOISE: Final = 0.1
"""Seconds of CPU that it may take for other work at the same time."""


def spent(plane: ControlPlane) -> float:
    """Return the CPU time of the API server in seconds."""
    fields = Path(f"/proc/{plane.pids['kube-apiserver']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def costs(plane: ControlPlane, admin: KubeClient, scheduler: str, annotations: int) -> dict[str, float]:
    """Return the CPU time in seconds that each request takes for a pod with so many annotations: the least of three."""
    pod = objects.pod("", scheduler=scheduler, annotations={f"{number:x}": "" for number in range(annotations)})
    path = made(admin, PODS, pod)
    bind = binding(path.rpartition("/")[2], {names.ASSIGNED_DEVICES: "0"})
    acts = {
        "binding": ("POST", f"{path}/binding", bind, SCHEDULER, (201, 409, 409)),
        "status": ("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, KUBELET, (200, 200, 200)),
        "label": ("PATCH", path, {"metadata": {"labels": {"app": "x"}}}, "admin", (200, 200, 200)),
        "forgery": ("PATCH", path, annotated({names.ASSIGNED_DEVICES: "1"}), "admin", (403, 403, 403)),
    }
    took = dict.fromkeys(acts, inf)
    for act, (method, where, body, who, expected) in acts.items():
        content = "application/json" if method == "POST" else MERGE_PATCH
        for right in expected:
            before = spent(plane)
            status, answer = plane.client_as(who).call(method, where, body, content)
            took[act] = min(took[act], spent(plane) - before)
            assert status == right, answer
    admin.call("DELETE", path, {"gracePeriodSeconds": 0})
    return took


@pytest.mark.promise("guard-12")
@pytest.mark.parametrize("scheduler", ["gpu-scheduler", "another-scheduler"])
def test_no_pod_makes_a_policy_expensive(guarded: ControlPlane, admin: KubeClient, scheduler: str) -> None:
    """The CPU time of the policies grows with the number of annotations, and not with its square."""
    few, many = (costs(guarded, admin, scheduler, annotations) for annotations in (FEW, MANY))

    steep = {act: (few[act], many[act]) for act in few if many[act] > TOO_STEEP * max(few[act], NOISE)}
    assert steep == {}
