"""The webhook's pure half for Kubeflow's jobs: copies a job's annotations into its templates, and so to its pods.

LAW: no API and no state. What a template sets itself is not changed, so that a second review adds nothing to the first.
A job is refused if its pods would be refused, with the same message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import PlacementRequest, read_request
from gpu_scheduler.core.pods.unknown_keys import MOST_NAMED, unknown_key_message, unknown_keys
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import quote
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, pod_of_text, review_pod

COPIED_ANNOTATIONS: Final = (
    names.MAP,
    names.COUNT,
    names.MEMORY,
    names.EXCLUSIVE,
    names.GPU_TYPE,
    names.STRATEGY,
    names.PRIORITY,
    names.SHARING,
    names.START,
    names.OBSERVER,
    names.KEEP_ENV,
)
"""The annotations that templates get from their job. The index is not one, because replicas cannot share an index."""

# A template with one of these leaves its devices to a strategy. It does not get the map of its job, because on a pod a
# map overrides them.
_BY_STRATEGY: Final = frozenset({names.COUNT, names.STRATEGY})

_LAUNCHER: Final = "launcher"


@immutable
class Replicas:
    """The replicas of one type whose template names our scheduler or none."""

    name: str
    template: PodText
    """Its `scheduler_name` is empty if the template names none."""
    annotated: bool | None
    """Whether the template has the field `annotations`, even an empty one; None if it has no metadata."""


@immutable
class Job:
    """A job of Kubeflow; `field` is the field of `spec` that holds its replicas."""

    kind: str
    name: str
    field: str
    annotations: Mapping[str, str]
    replicas: tuple[Replicas, ...]
    launcher_works: bool = False
    """Whether its launcher is one of the workers (`runLauncherAsWorker`)."""


def review_job(job: Job, scheduler_name: str) -> Admit | Deny:
    """Patch the templates of our replicas: add the job's annotations, and our scheduler's name if they name none."""
    patches: list[AddOp] = []
    reached: list[str] = []
    for replicas, text in _ours(job, scheduler_name):
        verdict = review_pod(pod_of_text(text), "", scheduler_name)
        if isinstance(verdict, Deny):
            return verdict
        additions = [*_annotations(job, replicas, text), *_scheduler(job, replicas, scheduler_name)]
        if additions:
            patches += additions
            reached.append(replicas.name)
    log = f"Handing the annotations of {job.kind} {quote(job.name)} to {quote(', '.join(reached))}"
    return Admit(tuple(patches), log if patches else None)


def cautions(job: Job, before: Mapping[str, str] | None, scheduler_name: str) -> tuple[str, ...]:
    """Return warnings for the author of an admitted job; `before` are the annotations that an update replaces."""
    warnings: list[str] = []
    ours = [replicas for replicas, _ in _ours(job, scheduler_name)]
    if names.INDEX in job.annotations:
        warnings.append(
            f"annotation {names.INDEX} of a job reaches no replica, because each needs an index of its own; "
            "write it into the template of a type that runs once"
        )
    if not ours and _copied_annotations(job):
        warnings.append(
            f"no replica of this job is placed by {scheduler_name}: each names another scheduler, or asks for no GPU; "
            f'write a map or a count (annotation {names.COUNT}, example: "1")'
        )
    for key in COPIED_ANNOTATIONS:
        now = job.annotations.get(key)
        if before is not None and now != before.get(key):
            kept = ", ".join(each.name for each in ours if each.template.annotations.get(key) not in {None, now})
            if kept:
                warnings.append(f"annotation {key} stays as it was in the template of {quote(kept)}; change it there")
    return tuple(warnings)


def job_key_cautions(job: Job) -> tuple[str, ...]:
    """Return warnings for the author of a job: annotations of it or its templates whose keys are probably misspelt."""
    of_templates = chain.from_iterable(each.template.unknown_keys for each in job.replicas)
    keys = dict.fromkeys((*unknown_keys(job.annotations), *of_templates))
    return tuple(map(unknown_key_message, islice(keys, MOST_NAMED)))


def _ours(job: Job, scheduler_name: str) -> Iterator[tuple[Replicas, PodText]]:
    """List the replicas that our scheduler places, each with the text of its pods.

    This is the text that Kubeflow's operator writes on a pod once the job's annotations are in the template.
    """
    given = _copied_annotations(job)
    for replicas in job.replicas if given else ():
        if _uses_gpus(job, replicas):
            template = replicas.template
            text = replace(
                template,
                name="",
                scheduler_name=scheduler_name,
                annotations={**_without_map(given, template.annotations), **template.annotations},
                labels={**template.labels, names.REPLICA_TYPE: replicas.name},
            )
            if template.scheduler_name or _asks_for_gpus(read_request(text)):
                yield replicas, text


def _copied_annotations(job: Job) -> dict[str, str]:
    return {key: job.annotations[key] for key in COPIED_ANNOTATIONS if key in job.annotations}


def _uses_gpus(job: Job, replicas: Replicas) -> bool:
    """Whether the replicas use GPUs.

    MPI's launcher starts the other replicas. Its operator hides GPUs from it, unless the job makes it compute itself.
    """
    if job.kind != names.MPI_JOB or replicas.name.lower() != _LAUNCHER:
        return True
    return job.launcher_works or bool(replicas.template.gpu_limits) or bool(replicas.template.scheduler_name)


def _without_map(given: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if key != names.MAP or _BY_STRATEGY.isdisjoint(own)}


def _asks_for_gpus(request: PlacementRequest) -> bool:
    """Whether the replicas ask for GPUs.

    Those that do not (a parameter server, say) would wait for ever with our scheduler.
    """
    return request.fault is None or request.fault.reason is not Reason.NOTHING_REQUESTED


def _annotations(job: Job, replicas: Replicas, text: PodText) -> list[AddOp]:
    """Make patches that add the annotations which the template lacks, at the deepest path that it has."""
    missing = {key: value for key, value in text.annotations.items() if key not in replicas.template.annotations}
    path = f"{_template(job, replicas)}/metadata"
    if not missing:
        return []
    if replicas.annotated is None:
        return [AddOp(path, {"annotations": missing})]
    if not replicas.annotated:
        return [AddOp(f"{path}/annotations", missing)]
    return [AddOp(f"{path}/annotations/{_escaped(key)}", value) for key, value in missing.items()]


def _scheduler(job: Job, replicas: Replicas, scheduler_name: str) -> list[AddOp]:
    if replicas.template.scheduler_name:
        return []
    return [AddOp(f"{_template(job, replicas)}/spec/schedulerName", scheduler_name)]


def _template(job: Job, replicas: Replicas) -> str:
    return f"/spec/{job.field}/{_escaped(replicas.name)}/template"


def _escaped(key: str) -> str:
    """Escape a key for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
