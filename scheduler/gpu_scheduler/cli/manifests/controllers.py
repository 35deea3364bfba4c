"""The pods that the controllers of Kubernetes would make of an object, as JSON data.

LAW: pure. A pod has the names, labels, annotations and owner by which its index and its workload are read. What only
its own controller knows, the hash of a template or a random suffix, is made up, and marked as such by `?`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.manifests.patches import patched
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.controller.translation import read_template, read_workload
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.pod_index import MAX_PREFIX
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.webhook.job_review import review_job
from gpu_scheduler.webhook.kubeflow_jobs import REPLICAS, read_job
from gpu_scheduler.webhook.review import Admit, Deny

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.webhook.job_review import Job

Object = dict[str, Any]

MOST_PODS: Final = 10_000
"""Most pods of one object. A map has at most as many lines as 64 KiB of text can have."""
HASH: Final = "expected"
"""In place of the hash of a Deployment's template."""
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_SUFFIX: Final = "zzzzz"
"""In place of a generated suffix: five characters of Kubernetes' alphabet, so that the name counts as generated."""


@immutable
class ExpectedPod:
    """A pod that a controller would make: its name for people, and the object as the API server would get it."""

    shown: str
    body: Object
    claims: tuple[Object, ...] = ()
    """The claims that its StatefulSet would make beside it."""
    gpu_claims: tuple[Object, ...] = ()
    """The ResourceClaims that kube-controller-manager would make for it."""
    refusal: Deny | None = None
    """Why its job is refused, so that the pod is never made."""


@immutable
class _Template:
    """A pod template, and the controller that makes pods of it."""

    manifest: Manifest
    namespace: str
    template: Object
    owner: tuple[str, str]
    """Kind and name of the pods' controller."""

    def pod(self, name: str, *, shown: str = "", generated: bool = False, **more: dict[str, str]) -> ExpectedPod:
        """Return one pod; `more` are labels and annotations that its controller adds."""
        given = _part(self.template, "metadata", self.manifest)
        kind, owner = self.owner
        meta = {
            **given,
            "namespace": self.namespace,
            "labels": {**_texts(given, "labels", self.manifest), **more.get("labels", {})},
            "annotations": {**_texts(given, "annotations", self.manifest), **more.get("annotations", {})},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
            ],
        }
        if generated:
            meta["generateName"] = name
            name = f"{name}{_SUFFIX}"
        spec = _part(self.template, "spec", self.manifest)
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": name}, "spec": spec}
        return ExpectedPod(shown or name, body)


def pods_of(manifest: Manifest, namespace: str, replicas: int | None = None) -> tuple[ExpectedPod, ...] | None:
    """Return the pods of an object in the order in which its controller makes them; None if it makes none.

    `namespace` is used if the object names none. `replicas` replaces the object's own number of replicas.
    RefusedInputError if a field that this reads has a value that Kubernetes refuses.
    """
    expand = _CONTROLLERS.get((group_of(manifest.api_version), manifest.kind))
    if expand is None:
        return None
    found = tuple(islice(expand(manifest, manifest.namespace or namespace, replicas), MOST_PODS + 1))
    if len(found) > MOST_PODS:
        raise _invalid(manifest, f"it makes more than {MOST_PODS} pods", "write fewer replicas")
    return found


def makes_pods(api_version: str, kind: str) -> bool:
    """Whether this is an object whose pods are known: a pod, or what has one of our controllers or Kubernetes'."""
    return (group_of(api_version), kind) in _CONTROLLERS


def _pod(manifest: Manifest, namespace: str, _replicas: int | None) -> Iterator[ExpectedPod]:
    meta = {**manifest.body["metadata"], "namespace": namespace}
    if not manifest.name:
        meta["name"] = f"{manifest.generate_name}{_SUFFIX}"
    shown = manifest.name or f"{manifest.generate_name}?"
    yield ExpectedPod(shown, {**manifest.body, "metadata": meta})


def _stateful_set(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    spec = _part(manifest.body, "spec", manifest)
    start = _number(_part(spec, "ordinals", manifest), "start", 0, manifest)
    template = _Template(manifest, namespace, _part(spec, "template", manifest), ("StatefulSet", manifest.name))
    claims = _objects(spec, "volumeClaimTemplates")
    for index in range(start, start + _replicas_of(spec, replicas, manifest)):
        name = f"{manifest.name}-{index}"
        labels = {names.POD_INDEX: str(index), "statefulset.kubernetes.io/pod-name": name}
        pod = template.pod(name, labels=labels)
        yield _with_claims(pod, claims, namespace)


def _with_claims(pod: ExpectedPod, templates: list[Object], namespace: str) -> ExpectedPod:
    """Return the pod with the volumes and the claims of its StatefulSet's claim templates."""
    if not templates:
        return pod
    spec = pod.body["spec"]
    volumes = {str(each.get("name")): each for each in _objects(spec, "volumes")}
    claims: list[Object] = []
    for template in templates:
        meta = template.get("metadata")
        volume = str(meta.get("name") or "") if isinstance(meta, dict) else ""
        claim = f"{volume}-{pod.shown}"
        volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        claims.append({**template, "metadata": {"name": claim, "namespace": namespace}})
    body = {**pod.body, "spec": {**spec, "volumes": list(volumes.values())}}
    return ExpectedPod(pod.shown, body, tuple(claims))


def _deployment(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    yield from _of_replica_set(manifest, namespace, replicas, f"{manifest.name}-{HASH}", HASH)


def _replica_set(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    yield from _of_replica_set(manifest, namespace, replicas, manifest.name, "")


def _of_replica_set(
    manifest: Manifest, namespace: str, replicas: int | None, owner: str, template_hash: str
) -> Iterator[ExpectedPod]:
    spec = _part(manifest.body, "spec", manifest)
    template = _Template(manifest, namespace, _part(spec, "template", manifest), ("ReplicaSet", owner))
    labels = {names.POD_TEMPLATE_HASH: template_hash} if template_hash else {}
    for number in range(_replicas_of(spec, replicas, manifest)):
        yield template.pod(f"{owner}-", shown=f"{manifest.name}-?{number}", generated=True, labels=labels)


def _job(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    """Yield the pods that run at the same time: the others start when these have ended."""
    spec = _part(manifest.body, "spec", manifest)
    parallelism = _number(spec, "parallelism", 1, manifest) if replicas is None else replicas
    completions = spec.get("completions")
    many = parallelism if completions is None else min(parallelism, _number(spec, "completions", 1, manifest))
    indexed, template = is_indexed_job(manifest), _job_template(manifest, namespace)
    for index in range(many):
        if indexed:
            yield _indexed_pod(template, index)
        else:
            shown = f"{manifest.name or manifest.generate_name}-?{index}"
            yield template.pod(f"{template.owner[1]}-", shown=shown, generated=True)


def is_indexed_job(manifest: Manifest) -> bool:
    """Whether this is a Job whose pods have indices."""
    return _part(manifest.body, "spec", manifest).get("completionMode") == "Indexed"


def pods_with_indices(manifest: Manifest, namespace: str, indices: Iterable[int]) -> list[ExpectedPod]:
    """Return the pods of an Indexed Job with these indices, except those that it does not have.

    RefusedInputError if a field that this reads has a value that Kubernetes refuses.
    """
    completions = _number(_part(manifest.body, "spec", manifest), "completions", 1, manifest)
    template = _job_template(manifest, namespace)
    return [_indexed_pod(template, index) for index in indices if index < completions]


def _job_template(manifest: Manifest, namespace: str) -> _Template:
    name = manifest.name or f"{manifest.generate_name}{_SUFFIX}"
    template = _part(_part(manifest.body, "spec", manifest), "template", manifest)
    return _Template(manifest, namespace, template, ("Job", name))


def _indexed_pod(template: _Template, index: int) -> ExpectedPod:
    written = {names.COMPLETION_INDEX: str(index)}
    manifest, end = template.manifest, f"-{index}-"
    # The Job controller cuts the Job's name, not the index, where the API server would cut the prefix.
    prefix = f"{template.owner[1][: MAX_PREFIX - len(end)]}{end}"
    shown = f"{manifest.name or manifest.generate_name}-{index}"
    return template.pod(prefix, shown=shown, generated=True, labels=written, annotations=written)


def _cron_job(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    """Yield the pods of one run."""
    spec = _part(manifest.body, "spec", manifest)
    job = {**_part(spec, "jobTemplate", manifest), "metadata": {**manifest.body["metadata"]}}
    yield from _job(replace(manifest, body=job), namespace, replicas)


def _gpu_workload(manifest: Manifest, namespace: str, _replicas: int | None) -> Iterator[ExpectedPod]:
    # Imported late, because it loads the client of the API server.
    from gpu_scheduler.controller.api_writers import pod_of

    meta = {"uid": f"uid-{manifest.name}", "generation": 1, **manifest.body["metadata"], "namespace": namespace}
    raw = msgspec.json.encode({**manifest.body, "metadata": meta})
    try:
        _, workload = read_workload(raw)
        *_, template = read_template(raw)
    except UNREADABLE as error:
        raise _invalid(manifest, str(error), "see kubectl explain gpuworkload.spec --recursive") from error
    body = msgspec.json.decode(msgspec.json.encode(pod_of(workload, template, 0, names.SCHEDULER_NAME)))
    yield ExpectedPod(body["metadata"]["name"], body)


def _kubeflow_job(manifest: Manifest, namespace: str, replicas: int | None) -> Iterator[ExpectedPod]:
    """Yield the replicas of each type. Their templates get the job's annotations, as from the webhook."""
    job = job_of(manifest, namespace)
    verdict = Admit() if job is None else review_job(job, names.SCHEDULER_NAME)
    refusal = verdict if isinstance(verdict, Deny) else None
    body = manifest.body if isinstance(verdict, Deny) else patched(manifest.body, verdict.patches)
    types = _part(_part(body, "spec", manifest), REPLICAS[manifest.kind], manifest)
    for kind in types:
        spec = _part(types, kind, manifest)
        template = _Template(manifest, namespace, _part(spec, "template", manifest), (manifest.kind, manifest.name))
        for number in range(_replicas_of(spec, replicas, manifest)):
            labels = {names.REPLICA_TYPE: kind.lower(), _REPLICA_INDEX: str(number)}
            pod = template.pod(f"{manifest.name}-{kind.lower()}-{number}", labels=labels)
            yield replace(pod, refusal=refusal)


def job_of(manifest: Manifest, namespace: str) -> Job | None:
    """Return what the webhook reads of a Kubeflow job. RefusedInputError if it cannot be read."""
    raw = msgspec.Raw(msgspec.json.encode(manifest.body))
    try:
        return read_job(raw, manifest.kind, namespace, names.SCHEDULER_NAME)
    except UNREADABLE as error:
        raise _invalid(manifest, str(error), f"see kubectl explain {manifest.kind.lower()} --recursive") from error


_CONTROLLERS: Final[dict[tuple[str, str], Callable[[Manifest, str, int | None], Iterator[ExpectedPod]]]] = {
    ("", "Pod"): _pod,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("agentaflow.io", names.WORKLOAD_KIND): _gpu_workload,
    **{(names.KUBEFLOW, kind): _kubeflow_job for kind in (names.PYTORCH_JOB, names.MPI_JOB, names.TF_JOB)},
}


def group_of(api_version: str) -> str:
    """Return the API group; empty for the core group."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def _replicas_of(spec: Object, asked: int | None, manifest: Manifest) -> int:
    return _number(spec, "replicas", 1, manifest) if asked is None else asked


def _number(part: Object, key: str, default: int, manifest: Manifest) -> int:
    value = part.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _invalid(manifest, f"its {key} is {quote(str(value))}", "it must be a whole number from 0")
    return value


def _objects(part: Object, key: str) -> list[Object]:
    given = part.get(key)
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _part(part: Object, key: str, manifest: Manifest) -> Object:
    value = part.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(manifest, f"its {key} is {quote(str(value))}", "it must be an object")
    return value


def _texts(part: Object, key: str, manifest: Manifest) -> dict[str, str]:
    found = _part(part, key, manifest)
    for name, value in found.items():
        if not isinstance(value, str):
            raise _invalid(manifest, f"its {key[:-1]} {quote(str(name))} is {quote(str(value))}", "put it in quotes")
    return found


def _invalid(manifest: Manifest, rule: str, remedy: str) -> RefusedInputError:
    return RefusedInputError(f"cannot read {manifest}: {rule}; {remedy}")
