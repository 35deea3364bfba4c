"""Types the commands of README.md and docs/*.md that need no kubelet, page by page and in the order of each page.

Every command must end with the exit status that its page promises. The cluster is a complete installation without
kubelets: what a kubelet writes is written here.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.names import MONITOR
from tests import doc_commands, objects
from tests.contracts.roles import ROOT
from tests.integration.accounts import allow, allow_everywhere
from tests.integration.complete import NODE, CompleteInstallation
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.controller_manager import OF_DELETIONS, start_controller_manager
from tests.integration.installed import Installed
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.namespace import Namespace
from tests.integration.pod_controllers import APPS, collection
from tests.integration.programs import program
from tests.integration.workloads import API
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.doc_commands import PageCommand
    from tests.objects import Object

COMMANDS: Final = doc_commands.run_by(doc_commands.ON_API_SERVER)
_numbers = itertools.count(1)
REMOVAL: Final = "ours="
"""How the block begins that removes the whole installation: it is typed last."""
CLUSTER_WIDE: Final = (
    "namespaces",
    "clusterroles",
    "clusterrolebindings",
    "flowschemas",
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
OTHERS: Final = "agentaflow"
"""The namespace of docs/workloads.md."""
PAIR: Final = "0=node1:0,1\n1=node2:2\n"
FOUR_LINES: Final = f"{PAIR}2=node3:0\n3=node1:1\n"
EIGHT_LINES: Final = "".join(f"{index}=node{index % 4 + 1}:{index // 4}\n" for index in range(8))


class Reader:
    """A reader of one page: a shell in a folder of its own, a namespace, and four nodes of four devices."""

    def __init__(self, complete: CompleteInstallation, folder: Path, name: str) -> None:
        """Create namespace, nodes and folder. One device of node3 is unhealthy."""
        self.kube = complete.kube
        self.namespace = Namespace(complete.kube, name)
        self.folder = folder / "reader"
        self.folder.mkdir()
        self.environment = {**Installed(folder, complete.plane, ADMIN_TOKEN, name).env, "EDITOR": "true"}
        for number in (2, 3, 4):
            devices = [{**objects.device(index), "memoryTotalMiB": 16384} for index in range(4)]
            if number == 3:
                devices[2] |= {"health": "unhealthy", "temperature": 91}
            alias = "small" if number == 3 else None
            self.namespace.node(f"node{number}", annotations=objects.inventory(*devices), alias=alias)

    def write(self, file: str, *bodies: Object | str) -> None:
        """Write a manifest that the page names and does not show."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("---\n".join(body if isinstance(body, str) else f"{json.dumps(body)}\n" for body in bodies))

    def type(self, commands: list[PageCommand], values: Mapping[str, str]) -> None:
        """Run the commands in one shell. Each must end with the exit status that the page promises."""
        self.run(doc_commands.script(commands, values))

    def run(self, script: str) -> str:
        """Run a script of bash, which must succeed. Return what it prints."""
        done = subprocess.run(
            ("bash", "-c", script),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit(60),
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def ours(self) -> list[str]:
        """Return kind and name of our cluster-wide objects."""
        found = self.run(f"kubectl get {','.join(CLUSTER_WIDE)} -o name").split()
        return [name for name in found if "gpu-scheduler" in name or name.endswith(".agentaflow.io")]

    def busy(self) -> None:
        """Two pods hold GPUs, and a third waits for one of them."""
        self.namespace.pod("train-0", PAIR, "0,1")
        self.namespace.pod("train-1", PAIR, "2")
        self.namespace.wait_bound("train-0", "node1")
        self.namespace.wait_bound("train-1", "node2")
        self.namespace.pod("late-0", "0=node1:1\n", "1")
        self.namespace.wait_message("late-0", "GpuHeld: ")

    def create(self, body: Object) -> None:
        """Create a controller in the namespace."""
        self.kube.create(collection(self.namespace.name, body["kind"]), body)

    def delete_controllers(self) -> None:
        """Delete the controllers of the namespace, and at last its pods."""
        for kind in APPS:
            self.kube.call("DELETE", collection(self.namespace.name, kind))
        self.namespace.empty()

    def leave(self) -> None:
        """Delete what the page made; its nodes also where a pod of it stays, so that only this page fails."""
        try:
            self.delete_controllers()
            self.kube.call("DELETE", f"{API}/gpunodes?fieldSelector=metadata.name!={NODE}")
            self.kube.merge(f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": None}})
            eventually("its pods are gone", self._gone)
        finally:
            self.namespace.clear()

    def _gone(self) -> bool:
        """Delete workloads and pods, and return whether none was left before, as Namespace.wait_empty does."""
        left = []
        for name in (self.namespace.name, OTHERS):
            self.kube.call("DELETE", f"{API}/namespaces/{name}/gpuworkloads")
            pods = f"/api/v1/namespaces/{name}/pods"
            left += self.kube.call("GET", pods)[1]["items"]
            self.kube.call("DELETE", f"{pods}?gracePeriodSeconds=0")
        self.namespace.empty()
        return not left


def template(text: str | None, name: str, **more: Any) -> Object:
    """Return the template of a controller that users write."""
    made = objects.pod("", text, [], **more)
    made["metadata"] = {"labels": {"app": name}, "annotations": made["metadata"]["annotations"]}
    return made


def controller(kind: str, name: str, replicas: int, text: str | None, **more: Any) -> Object:
    """Return a controller whose pods have a map, or ask for a count."""
    annotations = {f"agentaflow.gpu/{key}": value for key, value in more.items()}
    spec: Object = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template(text, name, annotations=annotations),
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def bare(name: str, text: str | None, **more: Any) -> Object:
    """Return a pod that a user writes."""
    return {"apiVersion": "v1", "kind": "Pod", **objects.pod(name, text, [], **more)}


def _of_readme(reader: Reader) -> None:
    reader.namespace.pod("train-3", "3=node4:3\n", "3")
    reader.namespace.wait_bound("train-3", "node4")
    reader.namespace.pod("train-b-0", "0=node4:3\n", "3")
    reader.namespace.wait_message("train-b-0", "GpuHeld: ")
    reader.write("pod.yaml", bare("wrong", "0=node1:0\n1=node9:x\n"))


def _with_wrong_file(reader: Reader) -> None:
    """A pod waits, and a manifest has a fault."""
    reader.busy()
    reader.namespace.storage("Immediate")
    reader.namespace.claim("data")
    reader.write("wrong.yaml", bare("wrong", "0=node1:0\n1=node9:x\n"))


def _of_cli(reader: Reader) -> None:
    reader.busy()
    reader.create(controller("StatefulSet", "train", 0, PAIR))
    reader.write("pod.yaml", bare("made-0", None))
    reader.write("elsewhere", json.dumps(_kubeconfig_of_nobody()))


def _kubeconfig_of_nobody() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {"token": "none"}}],
    }


def _misspelt_workload(reader: Reader) -> None:
    reader.write("my-workload.yaml", {**objects.gpu_workload("my-workload", gpus=1)})


def _of_explain(reader: Reader) -> None:
    reader.busy()
    reader.kube.create(f"{API}/namespaces/{reader.namespace.name}/gpuworkloads", objects.gpu_workload("job"))
    eventually("the job has a pod", partial(reader.kube.get, f"{reader.namespace.pods}/job-0"), seconds=20)
    eventually("its pod is placed", lambda: reader.namespace.node_of("job-0"))
    reader.write("new.yaml", bare("new-0", "0=node1:0\n"))


def _of_helm(reader: Reader) -> None:
    for grant in (allow, allow_everywhere):
        grant(reader.kube, SYSTEM, "gpu-scheduler-issuer", "gpu-scheduler-issuer")


def _of_boards(reader: Reader) -> None:
    """Make the namespace of Grafana."""
    reader.kube.create("/api/v1/namespaces", {"metadata": {"name": "monitoring"}})


def _with_helm(reader: Reader) -> None:
    """Put helm beside kubectl."""
    (Path(reader.environment["PATH"].partition(":")[0]) / "helm").symlink_to(program("helm"))


def _of_few_rights(reader: Reader) -> None:
    reader.kube.create("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "gpu-scheduler"}})


def _of_lint(reader: Reader) -> None:
    reader.write("train.yaml", controller("StatefulSet", "train", 5, "0=node1:0\n1=node1:1\n2=node1:2\n"))


def _of_monitor(reader: Reader) -> None:
    """Write what role monitor installs, and the tests' installation lacks."""
    pods = f"/api/v1/namespaces/{MONITOR}"
    reader.kube.create(f"{pods}/configmaps", {"metadata": {"name": MONITOR}, "data": {"inventory.yaml": "{}"}})
    labels = {"app.kubernetes.io/component": "monitor"}
    reader.kube.merge(f"{pods}/pods/monitor-{NODE}", {"metadata": {"labels": labels}})


def _of_plan(reader: Reader) -> None:
    """One pod runs."""
    reader.create(controller("StatefulSet", "train", 1, EIGHT_LINES))
    eventually("train-0 exists", partial(reader.kube.get, f"{reader.namespace.pods}/train-0"))
    reader.namespace.wait_bound("train-0", "node1")
    reader.write("train.yaml", controller("StatefulSet", "new", 2, "0=node4:2\n1=node4:3\n"))
    reader.write("more/infer.yaml", controller("Deployment", "infer", 1, None, count="1"))


def _some_run(reader: Reader) -> None:
    """Four pods run, and another workload's pod waits for a GPU of the first."""
    reader.delete_controllers()
    reader.create(controller("StatefulSet", "train", 4, FOUR_LINES))
    for index, node in enumerate(("node1", "node2", "node3", "node1")):
        eventually(f"train-{index} exists", partial(reader.kube.get, f"{reader.namespace.pods}/train-{index}"))
        reader.namespace.wait_bound(f"train-{index}", node)
    reader.namespace.pod("debug-0", "0=node1:0\n", "0")
    reader.namespace.wait_message("debug-0", "GpuHeld: ")
    reader.write("late.yaml", bare("late-0", "0=node1:0\n"))


def _of_replay(reader: Reader) -> None:
    reader.busy()
    reader.namespace.pod("lost-0", "0=node7:0\n", "0")
    reader.namespace.wait_message("lost-0", "NodeNotFound: ")


def _without_the_holder(reader: Reader) -> None:
    """Write the snapshot as if train-0 had ended."""
    head, *lines = (reader.folder / "cluster.snapshot").read_text().splitlines()
    kept = [line for line in lines if '"name":"train-0"' not in line.replace(" ", "")]
    assert len(kept) == len(lines) - 1
    shorter = re.sub(rf"\b{len(lines)}\b", str(len(kept)), head)
    (reader.folder / "other.snapshot").write_text("\n".join((shorter, *kept, "")))


def _of_troubleshooting(reader: Reader) -> None:
    _with_wrong_file(reader)
    three = "0=node1:0\n1=node1:1\n2=node1:2\n"
    reader.write("train.yaml", controller("StatefulSet", "train", 3, "0=node1:0\n1=node2;2\n"))
    reader.write("eval.yaml", controller("StatefulSet", "eval", 5, three))
    reader.write("serve.yaml", controller("Deployment", "serve", 3, three))


def _of_workloads(reader: Reader) -> None:
    reader.write("wrong.yaml", objects.gpu_workload("wrong", schedulingStrategy="fastest"))


def _becomes(phase: str, reader: Reader) -> None:
    """Write the phase of the workload's pod, as its kubelet does."""
    path = f"/api/v1/namespaces/{OTHERS}/pods/my-training-job-0"

    def bound() -> bool:
        return bool((reader.kube.get(path) or {"spec": {}})["spec"].get("nodeName"))

    eventually("the workload's pod is bound", bound, seconds=20)
    reader.kube.patch(f"{path}/status", {"status": {"phase": phase}})


@dataclass(frozen=True, slots=True)
class Walk:
    """How one page is read."""

    set_up: Callable[[Reader], None] = lambda _: None
    values: Mapping[str, str] = field(default_factory=dict)
    """What a reader writes in place of a word of the page."""
    before: Mapping[str, Callable[[Reader], None]] = field(default_factory=dict)
    """How a command begins → what happens before it."""


OF_REASONS: Final = {"POD": "late-0", "NODE": "node3", "GPU": "2", "CLAIM": "data", "FILE": "wrong.yaml"}
OF_CHECKOUT: Final = {
    path: str(ROOT / path)
    for path in ("roles/observability/files/boards", "charts/gpu-scheduler", "charts/gpu-scheduler-check")
}
"""What a page names by its place in the checkout."""
WALKS: Final = {
    "README.md": Walk(_of_readme),
    "docs/alerts.md": Walk(_with_wrong_file, OF_REASONS),
    "docs/boards.md": Walk(_of_boards, OF_CHECKOUT),
    "docs/chart-values.md": Walk(_with_helm, OF_CHECKOUT),
    "docs/cli.md": Walk(_of_cli, before={"gpu-scheduler submit": _misspelt_workload}),
    "docs/cordon.md": Walk(),
    "docs/crds.md": Walk(),
    "docs/doctor.md": Walk(),
    "docs/explain.md": Walk(_of_explain),
    "docs/helm.md": Walk(_of_helm),
    # This installation has one replica of each program.
    "docs/how-it-works.md": Walk(_of_few_rights, {"--replicas=2": "--replicas=1"}),
    "docs/isolation.md": Walk(),
    "docs/lint.md": Walk(_of_lint),
    "docs/monitor.md": Walk(_of_monitor, {"gpu-a": NODE}),
    "docs/monitoring.md": Walk(),
    "docs/network-policies.md": Walk(),
    "docs/plan.md": Walk(_of_plan, before={"gpu-scheduler plan -f .": _some_run}),
    "docs/reasons.md": Walk(_with_wrong_file, OF_REASONS),
    "docs/replay.md": Walk(_of_replay, before={"gpu-scheduler replay other.snapshot": _without_the_holder}),
    "docs/settings.md": Walk(),
    "docs/troubleshooting.md": Walk(_of_troubleshooting, OF_REASONS),
    "docs/verbs.md": Walk(),
    "docs/workloads.md": Walk(
        _of_workloads,
        before={
            "kubectl wait gpuworkload/my-training-job -n agentaflow --for=jsonpath": partial(_becomes, "Running"),
            "kubectl wait gpuworkload/my-training-job -n agentaflow --for=condition": partial(_becomes, "Succeeded"),
        },
    ),
}
"""Page → how it is read."""


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompleteInstallation]:
    """A complete installation, and few of Kubernetes' controllers. Each page leaves it as it was.

    Without the controller of Deployments, the status stays that says that our programs run.
    """
    folder = tmp_path_factory.mktemp("complete")
    complete = CompleteInstallation(folder)
    controllers = start_controller_manager(complete.plane, folder, *OF_DELETIONS, "statefulset-controller")
    yield complete
    controllers.stop()
    complete.stop()


@pytest.fixture
def reader(complete: CompleteInstallation, tmp_path: Path) -> Iterator[Reader]:
    """A reader of the page."""
    complete.assert_running()
    reader = Reader(complete, tmp_path, f"reader-{next(_numbers)}")
    yield reader
    print(complete.scheduler.process.output()[-3000:])  # noqa: T201 - shown if the page fails
    reader.leave()


@pytest.mark.promise("text-16")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", [*WALKS, *(page for page in COMMANDS if page not in WALKS)])
def test_each_command_of_a_page_ends_as_the_page_says(page: str, reader: Reader) -> None:
    """In the order of the page, with the manifests that it shows."""
    assert page in WALKS, (
        f"{page} has commands to type here: say in WALKS of this file how it is read (example: Walk())"
    )
    walk = WALKS[page]
    for file, text in doc_commands.manifests(page).items():
        reader.write(file, text)
    walk.set_up(reader)
    values = {**walk.values, "NAMESPACE": reader.namespace.name, "ml/train-0": f"{reader.namespace.name}/train-0"}
    happened = set()

    for commands in _shells(COMMANDS[page], walk):
        for beginning, happens in walk.before.items():
            if commands[0].text.startswith(beginning):
                happens(reader)
                happened.add(beginning)
        reader.type(commands, values)

    assert happened == set(walk.before)


@pytest.mark.promise("text-16")
@pytest.mark.timeout(180)
def test_the_commands_that_remove_the_installation_end_well(reader: Reader) -> None:
    """None of our cluster-wide objects and of our namespaces is left. It is the last test of the module."""
    page = COMMANDS["docs/troubleshooting.md"]
    reader.kube.create("/api/v1/namespaces", {"metadata": {"name": "gpu-scheduler-tests"}})
    # The tests' installation has no labels.
    reader.run(f"kubectl label {' '.join(reader.ours())} app.kubernetes.io/part-of=gpu-scheduler")

    for name in (SYSTEM, MONITOR):
        # No kubelet ends the pods of a namespace that is deleted.
        reader.kube.call("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")

    reader.type([command for command in page if _removes(command, page)], {"NAME": "test"})

    assert reader.ours() == []


def _shells(commands: list[PageCommand], walk: Walk) -> Iterator[list[PageCommand]]:
    """Yield what is typed into one shell: a block, or its commands from one before which something happens.

    What the page repeats is typed once.
    """
    shell: list[PageCommand] = []
    typed: set[tuple[str, int]] = set()
    for command in commands:
        if _removes(command, commands) or (command.text, command.status) in typed:
            continue
        typed.add((command.text, command.status))
        begins = command.text.startswith(tuple(walk.before)) if walk.before else False
        if shell and (begins or command.block != shell[-1].block):
            yield shell
            shell = []
        shell.append(command)
    if shell:
        yield shell


def _removes(command: PageCommand, commands: list[PageCommand]) -> bool:
    """Whether the command is one of the block that removes the installation."""
    first = next(each for each in commands if each.block == command.block)
    return first.text.startswith(REMOVAL)
