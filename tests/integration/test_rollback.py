"""After `make prepare-rollback` nothing of this version hinders v0.1.0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from gpu_scheduler import names
from tests import deployer, objects
from tests.cluster.plays import Run, run
from tests.integration.accounts import create_account
from tests.integration.controller_manager import start_controller_manager
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.policies import COLLECTIONS, CONTROLLER, GUARDS, REGISTRATION, SCHEDULER, rendered
from tests.integration.programs import program
from tests.integration.workloads import API, controller_plane
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

COMMIT: Final = "b434b27"
# The policies of v0.1.0. Its play writes over those that have the same name in this version.
KNOWN: Final = {"gpu-scheduler-assignments", "gpu-scheduler-node-name", "gpu-scheduler-inputs", "gpu-scheduler-monitor"}
PODS: Final = "/api/v1/namespaces/default/pods"
RENEWER: Final = f"/apis/batch/v1/namespaces/{SYSTEM_NAMESPACE}/cronjobs"
NETWORK: Final = f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/networkpolicies"


class Prepared:
    """A control plane with everything of this version that refuses. A deployer has run the playbook on it."""

    def __init__(self, folder: Path) -> None:
        """Run the playbook."""
        self.plane: ControlPlane = controller_plane(folder)
        self._controllers = start_controller_manager(self.plane, folder)
        try:
            create_account(self.plane, "deployer", yaml.safe_load(deployer.CLUSTER_ROLE.read_text()))
            token = self.plane.service_account_token("default", "deployer")
            self._kubeconfig = self.plane.kubeconfig(folder / "kubeconfig", token)
            for body in (body for template in GUARDS for body in rendered(template)):
                path = f"{REGISTRATION}/{COLLECTIONS[body['kind']]}/{body['metadata']['name']}"
                self.plane.kube.patch(path, {"metadata": {"labels": {"app.kubernetes.io/part-of": "gpu-scheduler"}}})
            self.plane.kube.create(RENEWER, _renewer())
            self.plane.kube.create(NETWORK, _network_policy())
            self.plane.kube.create("/api/v1/nodes", objects.node("node1"))
            self.done = self.play()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the processes."""
        self._controllers.stop()
        self.plane.stop()

    def play(self) -> Run:
        """Run the playbook."""
        kubectl = str(program("kubectl"))
        given = {"kubeconfig": str(self._kubeconfig), "kube_context": "test", "kubectl_program": kubectl}
        playbook = "playbooks/prepare_rollback.yml"
        return run("ansible-playbook", playbook, "-i", "inventory/existing", "-e", json.dumps(given)).succeeded()

    def answer(self, user: str, path: str, body: Object) -> tuple[int, Object]:
        """Return what the API server would make of an object that this user creates."""
        return self.plane.client_as(user).call("POST", f"{path}?dryRun=All", body)


def _renewer() -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "renewer", "image": "none"}]}
    labels = {"app.kubernetes.io/part-of": "gpu-scheduler"}
    return {
        "metadata": {"name": "gpu-scheduler-renewer", "labels": labels},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }


def _network_policy() -> Object:
    labels = {"app.kubernetes.io/part-of": "gpu-scheduler"}
    selector = {"podSelector": {"matchLabels": labels}}
    return {"metadata": {"name": "gpu-scheduler-deny", "labels": labels}, "spec": selector}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """A control plane of this version, made ready for v0.1.0."""
    prepared = Prepared(tmp_path_factory.mktemp("rollback"))
    yield prepared
    prepared.stop()


@pytest.mark.promise("down-6")
@pytest.mark.timeout(300)
def test_what_v0_1_0_does_not_know_is_gone(prepared: Prepared) -> None:
    """Of the policies those of v0.1.0's names stay, which its play writes over. Renewer and NetworkPolicy are gone."""
    listed = prepared.plane.kube.call("GET", f"{REGISTRATION}/validatingadmissionpolicies")[1]["items"]
    bound = prepared.plane.kube.call("GET", f"{REGISTRATION}/validatingadmissionpolicybindings")[1]["items"]

    assert [{each["metadata"]["name"] for each in found} for found in (listed, bound)] == [KNOWN, KNOWN]
    assert [prepared.plane.kube.call("GET", path)[1]["items"] for path in (RENEWER, NETWORK)] == [[], []]
    assert sum(prepared.done.changed.values()) == 3
    assert f"git worktree add ../gpu-scheduler-v0.1.0 {COMMIT}" in prepared.done.output


@pytest.mark.plays
@pytest.mark.promise("down-6")
def test_a_second_run_changes_nothing(prepared: Prepared) -> None:
    """Nothing is left to remove."""
    assert prepared.play().changed == {}


def _workload() -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    return {
        "apiVersion": "agentaflow.io/v1",
        "kind": "GPUWorkload",
        "metadata": {"name": "training"},
        "spec": {"podTemplate": template},
    }


# user, collection and object: what v0.1.0 lets them write.
WRITES: Final[dict[str, Callable[[], tuple[str, str, Object]]]] = {
    "a check pod without an account of its own": lambda: (
        "system:serviceaccount:kube-system:statefulset-controller",
        PODS,
        objects.pod("check", annotations={names.OBSERVER: "true"}),
    ),
    "a pod that keeps its environment": lambda: (
        "admin",
        PODS,
        objects.pod("kept", annotations={names.KEEP_ENV: "true"}),
    ),
    "a GPUWorkload of an account without rights on pods": lambda: (
        "admin",
        f"{API}/namespaces/default/gpuworkloads",
        _workload(),
    ),
    "a pod of the controller without an owner": lambda: (CONTROLLER, PODS, objects.pod("workload")),
    "the scheduler's Lease of another name": lambda: (
        SCHEDULER,
        f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases",
        {"metadata": {"name": "another"}},
    ),
}


@pytest.mark.promise("down-6")
@pytest.mark.parametrize("what", WRITES)
def test_what_v0_1_0_writes_is_not_refused(prepared: Prepared, what: str) -> None:
    """An API server forgets policies a moment late."""
    user, path, body = WRITES[what]()

    eventually(f"{what} is accepted", lambda: prepared.answer(user, path, body)[0] == 201, seconds=20)
