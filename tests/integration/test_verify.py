"""`verify` reads through a real API server's exec what containers have; a stand-in for their kubelet answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.accounts import RBAC, allow_everywhere, rights
from tests.integration.installed import Installed, pods_of
from tests.integration.kubelet import NO_CAT, Kubelet
from tests.integration.policies import allow_use
from tests.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

READ: Final = ["cat", "/proc/1/environ"]
OBSERVER: Final = {"agentaflow.gpu/observer": "true"}


def environ(devices: str, order: str = "PCI_BUS_ID") -> bytes:
    """Return the environment of a process that sees these devices."""
    return f"PATH=/bin\0CUDA_VISIBLE_DEVICES={devices}\0CUDA_DEVICE_ORDER={order}\0HOSTNAME=x\0".encode()


@pytest.fixture
def kubelet(kinds: ControlPlane, populated: Namespace, tmp_path: Path) -> Iterator[Kubelet]:
    """The kubelet of all nodes. The bound pods of `populated` run, and see what they must."""
    kubelet = Kubelet(kinds.serving_context(tmp_path / "kubelet"))
    try:
        for name in ("node1", "node2", "node3", "node4"):
            populated.patch_node(name, {"status": kubelet.node_status})
        start(populated, kubelet, "train-0", main=environ("0,1"))
        start(populated, kubelet, "train-1", main=environ("2"))
        yield kubelet
    finally:
        kubelet.close()


def start(namespace: Namespace, kubelet: Kubelet, name: str, kind: str = "container", **answers: Any) -> None:
    """Write the status of containers that run, as their kubelet does; it answers for each by name."""
    statuses = [
        {"name": each, "state": {"running": {}}, "ready": True, "image": "", "imageID": "", "restartCount": 0}
        for each in answers
    ]
    status = {"phase": "Running", f"{kind}Statuses": statuses}
    namespace.kube.patch(f"{namespace.pods}/{name}/status", {"status": status})
    kubelet.answers.update({(name, each): answer for each, answer in answers.items()})


def verified(cli: Installed, *words: str, code: int = 0) -> list[Any]:
    """Return the items of the verb's JSON.

    It runs as a process of its own: its connections are closed by its end.
    """
    found: list[Any] = json.loads(cli.run("gpu-scheduler", "verify", *words, "-o", "json", code=code))["items"]
    return found


def verdicts(cli: Installed, *words: str, code: int = 0) -> dict[str, tuple[str, str | None]]:
    """Return verdict and reason for each container."""
    found = verified(cli, *words, code=code)
    return {f"{each['name']}/{each['container']}": (each["verdict"], each["why"]) for each in found}


@pytest.mark.promise("verify-1")
def test_what_is_true_is_ok(cli: Installed, populated: Namespace, kubelet: Kubelet) -> None:
    """Each container of each bound pod has a row with what the API server has of it; sidecars and observers too."""
    allow_use(populated.kube, populated.name, "observers")
    sidecar = {"name": "side", "image": objects.IMAGE, "env": objects.literal("1"), "restartPolicy": "Always"}
    body = objects.pod("looks-0", "0=node1:1", objects.literal("1"), annotations=OBSERVER, initContainers=[sidecar])
    populated.make(body)
    populated.wait_bound("looks-0", "node1")
    start(populated, kubelet, "looks-0", main=environ("1"))
    start(populated, kubelet, "looks-0", "initContainer", side=environ("1"))

    shown = verified(cli)

    bound = {pod["metadata"]["uid"]: pod for pod in pods_of(populated) if "nodeName" in pod["spec"]}
    assert [(each["name"], each["container"]) for each in shown] == [
        ("looks-0", "main"),
        ("looks-0", "side"),
        ("train-0", "main"),
        ("train-1", "main"),
    ]
    for each in shown:
        pod = bound[each["uid"]]
        devices = pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"]
        assert (each["verdict"], each["why"]) == ("ok", None)
        assert each["node"] == each["expected"]["node"] == pod["spec"]["nodeName"]
        assert each["expected"]["visibleDevices"] == each["actual"]["visibleDevices"] == devices
        assert each["held"]["devices"] == ([] if each["observer"] else devices.split(","))
    assert {each["name"] for each in shown if each["observer"]} == {"looks-0"}
    assert sorted(kubelet.asked) == sorted((each["name"], each["container"], READ) for each in shown)


@pytest.mark.promise("verify-3")
def test_what_cannot_be_read_is_unseen(cli: Installed, populated: Namespace, kubelet: Kubelet) -> None:
    """A container without `cat`, one that does not run, and a pod that waits: none of them is ok."""
    kubelet.answers["train-0", "main"] = NO_CAT
    waiting = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}]}
    populated.kube.patch(f"{populated.pods}/train-1/status", {"status": waiting})

    found = verdicts(cli, "train-0", "train-1", "late-0", code=3)

    assert found == {
        "late-0/main": ("unseen", text_of("verify: the pod has no node")),
        "train-0/main": ("unseen", text_of("verify: the container has no cat")),
        "train-1/main": ("unseen", text_of("verify: the container does not run", why="ErrImagePull")),
    }


@pytest.fixture
def jane(kinds: ControlPlane, populated: Namespace, tmp_path: Path) -> Iterator[Callable[[list[str]], Installed]]:
    """Return a function that makes a user who may list everything and has these verbs on pods/exec."""
    name = f"{populated.name}-jane"

    def make(verbs: list[str]) -> Installed:
        listed = (rights(each, "list", group="*") for each in ("pods", "nodes", "leases"))
        read = (rights(each, "get", group="*") for each in ("configmaps", "deployments"))
        executing = [rights("pods/exec", *verbs, group="")] if verbs else []
        allow_everywhere(populated.kube, populated.name, "jane", name, *listed, *read, *executing)
        return Installed(tmp_path / "jane", kinds, kinds.service_account_token(populated.name, "jane"), populated.name)

    (tmp_path / "jane").mkdir()
    yield make
    for resource in ("clusterrolebindings", "clusterroles"):
        populated.kube.delete(f"{RBAC}/{resource}/{name}")


MISSING: Final = {
    "none": ([], 'cannot get resource "pods/exec"'),
    "create": (["create"], 'cannot get resource "pods/exec"'),
    # Of the second right newer API servers say only that something is forbidden.
    "get": (["get"], "is forbidden; "),
}


@pytest.mark.promise("verify-3")
@pytest.mark.parametrize(("verbs", "refusal"), MISSING.values(), ids=MISSING)
def test_a_missing_right_is_named(
    verbs: list[str], refusal: str, jane: Callable[[list[str]], Installed], populated: Namespace, kubelet: Kubelet
) -> None:
    """A user who may list everything but not exec gets rows that are unseen, and the rights that exec needs."""
    user = jane(verbs)

    found, complaint = verdicts(user, code=3), user.complaint("gpu-scheduler", "verify", "-o", "name", code=3)

    assert found == dict.fromkeys(("train-0/main", "train-1/main"), ("unseen", text_of("verify: no right to exec")))
    assert refusal in complaint
    assert "get and create on pods/exec" in complaint
    assert kubelet.asked == []
