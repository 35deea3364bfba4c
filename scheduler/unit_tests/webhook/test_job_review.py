from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.container_env import Container
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.webhook.job_review import COPIED_ANNOTATIONS, Job, Replicas, cautions, job_key_cautions, review_job
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from tests.messages import text_of
from unit_tests.core.build import container, own

US = "gpu-scheduler"
MAP = "0=node1:0,1\n1=node2:2\n"
COUNT = {names.COUNT: "2"}
PLAIN: tuple[Container, ...] = (container(None),)
AT = "/spec/pytorchReplicaSpecs"


def replicas(
    name: str = "Worker",
    scheduler: str = "",
    annotations: dict[str, str] | None = None,
    *,
    annotated: bool | None = True,
    **others: Any,
) -> Replicas:
    """Return a template as its author wrote it. By default it names no scheduler and has no annotation of ours."""
    environment = environment_of(others.pop("containers", PLAIN))
    text = PodText(
        "default", scheduler_name=scheduler, annotations=annotations or {}, environment=environment, **others
    )
    return Replicas(name, text, annotated)


def job(annotations: dict[str, str], *types: Replicas, kind: str = "PyTorchJob", **others: Any) -> Job:
    return Job(kind, "train", "pytorchReplicaSpecs", annotations, types or (replicas(),), **others)


def patches(given: Job) -> list[AddOp]:
    verdict = review_job(given, US)
    assert isinstance(verdict, Admit), verdict
    return list(verdict.patches)


def named(path: str) -> AddOp:
    return AddOp(f"{AT}/{path}/template/spec/schedulerName", US)


def copied(name: str, key: str, value: str) -> AddOp:
    return AddOp(f"{AT}/{name}/template/metadata/annotations/{key}", value)


def count_in(name: str) -> AddOp:
    return copied(name, "agentaflow.gpu~1count", "2")


def map_in(name: str) -> AddOp:
    return copied(name, "gpu-scheduling-map", MAP)


def strategy_in(name: str) -> AddOp:
    return copied(name, "agentaflow.gpu~1scheduling-strategy", "best_fit")


LIMIT = (("main", 2),)
PATCHED = {
    "a template with annotations gets ours one by one": (job(COUNT), [count_in("Worker"), named("Worker")]),
    "a template without annotations gets the list": (
        job(COUNT, replicas(annotated=False)),
        [AddOp(f"{AT}/Worker/template/metadata/annotations", COUNT), named("Worker")],
    ),
    "a template without metadata gets it": (
        job(COUNT, replicas(annotated=None)),
        [AddOp(f"{AT}/Worker/template/metadata", {"annotations": COUNT}), named("Worker")],
    ),
    "a type's name is escaped as in a JSON pointer": (job(COUNT, replicas("a/b~c", US)), [count_in("a~1b~0c")]),
    "every type gets the annotations": (
        job({names.MAP: MAP}, replicas("Master", US), replicas("Worker", US)),
        [map_in("Master"), map_in("Worker")],
    ),
    "a template's own annotation is kept": (
        job({**COUNT, names.PRIORITY: "5"}, replicas("Worker", US, {names.COUNT: "1"})),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1priority", "5")],
    ),
    "a template with its own count gets no map": (
        job({names.MAP: MAP}, replicas("Worker", US, {names.COUNT: "1"})),
        [],
    ),
    "a template with a strategy for its limit gets no map": (
        job({names.MAP: MAP}, replicas("Worker", US, {names.STRATEGY: "best_fit"}, gpu_limits=LIMIT)),
        [],
    ),
    "a template with its own map gets the count, too": (
        job(COUNT, replicas("Worker", US, {names.MAP: MAP})),
        [count_in("Worker")],
    ),
    "an index is not copied": (job({names.INDEX: "0"}, replicas("Worker", "", {names.MAP: MAP})), []),
    "annotations of a binding are not copied": (job({names.ASSIGNED_DEVICES: "0"}), []),
    "a strategy is copied to a template with a limit": (
        job({names.STRATEGY: "best_fit"}, replicas(gpu_limits=LIMIT), replicas("PS")),
        [strategy_in("Worker"), named("Worker")],
    ),
    "a template without a request keeps its scheduler": (job({names.PRIORITY: "5"}), []),
    "a template that names our scheduler gets every annotation": (
        job({names.PRIORITY: "5"}, replicas("Worker", US)),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1priority", "5")],
    ),
    "a template with a map of its own gets our scheduler's name": (
        job({names.OBSERVER: "true"}, replicas("Worker", "", {names.MAP: MAP, names.OBSERVER: "false"})),
        [named("Worker")],
    ),
    "a template with an index of its own keeps it": (
        job({names.MAP: MAP}, replicas("Master", US, {names.INDEX: "1"})),
        [map_in("Master")],
    ),
    "a launcher of an MPIJob gets nothing": (
        job(COUNT, replicas("Launcher"), replicas("Worker", US), kind="MPIJob"),
        [count_in("Worker")],
    ),
    "a launcher that is a worker gets the annotations": (
        job(COUNT, replicas("launcher"), kind="MPIJob", launcher_works=True),
        [count_in("launcher"), named("launcher")],
    ),
    "a launcher that names our scheduler gets the annotations": (
        job(COUNT, replicas("Launcher", US), kind="MPIJob"),
        [count_in("Launcher")],
    ),
    "a launcher with a GPU limit gets the annotations": (
        job({names.STRATEGY: "best_fit"}, replicas("Launcher", gpu_limits=LIMIT), kind="MPIJob"),
        [strategy_in("Launcher"), named("Launcher")],
    ),
    "a launcher of another kind is an ordinary type": (job(COUNT, replicas("Launcher", US)), [count_in("Launcher")]),
}


@pytest.mark.promise("job-2")
@pytest.mark.parametrize(("given", "expected"), PATCHED.values(), ids=PATCHED)
def test_a_job_copies_its_annotations_to_our_templates(given: Job, expected: list[AddOp]) -> None:
    """The log names the templates. Without a change there is no log line."""
    verdict = review_job(given, US)

    assert verdict == Admit(tuple(expected), verdict.log if isinstance(verdict, Admit) else None)
    assert isinstance(verdict, Admit)
    assert (verdict.log is None) is not bool(expected)


def test_the_log_names_the_job_and_the_types() -> None:
    """In one line, whatever the names contain."""
    verdict = review_job(replace(job(COUNT, replicas("Master"), replicas("Wor\nker")), name="tr\x1bain"), US)

    assert isinstance(verdict, Admit)
    expected = text_of("webhook: a job's annotations", job=r'PyTorchJob "tr\x1bain"', types=r'"Master, Wor\nker"')
    assert verdict.log == expected


@pytest.mark.promise("job-1")
def test_a_job_copies_every_request_annotation_but_the_index() -> None:
    """The list is closed, and each annotation of it is copied."""
    given = {
        names.MAP: MAP,
        names.COUNT: "2",
        names.MEMORY: "4096",
        names.EXCLUSIVE: "false",
        names.GPU_TYPE: "A100",
        names.STRATEGY: "priority",
        names.PRIORITY: "10",
        names.SHARING: "any",
        names.START: "together",
        names.OBSERVER: "false",
        names.KEEP_ENV: "true",
    }
    (added, _) = patches(job({**given, names.INDEX: "3", "note": "mine"}, replicas(annotated=False)))

    assert added.value == given
    assert set(COPIED_ANNOTATIONS) == set(given)


@pytest.mark.parametrize("handed", [COUNT, {names.MAP: MAP}, {**COUNT, names.MAP: MAP}], ids=["count", "map", "both"])
def test_a_second_review_adds_nothing(handed: dict[str, str]) -> None:
    """Templates that the first review patched need no more."""
    given = job(handed, replicas("Master", US), replicas())
    done = tuple(
        replace(each, template=replace(each.template, scheduler_name=US, annotations=handed), annotated=True)
        for each in given.replicas
    )

    assert patches(replace(given, replicas=done)) == []


REFUSED = {
    "a bad count": (job({names.COUNT: "-1"}), Reason.REQUEST_INVALID),
    "a bad map": (job({names.MAP: "0=node1:x"}), Reason.MAP_INVALID),
    "a bad strategy": (job({**COUNT, names.STRATEGY: "fastest"}), Reason.REQUEST_INVALID),
    "a bad memory": (job({**COUNT, names.MEMORY: "8GB"}), Reason.REQUEST_INVALID),
    "an odd sharing": (job({names.MAP: MAP, names.SHARING: "all"}), Reason.REQUEST_INVALID),
    "a count that is not the limit": (job(COUNT, replicas(gpu_limits=(("main", 4),))), Reason.REQUEST_INVALID),
    "a template's own index without a line": (
        job({names.MAP: MAP}, replicas("Master", "", {names.INDEX: "7"})),
        Reason.INDEX_NOT_IN_MAP,
    ),
    "a template's own variable": (job(COUNT, replicas(containers=own("7"))), Reason.ENV_CONFLICT),
    "a template with an unsupported field": (job(COUNT, replicas(unsupported=("spec.x",))), Reason.UNSUPPORTED),
    "a later type": (job(COUNT, replicas(), replicas("PS", US, {names.COUNT: "x"})), Reason.REQUEST_INVALID),
}


@pytest.mark.promise("job-3")
@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_job_is_refused_as_its_pods_would_be(given: Job, reason: Reason) -> None:
    """With the message that a pod gets."""
    last = given.replicas[-1].template
    text = replace(last, scheduler_name=US, annotations={**given.annotations, **last.annotations})
    request = read_request(text)
    pod = Pod(PodRef("default", "", ""), request, environment=text.environment, gpu_limits=text.gpu_limits)
    verdict = review_job(given, US)

    assert isinstance(verdict, Deny)
    assert verdict.reason == reason
    assert verdict == review_pod(pod, "", US)


def test_a_value_that_no_pod_gets_is_not_checked() -> None:
    """If each template has its own value, the value of the job does not count."""
    given = job({names.COUNT: "x"}, replicas("Worker", US, {names.COUNT: "1"}))

    assert review_job(given, US) == Admit()


def test_annotations_that_no_template_gets_are_reported() -> None:
    """An index, and any annotation of a job whose replicas request no GPU."""
    (index,) = cautions(job({**COUNT, names.INDEX: "0"}), None, US)
    (unused,) = cautions(job({names.STRATEGY: "priority", names.PRIORITY: "10"}), None, US)

    assert index == text_of("webhook: a job has an index")
    assert unused == text_of("webhook: a job whose replicas are not placed")
    assert cautions(job({"note": "mine"}), None, US) == ()


def test_misspelt_keys_of_a_job_and_its_templates_are_reported() -> None:
    """Each key once, three keys at most, those of the job first."""
    keys = ("agentaflow.gpu/cout", "agentaflow.gpu/indx")
    given = job(
        {"agentaflow.gpu/memroy": "1", "agentaflow.gpu/cout": "1"},
        replicas("Master", "", unknown_keys=keys),
        replicas("Worker", US, unknown_keys=("agentaflow.gpu/priorty",)),
    )

    assert job_key_cautions(given) == (
        'annotation "agentaflow.gpu/memroy" is unknown: did you mean agentaflow.gpu/memory?',
        'annotation "agentaflow.gpu/cout" is unknown: did you mean agentaflow.gpu/count?',
        'annotation "agentaflow.gpu/indx" is unknown: did you mean agentaflow.gpu/index?',
    )
    assert job_key_cautions(job({**COUNT, "note": "mine"})) == ()


def test_an_update_that_no_template_follows_is_reported() -> None:
    """The template keeps its value, even if it was copied from the job: only its author knows which value is right."""
    kept = replicas("Worker", US, {names.COUNT: "2", names.PRIORITY: "5"})
    given = job({names.COUNT: "4", names.PRIORITY: "5"}, kept, replicas("Master", US))

    assert cautions(given, {names.COUNT: "2", names.PRIORITY: "5"}, US) == (
        'annotation agentaflow.gpu/count stays as it was in the template of "Worker"; change it there',
    )
    assert cautions(given, given.annotations, US) == ()
    assert cautions(given, None, US) == ()
    assert cautions(job({names.PRIORITY: "6"}, replicas("Worker", US)), {names.PRIORITY: "5"}, US) == ()
    assert cautions(job({names.PRIORITY: "5"}, kept), {**COUNT, names.PRIORITY: "5"}, US) == (
        'annotation agentaflow.gpu/count stays as it was in the template of "Worker"; change it there',
    )
