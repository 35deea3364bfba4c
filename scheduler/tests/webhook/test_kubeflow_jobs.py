"""Kubeflow's jobs at /mutate-job, whatever somebody makes of them."""

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objects import Object, review
from tests.webhook.reviews import MAP, ODD, Client, ask, patched, places, serving

Json = Any
FIELDS = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs", "TFJob": "tfReplicaSpecs"}
CONTAINERS = [{"name": "main", "image": "none"}]


def template(scheduler: str | None = None, **more: Json) -> Object:
    """A template as its author wrote it."""
    spec: Object = {"containers": CONTAINERS}
    return {"spec": spec if scheduler is None else {**spec, "schedulerName": scheduler}, **more}


def job(kind: str = "PyTorchJob", annotations: Json = None, **types: Json) -> Object:
    """A job with a map, and these templates."""
    return job_of(types or {"Worker": template()}, kind, annotations)


def job_of(types: Object, kind: str = "PyTorchJob", annotations: Json = None) -> Object:
    """Likewise, whatever the types are called."""
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


async def asked(client: Client, body: Json, kind: str = "PyTorchJob", **more: Json) -> Object:
    return await ask(client, "/mutate-job", reviewed(body, kind, **more))


@pytest.mark.parametrize("kind", FIELDS)
async def test_annotations_reach_the_templates_and_a_second_review_adds_nothing(kind: str) -> None:
    """Ours only, in each kind's own field, with our scheduler's name where there is none."""
    metadata = {"labels": {"a": "b"}, "annotations": {"note": "the template's"}}
    body = job(kind, {"gpu-scheduling-map": MAP, "note": "mine"}, Worker=template(), Chief=template(metadata=metadata))
    async with serving() as (client, _, registry):
        right = patched(body, await asked(client, body, kind))
        again = await asked(client, right, kind, operation="UPDATE", oldObject=right)

        types = right["spec"][FIELDS[kind]]
        assert types["Worker"]["template"]["metadata"] == {"annotations": {"gpu-scheduling-map": MAP}}
        assert types["Chief"]["template"]["metadata"] == {
            "labels": {"a": "b"},
            "annotations": {"note": "the template's", "gpu-scheduling-map": MAP},
        }
        assert {each["template"]["spec"]["schedulerName"] for each in types.values()} == {"gpu-scheduler"}
        assert again == {"uid": "review-1", "allowed": True}
        for outcome in ("patched", "allowed"):
            labels = {"path": "/mutate-job", "outcome": outcome}
            assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1


async def test_templates_of_other_schedulers_are_not_even_read() -> None:
    """Nothing in them is touched, and nothing in them can be wrong."""
    foreign = {"metadata": {"annotations": 5}, "spec": {"schedulerName": "volcano", "containers": "none"}}
    body = job(Master=foreign, Worker=template())
    async with serving() as (client, _, _registry):
        right = patched(body, await asked(client, body))

        assert right["spec"]["pytorchReplicaSpecs"]["Master"]["template"] == foreign
        assert right["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] == "gpu-scheduler"


async def test_a_bad_value_is_refused_with_the_sentence_of_pods() -> None:
    """Before any pod of the job exists."""
    async with serving() as (client, _, registry):
        answer = await asked(client, job(annotations={"gpu-scheduling-map": "0=node1:x"}))

        assert answer["allowed"] is False
        assert answer["status"]["code"] == 400
        assert answer["status"]["message"].startswith("MapInvalid: cannot read placement map, line 1:")
        labels = {"path": "/mutate-job", "outcome": "MapInvalid"}
        assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1


async def test_an_author_is_warned_of_what_reaches_nobody() -> None:
    """An index of the job, and an update that its templates do not follow."""
    body = job(annotations={"gpu-scheduling-map": MAP, "agentaflow.gpu/index": "0"})
    async with serving() as (client, _, _registry):
        answer = await asked(client, body)
        (index,) = answer["warnings"]
        right = patched(body, answer)
        changed = copy.deepcopy(right)
        changed["metadata"]["annotations"] = {"gpu-scheduling-map": "0=node9:0"}
        (kept,) = (await asked(client, changed, operation="UPDATE", oldObject=right))["warnings"]

        assert index.startswith("annotation agentaflow.gpu/index of a job reaches no replica")
        assert kept.startswith('annotation gpu-scheduling-map stays as it was in the template of "Worker"')


async def test_an_old_job_may_be_as_odd_as_it_likes() -> None:
    """Only what comes counts: an author can always correct a job."""
    async with serving() as (client, _, _registry):
        answer = await asked(client, job(), operation="UPDATE", oldObject={**job(), "spec": 5})

        assert answer["allowed"] is True


async def test_a_launcher_computes_where_its_operator_says_so() -> None:
    """MPI's own switch, and nothing that merely looks like it."""
    async with serving() as (client, _, _registry):
        for value, patches in ((True, True), (False, False), (None, False), ("true", False)):
            body = job("MPIJob", Launcher=template())
            body["spec"]["runLauncherAsWorker"] = value
            assert ("patch" in await asked(client, body, "MPIJob")) is patches


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
async def test_what_is_not_ours_passes_untouched(body: Object) -> None:
    """Whoever registers us for too much does no harm."""
    async with serving() as (client, _, _registry):
        assert await ask(client, "/mutate-job", body) == {"uid": "review-1", "allowed": True}


# Jobs, and the word with which they are refused; None where they are let in.
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


@pytest.mark.parametrize(("body", "word"), CORPUS.values(), ids=CORPUS)
async def test_a_hostile_job_gets_a_typed_answer(body: Json, word: str | None) -> None:
    """Never a 500: allowed, with a patch that fits, or refused with one sentence."""
    async with serving() as (client, _, _registry):
        assert check(body, await asked(client, body)) == word


def check(body: Json, answer: Object) -> str | None:
    """The patch applies, or the refusal is a sentence; its word."""
    if answer["allowed"]:
        patched(body, answer)
        return None
    message = answer["status"]["message"]
    assert len(message.encode()) <= 1000
    assert message.isprintable()
    return str(message.partition(":")[0])


ORDINARY = job(
    Master=template("gpu-scheduler", metadata={"name": "m", "annotations": {"agentaflow.gpu/index": "0"}}),
    Worker=template(metadata={"labels": {"a": "b"}}),
)


@st.composite
def broken(draw: st.DrawFn) -> Json:
    """An ordinary job with something odd in one place."""
    at, odd = draw(st.sampled_from(places(ORDINARY))), draw(ODD)
    if not at:
        return odd
    body: Json = copy.deepcopy(ORDINARY)
    target = body
    for key in at[:-1]:
        target = target[key]
    target[at[-1]] = odd
    return body


@settings(max_examples=15, deadline=None)
@given(st.lists(broken(), min_size=20, max_size=20))
def test_any_oddity_in_any_place_gets_a_typed_answer_and_is_patched_once(bodies: list[Json]) -> None:
    """Whatever stands where something else should; and where it is let in, a second review changes nothing."""

    async def all_of_them() -> None:
        async with serving() as (client, _, _registry):
            for body in bodies:
                answer = await asked(client, body)
                if check(body, answer) is None:
                    assert "patch" not in await asked(client, patched(body, answer))

    asyncio.run(all_of_them())
