"""The webhook copies annotations of Kubeflow's jobs into their pod templates."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.kubeflow import KINDS, Kubeflow, collection, job, replica, template, templates
from tests.integration.request_counts import requests
from tests.messages import text_of
from tests.objects import MAP, literal, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object

LINES = "0=node1:0\n1=node1:1\n2=node1:2\n"
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
    handed = text_of("webhook: a job's annotations", job=f'{kind} "train"', types='"Chief, Worker"')
    assert registered.command.logged(handed)


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
