"""The webhook copies annotations of Kubeflow's jobs into their pod templates."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.kubeflow import KINDS, Kubeflow, collection, job, replica, template, templates
from tests.integration.request_counts import requests
from tests.objects import ASSIGNED, MAP, device, inventory, literal, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object

LINES = "0=node1:0\n1=node1:1\n2=node1:2\n"
COUNT = "agentaflow.gpu/count"
EVERY = [(kind, version) for kind, versions in KINDS.items() for version in versions]


@pytest.fixture(scope="module")
def kubeflow(plane: ControlPlane, registered: RegisteredWebhook) -> Iterator[Kubeflow]:
    """Kubeflow's CRDs and the webhook's registration for them."""
    kubeflow = Kubeflow(plane.kube, registered)
    yield kubeflow
    kubeflow.remove()


@pytest.mark.promise("job-1")
@pytest.mark.parametrize(("kind", "version"), EVERY)
def test_annotations_of_a_job_reach_its_templates(
    calling: Namespace, registered: RegisteredWebhook, kubeflow: Kubeflow, kind: str, version: str
) -> None:
    """Annotations and our scheduler's name are written to the templates of each kind and version, and logged."""
    given = {MAP: LINES, "agentaflow.gpu/priority": "5", "example.com/note": "the job's"}
    body = job(kind, "train", given, version=version, Chief=template(), Worker=template(schedulerName="gpu-scheduler"))

    stored = _made(calling, body)

    for one in templates(stored).values():
        assert one["metadata"]["annotations"] == {MAP: LINES, "agentaflow.gpu/priority": "5"}
        assert one["spec"]["schedulerName"] == "gpu-scheduler"
    assert registered.command.logged(f'Handing the annotations of {kind} "train" to "Chief, Worker"')


@pytest.mark.promise("job-2")
def test_a_template_keeps_its_own_annotations_and_scheduler(calling: Namespace, kubeflow: Kubeflow) -> None:
    """A template keeps its own annotations. A template of another scheduler is unchanged."""
    foreign = {"metadata": {"labels": {"a": "b"}}, **template(schedulerName="volcano")}
    own = {"metadata": {"annotations": {MAP: "0=node2:7\n"}}, **template()}

    stored = _made(calling, job("TFJob", "train", {MAP: LINES}, PS=foreign, Chief=own, Worker=template()))

    assert templates(stored)["PS"] == foreign
    assert templates(stored)["Chief"]["metadata"]["annotations"] == {MAP: "0=node2:7\n"}
    assert templates(stored)["Worker"]["metadata"]["annotations"] == {MAP: LINES}


@pytest.mark.promise("job-2")
def test_a_template_that_asks_for_no_gpu_keeps_its_scheduler(calling: Namespace, kubeflow: Kubeflow) -> None:
    """A strategy on the job applies to templates with a limit. Without a limit or map our scheduler binds no pod."""
    worker = template()
    worker["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    given = {"agentaflow.gpu/scheduling-strategy": "priority", "agentaflow.gpu/priority": "10"}

    stored = _made(calling, job("TFJob", "train", given, PS=template(), Worker=worker))

    assert templates(stored)["PS"] == template()
    assert templates(stored)["Worker"]["metadata"]["annotations"] == given
    assert templates(stored)["Worker"]["spec"]["schedulerName"] == "gpu-scheduler"


@pytest.mark.promise("job-2")
def test_an_mpi_launcher_gets_no_gpu_unless_it_runs_as_worker(calling: Namespace, kubeflow: Kubeflow) -> None:
    """The launcher keeps its scheduler, unless `runLauncherAsWorker` is set."""
    for name, works in (("plain", False), ("working", True)):
        body = job("MPIJob", name, {COUNT: "1"}, version="v2beta1", Launcher=template(), Worker=template())
        body["spec"]["runLauncherAsWorker"] = works

        launcher = templates(_made(calling, body))["Launcher"]

        assert ("schedulerName" in launcher["spec"], "metadata" in launcher) == (works, works)


@pytest.mark.promise("job-1")
def test_a_replaced_job_gets_its_annotations_again(calling: Namespace, kubeflow: Kubeflow) -> None:
    """`kubectl replace` sends bare templates. A job that gets our annotation later gets it in its templates too."""
    body = job("PyTorchJob", "train", {MAP: LINES})
    first = _made(calling, body)
    path = f"{_at(calling, body)}/train"

    replaced = {**body, "metadata": {**body["metadata"], "resourceVersion": first["metadata"]["resourceVersion"]}}
    status, second = calling.kube.call("PUT", path, replaced)

    assert status == 200, second
    assert templates(second) == templates(first)
    # The webhook restores the same object, so the API server writes nothing.
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    _made(calling, job("PyTorchJob", "late", None))
    late = calling.kube.patch(f"{_at(calling, body)}/late", {"metadata": {"annotations": {MAP: LINES}}})
    assert templates(late)["Worker"]["metadata"]["annotations"] == {MAP: LINES}


@pytest.mark.promise("job-3")
@pytest.mark.parametrize(
    ("annotations", "start"),
    [
        ({MAP: "0=node1:x\n"}, "MapInvalid: cannot read placement map, line 1:"),
        ({COUNT: "none"}, 'RequestInvalid: cannot read annotation agentaflow.gpu/count: "none": it must be'),
    ],
    ids=["map", "count"],
)
def test_a_bad_value_is_refused_at_the_job(
    calling: Namespace, kubeflow: Kubeflow, annotations: dict[str, str], start: str
) -> None:
    """The job is refused with the message with which each of its pods would be refused."""
    status, answer = _make(calling, job("PyTorchJob", "train", annotations))

    assert status == 400
    assert answer["message"].startswith(
        f'admission webhook "mutate-job.gpu-scheduler.agentaflow.io" denied the request: {start}'
    )

    pod = replica(_made(calling, job("PyTorchJob", "train", None)), "Worker", 0)
    pod["metadata"]["annotations"], pod["spec"]["schedulerName"] = annotations, "gpu-scheduler"
    _, refused = calling.kube.call("POST", calling.pods, pod)
    assert refused["message"].partition("request: ")[2] == answer["message"].partition("request: ")[2]


@pytest.mark.promise("text-13")
def test_a_misspelt_annotation_of_a_job_is_admitted_with_a_warning(calling: Namespace, kubeflow: Kubeflow) -> None:
    """On the job and in a template. Its pods would be made by an operator, whom nobody warns."""
    worker = {"metadata": {"annotations": {"agentaflow.gpu/memroy": "8192"}}, **template()}
    body = job("PyTorchJob", "train", {"agentaflow.gpu/scheduling-map": LINES, COUNT: "1"}, Worker=worker)

    assert calling.kube.create_with_warnings(_at(calling, body), body) == [
        'annotation "agentaflow.gpu/scheduling-map" is unknown: did you mean gpu-scheduling-map?',
        'annotation "agentaflow.gpu/memroy" is unknown: did you mean agentaflow.gpu/memory?',
    ]


@pytest.mark.promise("job-4", "index-20")
def test_replicas_get_the_lines_of_their_jobs_map_in_order(
    calling: Namespace, kubeflow: Kubeflow, scheduler: Command
) -> None:
    """Only the job has annotations. The number in the name of a master or worker is not its index."""
    calling.node("node1")
    stored = _made(calling, job("PyTorchJob", "train", {MAP: LINES}, Master=template(), Worker=template()))

    for number, (type_, index) in enumerate((("Worker", 1), ("Master", 0), ("Worker", 0))):
        name = f"train-{type_.lower()}-{index}"
        made = calling.kube.create(calling.pods, replica(stored, type_, index))
        assert made["spec"]["containers"][0]["env"] == reading()
        placed = calling.placed(name)
        assert (placed.node, placed.devices, placed.index) == ("node1", str(number), number)


@pytest.mark.promise("job-1", "together-1")
def test_replicas_of_a_job_start_together(calling: Namespace, kubeflow: Kubeflow, scheduler: Command) -> None:
    """Only the job has the annotations. Neither the operator nor its templates know anything of it."""
    calling.node("node1")
    calling.make(pod("holder-0", "0=node1:2\n", literal("2")))
    calling.placed("holder-0")
    start = {MAP: LINES, "agentaflow.gpu/start": "together"}
    stored = _made(calling, job("PyTorchJob", "train", start, Master=template(), Worker=template()))
    names = []
    for type_, index in (("Master", 0), ("Worker", 0), ("Worker", 1)):
        calling.kube.create(calling.pods, replica(stored, type_, index))
        names.append(f"train-{type_.lower()}-{index}")
    for name in names:
        calling.wait_message(name, "GpuHeld: ", parts=("index 2", "GPU 2", "node1"))

    calling.delete("holder-0")
    assert {calling.placed(name).index for name in names} == {0, 1, 2}


@pytest.mark.promise("job-4")
def test_a_count_on_the_job_is_placed_by_strategy(calling: Namespace, kubeflow: Kubeflow, scheduler: Command) -> None:
    """Each replica gets its own device."""
    calling.node("node1", annotations=inventory(device(0), device(1)))
    stored = _made(calling, job("PyTorchJob", "train", {COUNT: "1", "agentaflow.gpu/scheduling-strategy": "best_fit"}))

    given = []
    for index in range(2):
        calling.make(replica(stored, "Worker", index))
        pod = calling.wait_bound(f"train-worker-{index}", "node1")
        given.append(pod["metadata"]["annotations"][ASSIGNED])

    assert sorted(given) == ["0", "1"]


@pytest.mark.promise("job-4")
def test_a_worker_of_mpi_v2_takes_the_line_of_its_number(calling: Namespace, kubeflow: Kubeflow) -> None:
    """mpi-operator sets no replica type label, so the number in the pod's name is its index, as for other pods."""
    stored = _made(calling, job("MPIJob", "train", {MAP: LINES}, version="v2beta1"))

    made = calling.kube.create(calling.pods, replica(stored, "Worker", 2))

    assert made["spec"]["containers"][0]["env"] == literal("2")


@pytest.mark.promise("job-5")
def test_no_pod_costs_a_read(calling: Namespace, kubeflow: Kubeflow, scheduler: Command) -> None:
    """Neither webhook nor scheduler reads the job or the pods from the API server."""
    count = 20
    calling.node("node1", room={"pods": "1000"})
    lines = "".join(f"{index}=node1:{index}\n" for index in range(count))
    before, done = requests(calling.kube), scheduler.attempts("scheduled")

    stored = _made(calling, job("PyTorchJob", "train", {MAP: lines}))
    for index in range(count):
        calling.make(replica(stored, "Worker", index))
    eventually("all are bound", lambda: scheduler.attempts("scheduled") == done + count)

    spent = requests(calling.kube) - before
    assert {what: times for what, times in spent.items() if what != "POST events"} == {
        "POST pytorchjobs": 1,
        "POST pods": count,
        "POST pods/binding": count,
    }


@pytest.mark.promise("job-6")
def test_jobs_without_our_annotations_never_depend_on_the_webhook(
    calling: Namespace, registered: RegisteredWebhook, kubeflow: Kubeflow
) -> None:
    """Without a running webhook they are created and changed. A job with our annotation is refused, but can be deleted.

    This must be the last test of the file: it ends the webhook's process.
    """
    _made(calling, job("PyTorchJob", "leaving", {MAP: LINES}))
    registered.command.process.send(signal.SIGTERM)
    assert registered.command.process.wait(10) == 0

    status, answer = _make(calling, job("PyTorchJob", "ours", {MAP: LINES}))
    assert (status, "failed calling webhook" in answer["message"]) == (500, True)

    for kind, version in EVERY:
        for name, given in (("none", None), ("empty", {}), ("others", {"example.com/a": "b"})):
            body = job(kind, f"{name}-{version}", given, version=version, Worker=template(), Odd=None)
            stored = _made(calling, body)
            assert "metadata" not in templates(stored)["Worker"]
            path = f"{_at(calling, body)}/{stored['metadata']['name']}"
            calling.kube.patch(path, {"metadata": {"labels": {"changed": "yes"}}})

    path = f"{_at(calling, job('PyTorchJob', 'leaving', None))}/leaving"
    calling.kube.call("DELETE", path, {"propagationPolicy": "Foreground"})
    assert calling.kube.patch(path, {"metadata": {"finalizers": None}})["metadata"]["deletionTimestamp"]
    assert calling.kube.get(path) is None


def _at(namespace: Namespace, body: Object) -> str:
    return collection(namespace.name, body["kind"], body["apiVersion"].partition("/")[2])


def _make(namespace: Namespace, body: Object) -> tuple[int, Object]:
    return namespace.kube.call("POST", _at(namespace, body), body)


def _made(namespace: Namespace, body: Object) -> Object:
    status, answer = _make(namespace, body)
    assert status == 201, answer
    return answer
