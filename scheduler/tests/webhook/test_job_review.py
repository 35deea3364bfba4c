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
from gpu_scheduler.webhook.job_review import HANDED, Job, Replicas, cautions, review_job
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from tests.core.build import container, own

US = "gpu-scheduler"
MAP = "0=node1:0,1\n1=node2:2\n"
COUNT = {names.COUNT: "2"}
PLAIN: tuple[Container, ...] = (container(None),)
AT = "/spec/pytorchReplicaSpecs"
BY = "template/metadata/annotations/agentaflow.gpu~1scheduling-strategy"


def replicas(
    name: str = "Worker",
    scheduler: str = "",
    annotations: dict[str, str] | None = None,
    *,
    annotated: bool | None = True,
    **others: Any,
) -> Replicas:
    """A template as its author wrote it; by default it names no scheduler and has no annotation of ours."""
    environment = environment_of(others.pop("containers", PLAIN))
    text = PodText(
        "default", scheduler_name=scheduler, annotations=annotations or {}, environment=environment, **others
    )
    return Replicas(name, text, annotated)


def job(annotations: dict[str, str], *types: Replicas, kind: str = "PyTorchJob", **others: Any) -> Job:
    """A job with these annotations; its one type Worker is plain unless said otherwise."""
    return Job(kind, "train", "pytorchReplicaSpecs", annotations, types or (replicas(),), **others)


def patches(given: Job) -> list[AddOp]:
    verdict = review_job(given, US)
    assert isinstance(verdict, Admit), verdict
    return list(verdict.patches)


def named(path: str) -> AddOp:
    return AddOp(f"{AT}/{path}/template/spec/schedulerName", US)


LIMIT = (("main", 2),)
PATCHED = {
    "a template with annotations gets ours one by one": (
        job(COUNT),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1count", "2"), named("Worker")],
    ),
    "a template without annotations gets the list": (
        job(COUNT, replicas(annotated=False)),
        [AddOp(f"{AT}/Worker/template/metadata/annotations", COUNT), named("Worker")],
    ),
    "a template without metadata gets it": (
        job(COUNT, replicas(annotated=None)),
        [AddOp(f"{AT}/Worker/template/metadata", {"annotations": COUNT}), named("Worker")],
    ),
    "a type's name is spelled as a pointer spells it": (
        job(COUNT, replicas("a/b~c", US)),
        [AddOp(f"{AT}/a~1b~0c/template/metadata/annotations/agentaflow.gpu~1count", "2")],
    ),
    "every type gets them": (
        job({names.MAP: MAP}, replicas("Master", US), replicas("Worker", US)),
        [
            AddOp(f"{AT}/Master/template/metadata/annotations/gpu-scheduling-map", MAP),
            AddOp(f"{AT}/Worker/template/metadata/annotations/gpu-scheduling-map", MAP),
        ],
    ),
    "a template's own annotation stands": (
        job({**COUNT, names.PRIORITY: "5"}, replicas("Worker", US, {names.COUNT: "1"})),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1priority", "5")],
    ),
    "a map is not for a template that counts by itself": (
        job({names.MAP: MAP}, replicas("Worker", US, {names.COUNT: "1"})),
        [],
    ),
    "nor for one that has a strategy for its limit": (
        job({names.MAP: MAP}, replicas("Worker", US, {names.STRATEGY: "best_fit"}, gpu_limits=LIMIT)),
        [],
    ),
    "a count beside a map that is the template's own changes nothing": (
        job(COUNT, replicas("Worker", US, {names.MAP: MAP})),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1count", "2")],
    ),
    "an index reaches nobody": (job({names.INDEX: "0"}, replicas("Worker", "", {names.MAP: MAP})), []),
    "what we wrote on a pod reaches nobody": (job({names.ASSIGNED_DEVICES: "0"}), []),
    "a strategy reaches a template with a limit": (
        job({names.STRATEGY: "best_fit"}, replicas(gpu_limits=LIMIT), replicas("PS")),
        [AddOp(f"{AT}/Worker/{BY}", "best_fit"), named("Worker")],
    ),
    "a template that asks for nothing keeps its scheduler": (job({names.PRIORITY: "5"}), []),
    "but one that names ours gets everything": (
        job({names.PRIORITY: "5"}, replicas("Worker", US)),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1priority", "5")],
    ),
    "a template with a map of its own gets our scheduler's name": (
        job({names.OBSERVER: "true"}, replicas("Worker", "", {names.MAP: MAP, names.OBSERVER: "false"})),
        [named("Worker")],
    ),
    "a template with an index of its own keeps it": (
        job({names.MAP: MAP}, replicas("Master", US, {names.INDEX: "1"})),
        [AddOp(f"{AT}/Master/template/metadata/annotations/gpu-scheduling-map", MAP)],
    ),
    "MPI's launcher computes nothing": (
        job(COUNT, replicas("Launcher"), replicas("Worker", US), kind="MPIJob"),
        [AddOp(f"{AT}/Worker/template/metadata/annotations/agentaflow.gpu~1count", "2")],
    ),
    "unless it is made a worker": (
        job(COUNT, replicas("launcher"), kind="MPIJob", launcher_works=True),
        [AddOp(f"{AT}/launcher/template/metadata/annotations/agentaflow.gpu~1count", "2"), named("launcher")],
    ),
    "or names our scheduler": (
        job(COUNT, replicas("Launcher", US), kind="MPIJob"),
        [AddOp(f"{AT}/Launcher/template/metadata/annotations/agentaflow.gpu~1count", "2")],
    ),
    "or has a limit of cards": (
        job({names.STRATEGY: "best_fit"}, replicas("Launcher", gpu_limits=LIMIT), kind="MPIJob"),
        [AddOp(f"{AT}/Launcher/{BY}", "best_fit"), named("Launcher")],
    ),
    "a launcher of another kind is like any other": (
        job(COUNT, replicas("Launcher", US)),
        [AddOp(f"{AT}/Launcher/template/metadata/annotations/agentaflow.gpu~1count", "2")],
    ),
}


@pytest.mark.parametrize(("given", "expected"), PATCHED.values(), ids=PATCHED)
def test_a_job_hands_its_annotations_to_the_templates_that_are_for_us(given: Job, expected: list[AddOp]) -> None:
    """The log says to which; where nothing changes it says nothing."""
    verdict = review_job(given, US)

    assert verdict == Admit(tuple(expected), verdict.log if isinstance(verdict, Admit) else None)
    assert isinstance(verdict, Admit)
    assert (verdict.log is None) is not bool(expected)


def test_the_log_names_the_job_and_the_types() -> None:
    """One line, whatever the names are."""
    verdict = review_job(replace(job(COUNT, replicas("Master"), replicas("Wor\nker")), name="tr\x1bain"), US)

    assert isinstance(verdict, Admit)
    assert verdict.log == r'Handing the annotations of PyTorchJob "tr\x1bain" to "Master, Wor\nker"'


def test_everything_that_a_pod_may_ask_is_handed_but_the_index() -> None:
    """The list is closed, and each of it arrives."""
    given = {
        names.MAP: MAP,
        names.COUNT: "2",
        names.MEMORY: "4096",
        names.EXCLUSIVE: "false",
        names.GPU_TYPE: "A100",
        names.STRATEGY: "priority",
        names.PRIORITY: "10",
        names.SHARING: "any",
        names.OBSERVER: "true",
        names.KEEP_ENV: "true",
    }
    (added, _) = patches(job({**given, names.INDEX: "3", "note": "mine"}, replicas(annotated=False)))

    assert added.value == given
    assert set(HANDED) == set(given)


@pytest.mark.parametrize("handed", [COUNT, {names.MAP: MAP}, {**COUNT, names.MAP: MAP}], ids=["count", "map", "both"])
def test_a_second_review_adds_nothing(handed: dict[str, str]) -> None:
    """Templates as the first left them need no more."""
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
    "a template that nobody can place": (job(COUNT, replicas(unsupported=("spec.x",))), Reason.UNSUPPORTED),
    "a later type": (job(COUNT, replicas(), replicas("PS", US, {names.COUNT: "x"})), Reason.REQUEST_INVALID),
}


@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_job_is_refused_where_its_pods_would_be(given: Job, reason: Reason) -> None:
    """In the words that a pod gets."""
    last = given.replicas[-1].template
    text = replace(last, scheduler_name=US, annotations={**given.annotations, **last.annotations})
    request = read_request(text)
    pod = Pod(PodRef("default", "", ""), request, environment=text.environment, gpu_limits=text.gpu_limits)
    verdict = review_job(given, US)

    assert isinstance(verdict, Deny)
    assert verdict.reason == reason
    assert verdict == review_pod(pod, "", US)


def test_a_value_that_no_pod_gets_is_not_looked_at() -> None:
    """Where each template says it itself, what the job says does not count."""
    given = job({names.COUNT: "x"}, replicas("Worker", US, {names.COUNT: "1"}))

    assert review_job(given, US) == Admit()


def test_what_reaches_nobody_is_said() -> None:
    """An index, and whatever else where no replica asks for a GPU."""
    (index,) = cautions(job({**COUNT, names.INDEX: "0"}), None, US)
    (nobody,) = cautions(job({names.STRATEGY: "priority", names.PRIORITY: "10"}), None, US)

    assert index == (
        "annotation agentaflow.gpu/index of a job reaches no replica, because each needs an index of its own; "
        "write it into the template of a type that runs once"
    )
    assert nobody == (
        "no replica of this job is placed by gpu-scheduler: each names another scheduler, or asks for no GPU; "
        'write a map or a count (annotation agentaflow.gpu/count, example: "1")'
    )
    assert cautions(job({"note": "mine"}), None, US) == ()


def test_an_update_that_a_template_does_not_follow_is_said() -> None:
    """The template keeps what it has, be it what the job handed to it before: only its author can tell."""
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
