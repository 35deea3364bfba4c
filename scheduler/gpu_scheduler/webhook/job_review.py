"""The webhook's pure half for Kubeflow's jobs: a job's annotations go into its templates, and so reach its pods.

LAW: no API and no state. What a template says itself stands, so that a second review adds nothing to the first; a job
is refused where its pods would be, in the same words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import PlacementRequest, read_request
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import quote
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod

HANDED: Final = (
    names.MAP,
    names.COUNT,
    names.MEMORY,
    names.EXCLUSIVE,
    names.GPU_TYPE,
    names.STRATEGY,
    names.PRIORITY,
    names.SHARING,
    names.OBSERVER,
    names.KEEP_ENV,
)
"""What templates take from their job; no index, because replicas can't have one in common."""

# A template that says one of these leaves its devices to a strategy: a map, which beats it on a pod, is not for it.
_BY_STRATEGY: Final = frozenset({names.COUNT, names.STRATEGY})

_LAUNCHER: Final = "launcher"


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one type whose template names our scheduler or none."""

    name: str
    template: PodText
    """Its `scheduler_name` is empty where it names none."""
    annotated: bool | None
    """Whether the template has annotations, be they none; None where it lacks even metadata."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of Kubeflow's; `field` is that of `spec` which holds its replicas."""

    kind: str
    name: str
    field: str
    annotations: Mapping[str, str]
    replicas: tuple[Replicas, ...]
    launcher_works: bool = False
    """Its launcher is one of the workers (`runLauncherAsWorker`)."""


def review_job(job: Job, scheduler_name: str) -> Admit | Deny:
    """Hand the job's annotations to the templates that are for us, and our scheduler's name where there is none."""
    patches: list[AddOp] = []
    reached: list[str] = []
    for replicas, text in _ours(job, scheduler_name):
        verdict = review_pod(_pod(text), "", scheduler_name)
        if isinstance(verdict, Deny):
            return verdict
        additions = [*_annotations(job, replicas, text), *_scheduler(job, replicas, scheduler_name)]
        if additions:
            patches += additions
            reached.append(replicas.name)
    log = f"Handing the annotations of {job.kind} {quote(job.name)} to {quote(', '.join(reached))}"
    return Admit(tuple(patches), log if patches else None)


def cautions(job: Job, before: Mapping[str, str] | None, scheduler_name: str) -> tuple[str, ...]:
    """What the author should know of a job that is let in; `before` are the annotations that an update replaces."""
    said: list[str] = []
    ours = [replicas for replicas, _ in _ours(job, scheduler_name)]
    if names.INDEX in job.annotations:
        said.append(
            f"annotation {names.INDEX} of a job reaches no replica, because each needs an index of its own; "
            "write it into the template of a type that runs once"
        )
    if not ours and _given(job):
        said.append(
            f"no replica of this job is placed by {scheduler_name}: each names another scheduler, or asks for no GPU; "
            f'write a map or a count (annotation {names.COUNT}, example: "1")'
        )
    for key in HANDED:
        now = job.annotations.get(key)
        if before is not None and now != before.get(key):
            kept = ", ".join(each.name for each in ours if each.template.annotations.get(key) not in {None, now})
            if kept:
                said.append(f"annotation {key} stays as it was in the template of {quote(kept)}; change it there")
    return tuple(said)


def _ours(job: Job, scheduler_name: str) -> Iterator[tuple[Replicas, PodText]]:
    """The replicas that are for us, each with what its operator would write on a pod once the job has handed over."""
    given = _given(job)
    for replicas in job.replicas if given else ():
        if _computes(job, replicas):
            template = replicas.template
            text = replace(
                template,
                name="",
                scheduler_name=scheduler_name,
                annotations={**_without_map(given, template.annotations), **template.annotations},
                labels={**template.labels, names.REPLICA_TYPE: replicas.name},
            )
            if template.scheduler_name or _asks(read_request(text)):
                yield replicas, text


def _pod(text: PodText) -> Pod:
    """What a review of such a pod looks at."""
    return Pod(
        PodRef(text.namespace, "", ""),
        read_request(text),
        scheduler_name=text.scheduler_name,
        generate_name=text.generate_name,
        environment=text.environment,
        gpu_limits=text.gpu_limits,
    )


def _given(job: Job) -> dict[str, str]:
    return {key: job.annotations[key] for key in HANDED if key in job.annotations}


def _computes(job: Job, replicas: Replicas) -> bool:
    """MPI's launcher starts the others and is kept from GPUs by its operator, unless it is made to compute itself."""
    if job.kind != names.MPI_JOB or replicas.name.lower() != _LAUNCHER:
        return True
    return job.launcher_works or bool(replicas.template.gpu_limits) or bool(replicas.template.scheduler_name)


def _without_map(given: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if key != names.MAP or _BY_STRATEGY.isdisjoint(own)}


def _asks(request: PlacementRequest) -> bool:
    """Replicas that ask for no GPU (a parameter server, say) would wait for ever with our scheduler."""
    return request.fault is None or request.fault.reason is not Reason.NOTHING_REQUESTED


def _annotations(job: Job, replicas: Replicas, text: PodText) -> list[AddOp]:
    """What the template lacks, at the deepest place that it has."""
    lacking = {key: value for key, value in text.annotations.items() if key not in replicas.template.annotations}
    path = f"{_template(job, replicas)}/metadata"
    if not lacking:
        return []
    if replicas.annotated is None:
        return [AddOp(path, {"annotations": lacking})]
    if not replicas.annotated:
        return [AddOp(f"{path}/annotations", lacking)]
    return [AddOp(f"{path}/annotations/{_escaped(key)}", value) for key, value in lacking.items()]


def _scheduler(job: Job, replicas: Replicas, scheduler_name: str) -> list[AddOp]:
    if replicas.template.scheduler_name:
        return []
    return [AddOp(f"{_template(job, replicas)}/spec/schedulerName", scheduler_name)]


def _template(job: Job, replicas: Replicas) -> str:
    return f"/spec/{job.field}/{_escaped(replicas.name)}/template"


def _escaped(key: str) -> str:
    """A key as JSON pointers spell it."""
    return key.replace("~", "~0").replace("/", "~1")
