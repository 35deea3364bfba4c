"""Kubeflow jobs at /mutate-job, whatever they contain."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import says
from tests.objects import Object, review
from unit_tests import virtual
from unit_tests.webhook.reviews import (
    MAP,
    Client,
    ask,
    patched,
    refusal_of,
    reviews_counted,
    serving,
    with_odd_values,
)

Json = Any
FIELDS = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs", "TFJob": "tfReplicaSpecs"}
CONTAINERS = [{"name": "main", "image": "none"}]


def template(scheduler: str | None = None, **more: Json) -> Object:
    spec: Object = {"containers": CONTAINERS}
    return {"spec": spec if scheduler is None else {**spec, "schedulerName": scheduler}, **more}


def job(kind: str = "PyTorchJob", annotations: Json = None, **types: Json) -> Object:
    return job_of(types or {"Worker": template()}, kind, annotations)


def job_of(types: Object, kind: str = "PyTorchJob", annotations: Json = None) -> Object:
    """Return a job with a map and these types, whatever their names are."""
    given = {"gpu-scheduling-map": MAP} if annotations is None else annotations
    specs = {name: {"replicas": 1, "template": each} for name, each in types.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "train", "annotations": given},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, FIELDS[kind]: specs},
    }


def reviewed(body: Json, kind: str = "PyTorchJob", **more: Json) -> Object:
    return review(body, **{"kind": {"group": "kubeflow.org", "version": "v1", "kind": kind}, **more})


async def mutate(client: Client, body: Json, kind: str = "PyTorchJob", **more: Json) -> Object:
    return await ask(client, "/mutate-job", reviewed(body, kind, **more))


@pytest.mark.parametrize("kind", FIELDS)
async def test_annotations_are_copied_to_the_templates_once(kind: str) -> None:
    """Only ours, in each kind's own field, with our scheduler's name if the template names none."""
    metadata = {"labels": {"a": "b"}, "annotations": {"note": "the template's"}}
    body = job(kind, {"gpu-scheduling-map": MAP, "note": "mine"}, Worker=template(), Chief=template(metadata=metadata))
    async with serving() as (client, _, registry):
        right = patched(body, await mutate(client, body, kind))
        again = await mutate(client, right, kind, operation="UPDATE", oldObject=right)

        types = right["spec"][FIELDS[kind]]
        assert types["Worker"]["template"]["metadata"] == {"annotations": {"gpu-scheduling-map": MAP}}
        assert types["Chief"]["template"]["metadata"] == {
            "labels": {"a": "b"},
            "annotations": {"note": "the template's", "gpu-scheduling-map": MAP},
        }
        assert {each["template"]["spec"]["schedulerName"] for each in types.values()} == {"gpu-scheduler"}
        assert again == {"uid": "review-1", "allowed": True}
        assert [reviews_counted(registry, "/mutate-job", outcome) for outcome in ("patched", "allowed")] == [1, 1]


@pytest.mark.promise("job-2")
async def test_templates_of_other_schedulers_are_not_read() -> None:
    """They are not changed, and none of their fields is checked."""
    foreign = {"metadata": {"annotations": 5}, "spec": {"schedulerName": "volcano", "containers": "none"}}
    body = job(Master=foreign, Worker=template())
    async with serving() as (client, _, _registry):
        right = patched(body, await mutate(client, body))

        assert right["spec"]["pytorchReplicaSpecs"]["Master"]["template"] == foreign
        assert right["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] == "gpu-scheduler"


async def test_an_invalid_value_is_refused_with_the_message_of_pods() -> None:
    """Before any pod of the job exists."""
    async with serving() as (client, _, registry):
        response = await mutate(client, job(annotations={"gpu-scheduling-map": "0=node1:x"}))

        assert response["allowed"] is False
        assert response["status"]["code"] == 400
        says(response["status"]["message"], "MapInvalid", "line 1")
        assert reviews_counted(registry, "/mutate-job", "MapInvalid") == 1


async def test_a_misspelt_annotation_causes_a_warning() -> None:
    """On the job or in a template, admitted or refused, and also if the job has no right annotation of ours."""
    misspelt = {"agentaflow.gpu/cuont": "1"}
    warning = 'annotation "agentaflow.gpu/cuont" is unknown: did you mean agentaflow.gpu/count?'
    async with serving() as (client, _, _registry):
        for body, allowed in (
            (job(annotations=misspelt), True),
            (job(Worker=template(metadata={"annotations": misspelt})), True),
            (job(annotations={**misspelt, "gpu-scheduling-map": "nonsense"}), False),
        ):
            response = await mutate(client, body)

            assert (response["allowed"], response["warnings"]) == (allowed, [warning])


async def test_an_invalid_old_job_can_be_updated() -> None:
    """Only the new object counts: an author can always correct a job."""
    async with serving() as (client, _, _registry):
        response = await mutate(client, job(), operation="UPDATE", oldObject={**job(), "spec": 5})

        assert response["allowed"] is True


async def test_a_launcher_is_a_worker_only_if_the_job_sets_it() -> None:
    """Field runLauncherAsWorker of the MPIJob must be true; similar values do not count."""
    async with serving() as (client, _, _registry):
        for value, patches in ((True, True), (False, False), (None, False), ("true", False)):
            body = job("MPIJob", Launcher=template())
            body["spec"]["runLauncherAsWorker"] = value
            assert ("patch" in await mutate(client, body, "MPIJob")) is patches


@pytest.mark.parametrize(
    "body",
    [
        review(job("PyTorchJob"), kind={"group": "kubeflow.org", "kind": "XGBoostJob"}),
        review(job("PyTorchJob"), kind={"group": "example.com", "kind": "PyTorchJob"}),
        review(job("PyTorchJob"), kind={"kind": "Pod"}),
        reviewed(job(), subResource="status"),
        reviewed(None, operation="DELETE", oldObject=job()),
        reviewed(job(annotations={"note": "mine"})),
    ],
    ids=["another kind", "another group", "a pod", "a status", "a deletion", "nothing of ours"],
)
async def test_foreign_objects_are_allowed_unchanged(body: Object) -> None:
    """A webhook configuration that selects too many objects does no harm."""
    async with serving() as (client, _, _registry):
        assert await ask(client, "/mutate-job", body) == {"uid": "review-1", "allowed": True}


# Job → reason of its refusal, or None if it is allowed.
CORPUS: dict[str, tuple[Json, str | None]] = {
    "nulls wherever there may be some": ({"metadata": {"annotations": None}, "spec": None}, None),
    "null replicas": ({**job(), "spec": {"pytorchReplicaSpecs": None}}, None),
    "a null type": ({**job(), "spec": {"pytorchReplicaSpecs": {"Worker": None}}}, None),
    "no template": ({**job(), "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}, None),
    "a null template": (job(Worker=None), None),
    "an empty template": (job(Worker={}), None),
    "a template of nulls": (job(Worker={"metadata": None, "spec": None}), None),
    "a pod of nulls": (job(Worker={"metadata": None, "spec": {"containers": None, "schedulerName": None}}), None),
    "null annotations": (job(Worker=template(metadata={"annotations": None})), None),
    "a template's list of annotations": (job(Worker=template(metadata={"annotations": []})), "RequestInvalid"),
    "a number as a template's annotation": (job(Worker=template(metadata={"annotations": {"a": 5}})), "RequestInvalid"),
    "a template as a text": (job(Worker="template"), "RequestInvalid"),
    "a number as the scheduler": (job(Worker={"spec": {"schedulerName": 5}}), "RequestInvalid"),
    "a type as a list": ({**job(), "spec": {"pytorchReplicaSpecs": {"Worker": []}}}, "RequestInvalid"),
    "replicas as a list": ({**job(), "spec": {"pytorchReplicaSpecs": []}}, "RequestInvalid"),
    "a spec as a text": ({**job(), "spec": "yes"}, "RequestInvalid"),
    "no metadata": ({"spec": {}}, "RequestInvalid"),
    "a text": ("job", "RequestInvalid"),
    "a list": ([], "RequestInvalid"),
    "a count of 256 kB": (job(annotations={"agentaflow.gpu/count": "x" * 262_144}), "RequestInvalid"),
    "a map of 256 kB": (job(annotations={"gpu-scheduling-map": "0=node1:0\n" * 25_600}), "MapInvalid"),
    "a type's name of 256 kB": (job_of({"W\x1b/~" * 65_536: template()}), None),
    "thousands of types": (job_of({f"type{number}": template() for number in range(2000)}), None),
}


@pytest.mark.parametrize(("body", "reason"), CORPUS.values(), ids=CORPUS)
async def test_a_hostile_job_gets_a_typed_response(body: Json, reason: str | None) -> None:
    """Allowed, with a patch that applies, or refused with one sentence; never a 500."""
    async with serving() as (client, _, _registry):
        assert check(body, await mutate(client, body)) == reason


def check(body: Json, response: Object) -> str | None:
    """Check that the patch applies or the refusal is one sentence; return the reason."""
    if response["allowed"]:
        patched(body, response)
        return None
    return refusal_of(response).partition(":")[0]


ORDINARY = job(
    Master=template("gpu-scheduler", metadata={"name": "m", "annotations": {"agentaflow.gpu/index": "0"}}),
    Worker=template(metadata={"labels": {"a": "b"}}),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(with_odd_values(ORDINARY), min_size=20, max_size=20))
def test_any_odd_value_gets_a_typed_response_and_one_patch(bodies: list[Json]) -> None:
    """Whatever value a field has. A second review of an allowed job changes nothing."""

    async def all_of_them() -> None:
        async with serving() as (client, _, _registry):
            for body in bodies:
                response = await mutate(client, body)
                if check(body, response) is None:
                    assert "patch" not in await mutate(client, patched(body, response))

    virtual.run(all_of_them())
