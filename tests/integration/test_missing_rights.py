"""`gpu-scheduler run` outside the cluster, with the rights of the source document's guide, and with none."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests import objects
from tests.integration.accounts import collections
from tests.integration.command import Command
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.namespace import Namespace
from tests.integration.programs import program
from tests.integration.request_counts import requests
from tests.messages import pattern, text_of
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# As the source document has it ("Option A: Direct Python Execution", step 2).
GUIDE: Final = """
apiVersion: v1
kind: ServiceAccount
metadata:
  name: gpu-scheduler
  namespace: kube-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: gpu-scheduler
rules:
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch", "patch"]
- apiGroups: [""]
  resources: ["pods/binding"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["get", "list"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: gpu-scheduler
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: gpu-scheduler
subjects:
- kind: ServiceAccount
  name: gpu-scheduler
  namespace: kube-system
"""
COLLECTIONS: Final = collections("kube-system")
MISSING_RIGHT: Final = re.compile(pattern("the scheduler lacks a right"))
MISSING: Final = (
    'list, watch configmaps "gpu-scheduler-limits" in namespace gpu-scheduler-system',
    "list, watch leases.coordination.k8s.io in namespace gpu-scheduler-monitor",
    "watch nodes",
    "patch pods/status",
    "create events.events.k8s.io",
    "list, watch persistentvolumeclaims",
    "list, watch persistentvolumes",
    "list, watch storageclasses.storage.k8s.io",
    "patch persistentvolumeclaims",
    'list, watch configmaps "gpu-scheduler-settings" in namespace gpu-scheduler-system',
)
"""The rights of the role that the guide does not grant, without those to the Lease."""
ALONE: Final = "--leader-elect=false"


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane on which nothing of ours is installed, with the guide's account."""
    plane = ControlPlane(tmp_path_factory.mktemp("guide"))
    try:
        eventually("kube-system exists", lambda: plane.kube.get("/api/v1/namespaces/kube-system"), seconds=30)
        for body in yaml.safe_load_all(GUIDE):
            plane.kube.create(COLLECTIONS[body["kind"]], body)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def train(guide: ControlPlane) -> Namespace:
    """A namespace of pods, with node1."""
    namespace = Namespace(guide.kube, "train")
    namespace.node("node1")
    return namespace


def start(plane: ControlPlane, folder: Path, account: str, *options: str, **env: str) -> Command:
    """Run the scheduler with a real token of an account of kube-system."""
    kubeconfig = plane.kubeconfig(folder / "kubeconfig", plane.service_account_token("kube-system", account))
    return Command(folder, account, ["run", "--kubeconfig", str(kubeconfig), *options], env)


@pytest.fixture(scope="module")
def alone(guide: ControlPlane, train: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The scheduler with the guide's rights, which elects no leader."""
    assert train.name
    with start(guide, tmp_path_factory.mktemp("alone"), "gpu-scheduler", ALONE).serving() as command:
        yield command


def missing(command: Command) -> list[str]:
    """Return the rights that the log names as missing, in its order."""
    events = [str(line["event"]) for line in command.lines()]
    found = (MISSING_RIGHT.match(event) for event in events)
    return [match["rights"] for match in found if match]


@pytest.mark.promise("lead-8")
def test_the_guides_rights_are_enough_to_place_pods(alone: Command, train: Namespace) -> None:
    """Each missing right is named once, and readiness does not fail for it."""
    for name, env in (("literal-0", objects.literal("0,1")), ("reading-0", objects.reading())):
        train.make(objects.pod(name, "0=node1:0,1" if name == "literal-0" else "0=node1:2", env))

    train.wait_bound("literal-0", "node1")
    assert train.placed("reading-0").devices == "2"
    assert alone.get("/readyz") == (200, "ok")
    assert missing(alone) == list(MISSING)


def test_pods_of_the_guide_wait_for_their_variable(alone: Command, train: Namespace) -> None:
    """Without the webhook they have none. The log says so, because the pod cannot be given a condition or an event."""
    train.pod("bare-0", "0=node1:3", None)

    eventually("the log says why", lambda: alone.logged("train/bare-0 waits: EnvNotInjected: "))
    assert train.node_of("bare-0") == ""
    assert train.condition("bare-0") == {}
    assert train.events("bare-0") == []


def test_a_pod_with_a_claim_waits_for_the_right_to_read_it(alone: Command, train: Namespace) -> None:
    """The message names the rights, and does not say that the claim is missing."""
    train.make(objects.pod("claim-0", "0=node1:3", objects.literal("3"), claims=("data",)))

    rights = "list, watch persistentvolumeclaims; list, watch persistentvolumes; list, watch storageclasses"
    missing = text_of("a scheduler without rights cannot check a claim", claim="train/data").partition("{rights}")[0]
    eventually("the log says why", lambda: alone.logged(f"train/claim-0 waits: {missing}{rights}"))
    assert train.node_of("claim-0") == ""


def test_a_new_node_is_seen_without_the_right_to_watch(alone: Command, train: Namespace) -> None:
    """Nodes are listed every ten seconds."""
    train.pod("later-0", "0=node2:0", "0")
    eventually("the node is not known", lambda: alone.logged("train/later-0 waits: NodeNotFound: "))

    train.node("node2")

    train.wait_bound("later-0", "node2", seconds=30)


@pytest.mark.promise("steer-4")
def test_readings_that_may_be_old_are_not_used(alone: Command, train: Namespace) -> None:
    """The Lease of the node's monitor may not be read. A node whose devices an operator has listed gets the pod."""
    listed = objects.inventory(objects.device(0))
    train.node("read", annotations={**listed, "agentaflow.gpu/last-update": "2026-11-21T12:00:00Z"})
    count = {"agentaflow.gpu/count": "1"}
    for name in ("first", "second"):
        train.make(objects.pod(name, None, objects.reading(), annotations=count))
    eventually("both wait", lambda: alone.logged("train/second waits: GpuUnhealthy: "), seconds=30)

    train.node("listed", annotations=listed)

    eventually("one is bound", lambda: "listed" in {train.node_of("first"), train.node_of("second")}, seconds=30)
    assert "read" not in {train.node_of("first"), train.node_of("second")}


def test_nothing_is_asked_for_without_the_right(alone: Command, guide: ControlPlane, train: Namespace) -> None:
    """No request is refused: there is no retry, and no line of the log is repeated."""
    assert train.node_of("literal-0") == "node1"

    assert {what: times for what, times in requests(guide.kube, "403").items() if times} == {}
    assert Counter(missing(alone)).most_common(1)[0][1] == 1
    assert not alone.logged("Watching failed")
    assert not alone.logged("refused")


@pytest.mark.promise("lead-8")
def test_without_the_right_to_a_lease_it_refuses_to_run(guide: ControlPlane, tmp_path: Path) -> None:
    """It never runs without an election unasked: the sentence names the option."""
    command = start(guide, tmp_path, "gpu-scheduler")

    assert command.process.wait(30) == 2
    said = command.process.output().splitlines()[-1]
    assert said.startswith('cannot schedule as "system:serviceaccount:kube-system:gpu-scheduler": ')
    assert ' get, update leases.coordination.k8s.io "gpu-scheduler" in namespace gpu-scheduler-system; create ' in said
    assert said.endswith("(example: gpu-scheduler run --kubeconfig FILE --leader-elect=false)")


def test_the_commands_of_the_log_grant_all_rights(
    alone: Command, guide: ControlPlane, train: Namespace, tmp_path: Path
) -> None:
    """An account without any right gets one sentence. With what the log says, nothing is missing any more.

    With `ISOLATION=dra`, which needs the most rights.
    """
    alone.process.stop()
    for name in ("gpu-scheduler-system", "gpu-scheduler-monitor"):
        guide.kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
    guide.kube.create(COLLECTIONS["ServiceAccount"], {"metadata": {"name": "newcomer"}})
    refused = start(guide, tmp_path, "newcomer", ISOLATION="dra")
    assert refused.process.wait(30) == 2
    sentence = refused.process.output().splitlines()[-1]
    assert sentence.startswith(
        'cannot schedule as "system:serviceaccount:kube-system:newcomer": it may not list, watch pods; '
        "create pods/binding; list nodes; get, update leases"
    )
    grants = [str(line["grant"]) for line in refused.lines() if "grant" in line]
    assert len(grants) == len(missing(refused)) == 22
    env = {
        "PATH": f"{program('kubectl').parent}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(guide.kubeconfig(tmp_path / "admin", ADMIN_TOKEN)),
        "HOME": str(tmp_path),
    }
    for commands in grants:
        done = subprocess.run(
            ["sh", "-c", commands], env=env, capture_output=True, text=True, timeout=limit(60), check=False
        )
        assert done.returncode == 0, (commands, done.stderr)

    (tmp_path / "granted").mkdir()
    with start(guide, tmp_path / "granted", "newcomer", ISOLATION="dra").serving(leads=True) as command:
        train.node("node3")
        train.pod("granted-0", "0=node3:0", "0")
        train.wait_bound("granted-0", "node3")
        train.wait_event("granted-0", "Scheduled")
        train.wait_message("bare-0", "EnvNotInjected: ")
        assert missing(command) == []
