"""The verb explain against a scripted cluster: names, sentences, the screen, and what may not be read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.explaining.reading import end_of, split_name
from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.explain import explain
from tests.messages import text_of
from tests.objects import Object
from unit_tests.cli.scripted_cluster import MISSING, WORKLOADS, Capsys, cluster, device, items, node, pod
from unit_tests.kube.server import FakeServer, Reply

AT = "2026-01-01T00:00:00.000000Z"
NODES = items(node("node1", device(0), device(1)), node("node2", device(0), device(1)))
STORAGE = ("/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses")


def waiting(name: str, text: str) -> Object:
    """Return a pod that waits, as the webhook leaves it."""
    index, _, devices = text.rpartition(":")
    assert index
    found = pod(name)
    found["metadata"]["annotations"] = {"gpu-scheduling-map": text}
    env = [{"name": "CUDA_VISIBLE_DEVICES", "value": devices}, {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}]
    found["spec"]["containers"] = [{"name": "main", "env": env}]
    return found


def placed(name: str, **more: str) -> Object:
    """Return a pod of a GPUWorkload that holds GPUs 0 and 1 of node1."""
    found = pod(name, "node1", "0,1", scheduling_strategy="best_fit")
    written = {"assigned-at": AT, "assigned-by": "replica-0", "assigned-node": "node1", **more}
    found["metadata"]["annotations"] |= {f"agentaflow.gpu/{key}": text for key, text in written.items()}
    found["metadata"]["ownerReferences"] = [
        {"kind": "GPUWorkload", "name": "tune", "uid": "uid-tune", "controller": True}
    ]
    return found


REQUEST: Object = {
    "metadata": {"namespace": "ml", "name": "tune", "uid": "uid-tune"},
    "spec": {"estimatedDuration": "1h30m", "podTemplate": {"spec": {}}},
}


def serve(server: FakeServer, *pods: Object, storage: Reply | None = None) -> None:
    """Serve the storage of the cluster, and each of these pods by its name."""
    for path in STORAGE:
        server.on("GET", path, storage or items())
    for each in pods:
        server.on("GET", f"/api/v1/namespaces/ml/pods/{each['metadata']['name']}", Reply(body=each))


async def screen(capsys: Capsys, tmp_path: Path, code: int, *names: str, pods: list[Object]) -> str:
    """Return what the verb prints about these pods of a cluster."""
    async with cluster(tmp_path, nodes=NODES, pods=items(*pods), workloads=items(REQUEST)) as (server, options):
        serve(server, *pods)
        assert await explain(options, list(names)) == code
    return capsys.readouterr().out


ANOTHER_LINE = text_of("explain: another line")


async def test_a_waiting_pod_is_a_screen(tmp_path: Path, capsys: Capsys) -> None:
    """The sentence, the GPUs, the nodes, and the remedy last."""
    text = await screen(capsys, tmp_path, 1, "late-0", pods=[placed("tune-0"), waiting("late-0", "0=node1:1")])

    lines = text.splitlines()
    assert lines[0].startswith("ml/late-0 waits: GpuHeld: GPU 1 of node1 is held by ml/tune-0; ")
    assert lines[2].split() == ["LINE", "NODE", "GPU", "STATE", "HELD", "BY", "SINCE", "UNTIL", "WHY"]
    assert lines[3].split()[:5] == ["0", "node1", "1", "held", "ml/tune-0"]
    assert lines[3].split()[6] == "2026-01-01T01:30:00Z"
    assert lines[6].split()[-1] == "GpuHeld"
    assert lines[8:] == [
        "Smallest remedy of line 0 on node1:",
        "GpuHeld   kubectl delete pod -n ml tune-0   (or wait until 2026-01-01T01:30:00Z)",
        f"{ANOTHER_LINE} 0=node2:0",
    ]


async def test_all_obstacles_have_their_messages(tmp_path: Path, capsys: Capsys) -> None:
    """If there are several. An unhealthy GPU has the words of its monitor."""
    closed = node("node1", device(0, health="unhealthy"), spec={"unschedulable": True})
    late = waiting("late-0", "0=node1:0")
    async with cluster(tmp_path, nodes=items(closed), pods=items(late)) as (server, options):
        serve(server, late)
        assert await explain(options, ["late-0"]) == 1
    lines = capsys.readouterr().out.splitlines()

    assert "NodeUnschedulable   cannot use node node1: it is cordoned" in lines
    assert any(line.startswith("GpuUnhealthy        cannot use GPU 0 of node1: ") for line in lines)
    # Opening the node would not help: its GPU is unhealthy.
    assert not any("kubectl uncordon" in line for line in lines)
    assert lines[-1] == text_of("explain: no command")


async def test_a_placed_pod_says_why(tmp_path: Path, capsys: Capsys) -> None:
    """Also by the name of its GPUWorkload's pod; an earlier version wrote no reason."""
    reason = {"assigned-reason": "best_fit: 512 MiB free", "assigned-uuids": "GPU-a,GPU-b"}
    text = await screen(capsys, tmp_path, 0, "new-0", "old-0", pods=[placed("new-0", **reason), placed("old-0")])

    assert text.splitlines()[0] == "ml/new-0 is placed on node1 with GPUs 0,1"
    assert "Strategy   best_fit" in text
    assert "Reason     512 MiB free\n" in text
    assert "By         replica-0" in text
    assert "UUIDs      GPU-a,GPU-b" in text
    assert "Reason   unknown: " in text


def changed(body: Object, **spec: Any) -> Object:
    """Return a pod with other fields in its spec."""
    return {**body, "spec": {**body["spec"], **spec}}


SETTLED = {
    "of another scheduler": (
        changed(pod("a"), schedulerName="other"),
        text_of("explain: another scheduler", scheduler="other"),
    ),
    "gated": (changed(pod("a"), schedulingGates=[{"name": "x"}]), text_of("explain: scheduling gates")),
    "finished": (
        {**placed("a"), "status": {"phase": "Succeeded"}},
        "has ended (Succeeded), and holds no GPU; it was on node1",
    ),
    "deleted before it was placed": (
        {**pod("a"), "metadata": {**pod("a")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        text_of("explain: deleted before it was placed", since="2026-01-01T00:00:00Z"),
    ),
}


@pytest.mark.parametrize(("given", "sentence"), SETTLED.values(), ids=SETTLED)
async def test_a_pod_that_needs_no_decision_is_a_sentence(
    tmp_path: Path, capsys: Capsys, given: Object, sentence: str
) -> None:
    """The exit code says that it is not placed."""
    text = await screen(capsys, tmp_path, 1, "a", pods=[given])

    assert text.startswith(f"ml/a {sentence}")


async def test_a_pod_that_was_bound_by_others_has_no_reason(tmp_path: Path, capsys: Capsys) -> None:
    """No Binding of ours wrote annotations on it."""
    bound = pod("a", "node1")
    del bound["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"]

    shown = await screen(capsys, tmp_path, 0, "a", pods=[bound])
    assert shown.endswith(f"{text_of('explain: bound by others')}\n")


async def test_a_workload_is_explained_by_its_newest_pod(tmp_path: Path, capsys: Capsys) -> None:
    """Without a pod, the workload's own reason is printed; without both, nobody knows the name."""
    made, path = placed("tune-1"), WORKLOADS.replace("v1/", "v1/namespaces/ml/")
    async with cluster(tmp_path, nodes=NODES, mine=items(made)) as (server, options):
        serve(server, made)
        server.on("GET", f"{path}/tune", Reply(body=REQUEST))
        for name in ("tune", "lost", "new"):
            server.on("GET", f"/api/v1/namespaces/ml/pods/{name}", MISSING)
        server.on("GET", f"{path}/lost", MISSING)
        server.on("GET", f"{path}/new", Reply(body={**REQUEST, "metadata": {"namespace": "ml", "name": "new"}}))
        assert await explain(replace(options, output=Output.JSON), ["gpuworkload/tune"]) == 0
        with pytest.raises(FailedError, match="cannot find pod ml/lost, nor a GPUWorkload of that name"):
            await explain(options, ["lost"])
        with pytest.raises(FailedError, match="cannot explain GPUWorkload ml/new: it has no pod"):
            await explain(options, ["new"])

    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["name"] == "tune-1"


MANIFEST = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: train}
spec:
  replicas: 3
  template:
    metadata:
      annotations: {gpu-scheduling-map: "0=node1:0\\n1=node1:9"}
    spec:
      schedulerName: gpu-scheduler
      containers: [{name: main, image: x}]
"""


async def explained_file(tmp_path: Path, capsys: Capsys, text: str, code: int) -> str:
    """Return what the verb prints about a manifest."""
    file = tmp_path / "manifest.yaml"
    file.write_text(text, encoding="utf-8")
    async with cluster(tmp_path, nodes=NODES) as (server, options):
        serve(server)
        assert await explain(options, filename=[str(file)]) == code
    return capsys.readouterr().out


async def test_a_manifest_is_explained_pod_by_pod(tmp_path: Path, capsys: Capsys) -> None:
    """The first fits, the second names a GPU that the node lacks, and the third has no line."""
    text = await explained_file(tmp_path, capsys, MANIFEST, 1)

    assert text.startswith(
        "ml/train-0 can be placed now, on node1 with GPU 0 (map: index 0)\n\nml/train-1 waits: GpuNotFound"
    )
    assert f"{ANOTHER_LINE} 1=node1:1\n" in text
    assert f"ml/train-2 {text_of('explain: refused at its creation')} IndexNotInMap: " in text


async def test_a_manifest_of_another_scheduler_is_a_sentence(tmp_path: Path, capsys: Capsys) -> None:
    """It is not ours to place."""
    text = await explained_file(tmp_path, capsys, MANIFEST.replace("gpu-scheduler\n", "other\n"), 1)

    assert text.splitlines()[0].endswith(text_of("explain: another scheduler", scheduler="other"))


async def test_nodes_beyond_the_nearest_are_counted(tmp_path: Path, capsys: Capsys) -> None:
    """By the reason of each."""
    many = items(*(node(f"node{number}", device(0), spec={"unschedulable": True}) for number in range(12)))
    late = pod("late", count="1")
    late["spec"]["containers"] = [{"name": "main", "env": []}]
    async with cluster(tmp_path, nodes=many, pods=items(late)) as (server, options):
        serve(server, late)
        assert await explain(options, ["late"]) == 1

    assert "2 more nodes: 2 NodeUnschedulable" in capsys.readouterr().out


async def test_a_missing_right_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """The answer may then differ from the scheduler's."""
    forbidden = Reply(403, {"message": 'User "jane" cannot list'})
    late = waiting("late-0", "0=node1:1")
    pods = items(late, placed("tune-0"))
    async with cluster(tmp_path, nodes=NODES, pods=pods, workloads=forbidden) as (server, options):
        serve(server, late, storage=forbidden)
        assert await explain(options, ["late-0"]) == 1

    warnings = capsys.readouterr().err
    assert "kubectl auth can-i list gpuworkloads.agentaflow.io -A" in warnings
    assert "kubectl auth can-i list persistentvolumeclaims -A" in warnings


async def test_a_file_without_pods_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    """So is a call without any name."""
    with pytest.raises(RefusedInputError, match="makes no pods"):
        await explained_file(tmp_path, capsys, "{apiVersion: v1, kind: Secret, metadata: {name: a}}", 2)
    with pytest.raises(RefusedInputError, match="cannot explain nothing"):
        await explain(Options())


NAMES = {
    "a name": ("train-0", ("ml", "train-0")),
    "a name with its namespace": ("prod/train-0", ("prod", "train-0")),
    "as -o name prints a pod": ("pod/train-0", ("ml", "train-0")),
    "as -o name prints a workload": ("gpuworkload.agentaflow.io/tune", ("ml", "tune")),
}


@pytest.mark.parametrize(("given", "name"), NAMES.values(), ids=NAMES)
def test_a_name_may_have_its_namespace(given: str, name: tuple[str, str]) -> None:
    """Otherwise the namespace is that of the options, or of the context."""
    assert split_name(given, "ml") == name


@pytest.mark.parametrize("given", ["", "a/b/c", "/a", "a/"])
def test_another_name_is_refused(given: str) -> None:
    """With an example."""
    with pytest.raises(RefusedInputError, match="NAME or NAMESPACE/NAME"):
        split_name(given, "ml")


def test_an_end_that_no_calendar_has_is_unknown() -> None:
    """A duration may have any number of hours."""
    assert end_of(AT, "90m") == "2026-01-01T01:30:00Z"
    assert end_of(AT, "99999999999h") == ""
