"""An object with a pod template, as the rules read it: its templates, and its pods as admission leaves them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpu_scheduler import names
from gpu_scheduler.cli.lint.places import has, line_at, line_within
from gpu_scheduler.cli.manifests.admission import admitted
from gpu_scheduler.cli.manifests.controllers import job_of, pods_of
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement_map import MapError, PlacementMap, parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.webhook.kubeflow_jobs import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.manifests.controllers import ExpectedPod
    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.core.pods.placement_map import Slot
    from gpu_scheduler.core.refs import WorkloadKey
    from gpu_scheduler.webhook.job_review import Job
    from gpu_scheduler.webhook.review import Deny

Path = tuple[str | int, ...]

_REQUESTS: Final = frozenset({names.MAP, names.COUNT, names.STRATEGY})
"""The annotations by which a pod asks for devices."""


class CheckedPod(NamedTuple):
    """A pod that the object makes, and what admission leaves of it."""

    shown: str
    pod: Pod | Deny
    other_scheduler: str | None
    """The scheduler that it names although it asks for devices, if it is not ours. `pod` is as if it named ours."""


class ObjectMap(NamedTuple):
    """A map that an object has, and where."""

    path: Path
    text: str
    parsed: PlacementMap | MapError


@immutable
class CheckedObject:
    """An object of a kind that makes pods."""

    manifest: Manifest
    namespace: str
    scheduler_name: str
    job: Job | None
    """What the webhook reads of a Kubeflow job; None for other kinds."""
    pods: tuple[CheckedPod, ...] = ()

    def __str__(self) -> str:
        """Return KIND/NAME, as kubectl does."""
        return f"{self.manifest.kind}/{self.manifest.name or self.manifest.generate_name}"

    @property
    def identity(self) -> tuple[str, str, str]:
        """By which the cluster knows it: kind, namespace and name."""
        return self.manifest.kind, self.namespace, self.manifest.name or self.manifest.generate_name

    @property
    def spec(self) -> dict[str, Any]:
        """The object's spec; of a CronJob, its Job's."""
        return part_of(self.manifest.body, *self.spec_path)

    @property
    def spec_path(self) -> Path:
        """Where that spec is."""
        return ("spec", "jobTemplate", "spec") if self.manifest.kind == "CronJob" else ("spec",)

    @property
    def templates(self) -> tuple[Path, ...]:
        """Where its pod templates are."""
        field = REPLICAS.get(self.manifest.kind)
        if field is not None:
            return tuple(("spec", field, str(kind), "template") for kind in part_of(self.spec, field))
        if self.manifest.kind == "Pod":
            return ((),)
        return ((*self.spec_path, "podTemplate" if self.manifest.kind == names.WORKLOAD_KIND else "template"),)

    @property
    def lasting(self) -> bool:
        """Whether its pods run until somebody stops them."""
        if self.manifest.kind == "Pod":
            return bool(self.spec.get("restartPolicy", "Always") == "Always")
        return self.manifest.kind in {"Deployment", "StatefulSet", "ReplicaSet"}

    def admitted(self) -> Iterator[Pod]:
        """List the pods that admission lets pass and that ask for devices."""
        return (each.pod for each in self.pods if isinstance(each.pod, Pod) and each.pod.request.fault is None)

    def annotations(self, owner: Path) -> dict[str, str]:
        """Return the annotations of a template, or of any part of the object with metadata."""
        given = part_of(self.manifest.body, *owner, "metadata", "annotations")
        return {key: value for key, value in given.items() if isinstance(key, str) and isinstance(value, str)}

    def annotated(self) -> tuple[Path, ...]:
        """Return the parts whose annotations reach pods: the templates, and a Kubeflow job itself."""
        return self.templates if self.job is None else (*self.templates, ())

    def maps(self) -> Iterator[ObjectMap]:
        """List the maps that reach pods."""
        for owner in self.annotated():
            text = self.annotations(owner).get(names.MAP)
            if text is not None:
                yield ObjectMap((*owner, "metadata", "annotations", names.MAP), text, _parsed(text))

    def slots(self) -> Iterator[tuple[ObjectMap, Slot]]:
        """List all lines of the maps that can be read."""
        for found in self.maps():
            if isinstance(found.parsed, PlacementMap):
                yield from ((found, slot) for slot in found.parsed.slots)

    def map_of(self, workload: WorkloadKey) -> tuple[ObjectMap, PlacementMap] | None:
        """Return the map of a workload of this object."""
        for each in self.maps():
            if isinstance(each.parsed, PlacementMap) and each.parsed.digest == workload.map:
                return each, each.parsed
        return None

    def has(self, *path: str | int) -> bool:
        """Whether the object has this field."""
        return has(self.manifest.node, path)

    def line(self, *path: str | int) -> int:
        """Return the line in the file of this field, or of the deepest part of the path that exists."""
        return line_at(self.manifest.node, path or ("metadata", "name"))

    def line_of_annotation(self, key: str) -> int | None:
        """Return the line of the first annotation with this key that reaches a pod."""
        paths = ((*owner, "metadata", "annotations", key) for owner in self.annotated())
        return next((self.line(*path) for path in paths if self.has(*path)), None)

    def line_of_slot(self, found: ObjectMap, index: int) -> int:
        """Return the line of the file where a map says what the pod of this index gets."""
        keys = [each.partition("=")[0].strip() for each in found.text.split("\n")]
        return self.line_in_map(found, keys.index(str(index)) + 1 if str(index) in keys else None)

    def line_in_map(self, found: ObjectMap, number: int | None) -> int:
        """Return the line of the file where line `number` of a map stands; without a number, the annotation's."""
        return self.line(*found.path) if number is None else line_within(self.manifest.node, found.path, number)


def read_object(manifest: Manifest, namespace: str, scheduler_name: str) -> CheckedObject:
    """Read an object that makes pods. RefusedInputError if a field has a value that Kubernetes refuses."""
    namespace = manifest.namespace or namespace
    job = job_of(manifest, namespace) if manifest.kind in REPLICAS else None
    checked = CheckedObject(manifest, namespace, scheduler_name, job)
    # Of an Indexed Job all pods are read, not only those that run at once. Without replicas the template is read.
    completions = checked.spec.get("completions") if checked.spec.get("completionMode") == "Indexed" else None
    many = completions if isinstance(completions, int) else None
    expected = pods_of(manifest, namespace, many) or pods_of(manifest, namespace, 1) or ()
    return replace(checked, pods=tuple(_checked(each, manifest, scheduler_name) for each in expected))


def _checked(expected: ExpectedPod, manifest: Manifest, scheduler_name: str) -> CheckedPod:
    uid = f"{manifest.source}:{manifest.number}:{expected.shown}"
    pod = admitted(expected, uid, "", scheduler_name)
    if not isinstance(pod, Pod) or pod.scheduler_name == scheduler_name:
        return CheckedPod(expected.shown, pod, None)
    fault, annotations = pod.request.fault, part_of(expected.body, "metadata", "annotations")
    nothing = fault is not None and fault.reason is Reason.NOTHING_REQUESTED
    if nothing or _REQUESTS.isdisjoint(annotations):
        return CheckedPod(expected.shown, pod, None)
    body = {**expected.body, "spec": {**expected.body["spec"], "schedulerName": scheduler_name}}
    ours = admitted(type(expected)(expected.shown, body), uid, "", scheduler_name)
    return CheckedPod(expected.shown, ours, pod.scheduler_name)


def part_of(body: dict[Any, Any], *path: str | int) -> dict[str, Any]:
    """Return a part of an object; empty if it is absent or no object."""
    for key in path:
        part = body.get(key)
        body = part if isinstance(part, dict) else {}
    return body


def _parsed(text: str) -> PlacementMap | MapError:
    try:
        return parse_placement_map(text)
    except MapError as error:
        return error
