"""Cordons on a real API server: the command line writes, the scheduler obeys and confirms, the policies guard."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.accounts import RBAC, allow_everywhere, binding, rights
from tests.integration.command import start_alone
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.installed import Installed, interrupted, read_until
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.workloads import API
from tests.messages import says, text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads

GPU_NODES: Final = f"{API}/gpunodes"
ME: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:operator"
REASON: Final = ("--reason", "fan noise")
# Nothing else is granted to whoever takes GPUs out of service, beside what lets the verbs read the installation.
READS: Final = (
    *(rights(each, "get", "list", group="apps") for each in ("deployments", "replicasets", "statefulsets")),
    *(rights(each, "get", "list", group="") for each in ("configmaps", "persistentvolumeclaims", "persistentvolumes")),
    rights("storageclasses", "list", group="storage.k8s.io"),
    rights("leases", "get", "list", group="coordination.k8s.io"),
)


@pytest.fixture(scope="module")
def me(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The command line of an operator: bound to the role that is shipped, and allowed to read."""
    allow_everywhere(kinds.kube, SYSTEM_NAMESPACE, "operator", "operator-reads", *READS)
    operates = binding("operator", "ClusterRole", "gpu-scheduler-operator", "operator", SYSTEM_NAMESPACE)
    kinds.kube.create(f"{RBAC}/clusterrolebindings", operates)
    token = kinds.service_account_token(SYSTEM_NAMESPACE, "operator")
    return Installed(tmp_path_factory.mktemp("me"), kinds, token, "default")


@pytest.fixture
def place(workloads: Workloads, running: Command) -> Iterator[Namespace]:
    """A namespace, and node1 and node2 with two known devices each."""
    namespace = workloads.namespace
    for name in ("node1", "node2"):
        namespace.node(name, annotations=objects.inventory(objects.device(0), objects.device(1)))
    yield namespace
    status, answer = namespace.kube.call("DELETE", GPU_NODES)
    assert status == 200, answer


def line(name: str, text: str, **more: Any) -> Any:
    """Return a pod with a map, which shares its devices."""
    return objects.pod(name, text, objects.reading(), annotations={"agentaflow.gpu/sharing": "any"}, **more)


def cordoned(place: Namespace, node: str = "node1") -> list[tuple[str, int | None, str]]:
    """Return device, index and author of each cordon."""
    found = place.kube.get(f"{GPU_NODES}/{node}")
    entries = [] if found is None else found["spec"].get("cordoned", [])
    return [(entry["device"], entry.get("index"), entry["by"]) for entry in entries]


@pytest.mark.promise("cordon-2")
def test_a_new_leader_confirms_what_its_predecessor_did_not(
    kinds: ControlPlane, workloads: Workloads, me: Installed, tmp_path: Path
) -> None:
    """While none runs, the command ends with an error, and the cordon is kept for the next."""
    place = workloads.namespace
    place.node("node1")
    complaint = me.complaint("gpu-scheduler", "cordon", "node1:0", *REASON, "--timeout", "1s", code=1)
    assert text_of("cordon: the scheduler has not answered", node="node1") in complaint
    with start_alone(kinds, tmp_path, "late").serving():
        me.items("cordon", "node1:0", "--reason", "still noisy")
    place.kube.call("DELETE", GPU_NODES)


@pytest.mark.promise("cordon-1", "cordon-4")
def test_a_cordoned_gpu_is_given_to_nobody(place: Namespace, me: Installed) -> None:
    """By map and by strategy; every view names who took it away; back in service, the pods that wait are placed."""
    (item,) = me.items("cordon", "node1:0", *REASON)
    assert (item["device"], item["index"], item["by"]) == (objects.gpu(0), 0, ME)
    assert cordoned(place) == [(objects.gpu(0), 0, ME)]

    place.make(line("mapped", "0=node1:0"))
    place.make(objects.pod("counted", None, objects.reading(), annotations={"agentaflow.gpu/count": "1"}))
    message = place.wait_message("mapped", "GpuCordoned: ")
    says(message, "GpuCordoned", "GPU 0", objects.gpu(0), ME, '"fan noise"')
    assert message.endswith(f": kubectl gpu-scheduler uncordon node1:{objects.gpu(0)}")
    eventually("the other is placed", lambda: place.node_of("counted"))
    assert place.read("counted")["metadata"]["annotations"][objects.ASSIGNED] == "1"

    (explained,) = me.items("explain", "mapped", "-n", place.name, code=1)
    assert "cordoned" in str(explained)
    node1, _ = me.items("nodes")
    assert next((each["device"], each["cordoned"], each["available"]) for each in node1["cards"]) == ("0", True, False)
    assert f"cordoned by {ME}" in node1["why"]
    assert (
        me.run("gpu-scheduler", "uncordon", "node1:0")
        == f"gpunode.agentaflow.io/node1 uncordoned: GPU {objects.gpu(0)} (index 0)\n"
    )
    eventually("it is placed", lambda: place.node_of("mapped"))
    assert cordoned(place) == []
    assert "Nothing to do: node1:0 is not cordoned" in me.complaint("gpu-scheduler", "uncordon", "node1:0", code=0)


@pytest.mark.usefixtures("place")
@pytest.mark.promise("cordon-1")
def test_a_watch_shows_a_cordoned_gpu_as_not_free(kinds: ControlPlane, me: Installed, tmp_path: Path) -> None:
    """From the moment at which it is cordoned until it is back in service (P6)."""
    watch = Installed(tmp_path, kinds, ADMIN_TOKEN, "default").start("gpu-scheduler", "watch")
    begun = read_until(watch, "node1 ", "node2 ")
    assert begun.count("2 GPUs, 0 held, 2 free") == 2
    me.items("cordon", "node1:0", *REASON)
    read_until(watch, "2 GPUs, 0 held, 1 free")
    me.run("gpu-scheduler", "uncordon", "node1:0")
    read_until(watch, "2 GPUs, 0 held, 2 free")
    interrupted(watch)


@pytest.mark.promise("cordon-2")
def test_no_bind_comes_after_the_command_has_ended(place: Namespace, me: Installed) -> None:
    """Pods for the device are created all the time; those that are bound when `cordon` ends stay the only ones."""
    stop, made = threading.Event(), list[str]()

    def create() -> None:
        while not stop.is_set():
            owner = f"racer{len(made)}"
            place.make(line(f"{owner}-0", "0=node1:0", owner=("StatefulSet", owner)))
            made.append(f"{owner}-0")

    def bound() -> set[str]:
        _, answer = place.kube.call("GET", place.pods)
        return {pod["metadata"]["name"] for pod in answer["items"] if pod["spec"].get("nodeName")}

    thread = threading.Thread(target=create)
    thread.start()
    try:
        eventually("some are bound", lambda: len(bound()) > 20)
        me.items("cordon", "node1:0", *REASON)
        before, created = bound(), len(made)
        eventually("more are created", lambda: len(made) > created + 30, seconds=30)
    finally:
        stop.set()
        thread.join()
    place.wait_message(made[-1], "GpuCordoned: ")

    assert bound() == before


@pytest.mark.promise("cordon-3")
def test_a_cordon_outlives_its_node_and_the_scheduler(
    place: Namespace, me: Installed, kinds: ControlPlane, tmp_path: Path
) -> None:
    """A node that is made anew, and a scheduler that starts anew, know it. One that ends by itself does so."""
    me.items("cordon", "node1", *REASON)
    place.kube.delete("/api/v1/nodes/node1")
    place.node("node1")
    place.make(line("anew", "0=node1:0"))
    says(place.wait_message("anew", "GpuCordoned: "), "GpuCordoned", "node1", ME, '"fan noise"')

    me.items("cordon", "node2:1", *REASON, "--until", "3s")
    place.make(line("later", "0=node2:1"))
    assert " until " in place.wait_message("later", "GpuCordoned: ")
    eventually("it ends", lambda: place.node_of("later"), seconds=20)
    assert cordoned(place) == [("*", None, ME)]
    me.run("gpu-scheduler", "uncordon", "node1")
    eventually("it is placed", lambda: place.node_of("anew"))


def test_a_gpunode_goes_with_its_node_unless_something_is_cordoned(place: Namespace, me: Installed) -> None:
    """So that a cluster whose nodes come and go keeps no GPUNodes of nodes that are gone."""
    for name in ("node1", "node2"):
        me.items("cordon", f"{name}:0", *REASON)
    me.run("gpu-scheduler", "uncordon", "node2:0")
    for name in ("node1", "node2"):
        place.kube.delete(f"/api/v1/nodes/{name}")

    eventually("it is deleted", lambda: place.kube.get(f"{GPU_NODES}/node2") is None)
    assert cordoned(place) == [(objects.gpu(0), 0, ME)]
    me.run("gpu-scheduler", "uncordon", f"node1:{objects.gpu(0)}")
    eventually("it is deleted too", lambda: place.kube.get(f"{GPU_NODES}/node1") is None)


@pytest.mark.promise("cordon-5")
def test_a_drain_lists_evicts_and_waits(place: Namespace, me: Installed) -> None:
    """A bare pod needs --force, a disruption budget is kept, and pods on other devices stay."""
    place.make(line("first", "0=node1:0"))
    place.make(line("second", "0=node1:0\n1=node2:0", labels={"app": "kept"}))
    place.make(line("elsewhere", "0=node1:1"))
    for name in ("first", "second", "elsewhere"):
        eventually(f"{name} is placed", partial(place.node_of, name))
        # A disruption budget counts only pods that run.
        place.finish(name, "Running")
    refused = me.complaint("gpu-scheduler", "drain", "node1:0", *REASON, code=1)
    assert '"first", "second"' in refused
    budget = {"metadata": {"name": "kept"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}}
    budgets = f"/apis/policy/v1/namespaces/{place.name}/poddisruptionbudgets"
    place.kube.create(budgets, budget)

    with place.kubelets():
        stayed = me.complaint("gpu-scheduler", "drain", "node1:0", "--force", "--timeout", "2s", code=1)

    assert f"{place.name}/second stays for now: " in stayed
    assert text_of("drain: a pod has not ended in time", pod=f"{place.name}/second", seconds=2) in stayed
    assert place.kube.get(f"{place.pods}/first") is None
    place.kube.delete(f"{budgets}/kept")
    with place.kubelets():
        (item,) = me.items("drain", "node1:0", "--force")
    assert (item["name"], item["outcome"]) == ("second", "lost")
    assert place.kube.get(f"{place.pods}/second") is None
    assert place.node_of("elsewhere") == "node1"
    assert text_of("drain: no pod is found", node="node1") in me.complaint("gpu-scheduler", "drain", "node1:0", code=0)


WRONG: Final = {
    "no such node": (("cordon", "nowhere", *REASON), 'cordon "nowhere": no node'),
    "no such device": (("cordon", "node1:7", *REASON), 'cordon "node1:7": node1 has no GPU "7"'),
    "no device": (("cordon", "node1:", *REASON), 'cordon "node1:": it must be NODE'),
    "nonsense as a device": (("cordon", "node1:-1", *REASON), 'cordon "node1:-1": it must be NODE'),
    "an empty reason": (("cordon", "node1", "--reason", " "), '--reason " "'),
    "an end in the past": (
        ("cordon", "node1", *REASON, "--until", "2020-01-01T00:00:00Z"),
        '--until "2020-01-01T00:00:00Z"',
    ),
    "an end without a zone": (("cordon", "node1", *REASON, "--until", "2099-01-01T00:00:00"), "--until"),
    "an end that is no time": (("cordon", "node1", *REASON, "--until", "soon"), '--until "soon"'),
    "a drain without a reason": (("drain", "node1:0"), "--reason"),
    "a time-out that is none": (("cordon", "node1", *REASON, "--timeout", "0"), '--timeout "0"'),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_used_changes_nothing(place: Namespace, me: Installed, what: str) -> None:
    """One sentence: what cannot be used, the rule, and an example that works."""
    words, message = WRONG[what]

    refused = me.refused("gpu-scheduler", *words, code=2)

    assert message in refused
    assert "(example" in refused
    assert cordoned(place) == []


def test_a_trial_writes_nothing(place: Namespace, me: Installed) -> None:
    """With --dry-run=server the API server checks everything, and stores nothing."""
    place.make(line("first", "0=node1:0"))
    eventually("it is placed", lambda: place.node_of("first"))
    tried = me.run("gpu-scheduler", "cordon", "node1:0", *REASON, "--dry-run=server")
    assert tried == f"gpunode.agentaflow.io/node1 cordoned: GPU {objects.gpu(0)} (index 0) (server dry run)\n"

    (item,) = me.items("drain", "node1:0", *REASON, "--dry-run", "server")

    assert item["name"] == "first"
    assert cordoned(place) == []
    assert place.node_of("first") == "node1"
