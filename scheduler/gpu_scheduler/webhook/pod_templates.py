"""Translates pod templates, and Kubernetes' own controllers, to the values of `template_review`; pure.

A template that names another scheduler is not read further, so no fault in it can make the review fail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from gpu_scheduler.core.pods.placement_map import MAX_NUMBER
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ReadStruct
from gpu_scheduler.kube.objects.pod_objects import PodMeta, PodObject, PodSpec
from gpu_scheduler.kube.objects.pods import text_of
from gpu_scheduler.webhook.template_review import ControllerTemplate

if TYPE_CHECKING:
    from gpu_scheduler.core.pods.pod_text import PodText

GROUPS: Final = {
    "StatefulSet": "apps",
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""The API group of each kind of controller that is read."""

_ABSENT: Final = frozenset({b"", b"null"})
_PERCENT: Final = re.compile(r"([0-9]{1,9})%")

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class _Template(msgspec.Struct, gc=False):
    metadata: PodMeta | None = None
    spec: msgspec.Raw = msgspec.Raw()


class _SchedulerSpec(ReadStruct):
    """The scheduler that a template names."""

    scheduler_name: str | None = None


class _SchedulerTemplate(ReadStruct):
    spec: _SchedulerSpec | None = None


class _Ordinals(ReadStruct):
    start: _Number | None = None


class _RollingUpdate(ReadStruct):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class _Strategy(ReadStruct):
    type: str | None = None
    rolling_update: _RollingUpdate | None = None


class _JobTemplate(ReadStruct):
    spec: _ControllerSpec | None = None


class _ControllerSpec(ReadStruct):
    """The specs of all kinds together: no two of them give one field another meaning."""

    template: msgspec.Raw = msgspec.Raw()
    replicas: _Number | None = None
    ordinals: _Ordinals | None = None
    strategy: _Strategy | None = None
    completions: _Number | None = None
    completion_mode: str | None = None
    job_template: _JobTemplate | None = None


class _Meta(ReadStruct):
    annotations: dict[str, str] | None = None


class _Controller(ReadStruct):
    metadata: _Meta | None = None
    spec: _ControllerSpec | None = None


_choices = msgspec.json.Decoder(_SchedulerTemplate)
_templates = msgspec.json.Decoder(_Template)
_pod_specs = msgspec.json.Decoder(PodSpec)
_controllers = msgspec.json.Decoder(_Controller)


def scheduler_of(template: msgspec.Raw) -> str | None:
    """Return the scheduler that a pod template names, "" if it names none; None if there is no pod in it.

    msgspec.ValidationError on a fault.
    """
    spec = None if bytes(template) in _ABSENT else decode_object(_choices, template).spec
    return None if spec is None else spec.scheduler_name or ""


def read_text(template: msgspec.Raw, namespace: str) -> tuple[PodText, bool | None]:
    """Return what a pod template asks for, and whether it has the field `annotations`; None if it has no metadata.

    msgspec.ValidationError on a fault.
    """
    read = decode_object(_templates, template)
    meta = read.metadata
    pod = PodObject(meta or PodMeta(), decode_object(_pod_specs, read.spec))
    return text_of(pod, namespace), None if meta is None else meta.annotations is not None


def read_controller(raw: msgspec.Raw, kind: str, namespace: str, scheduler_name: str) -> ControllerTemplate | None:
    """Read the pod template of a controller; None if there is none, or if it names another scheduler.

    msgspec.ValidationError on a fault.
    """
    if bytes(memoryview(raw)[:5]) in _ABSENT:
        return None
    controller = decode_object(_controllers, raw)
    spec = controller.spec
    if spec is not None and kind == "CronJob":
        spec = None if spec.job_template is None else spec.job_template.spec
    if spec is None or scheduler_of(spec.template) != scheduler_name:
        return None
    replicas = 1 if spec.replicas is None else spec.replicas
    indices = None
    if kind == "StatefulSet":
        start = (spec.ordinals and spec.ordinals.start) or 0
        indices = range(start, start + replicas)
    elif spec.completion_mode == "Indexed":
        indices = range(spec.completions or 0)
    return ControllerTemplate(
        kind,
        read_text(spec.template, namespace)[0],
        (controller.metadata and controller.metadata.annotations) or {},
        replicas if kind in {"StatefulSet", "Deployment", "ReplicaSet"} else None,
        indices,
        _max_unavailable(spec.strategy or _Strategy(), replicas) if kind == "Deployment" else None,
    )


def _max_unavailable(strategy: _Strategy, replicas: int) -> int | None:
    """Return the number of pods that a rolling update may remove first, as the Deployment controller computes it."""
    if strategy.type not in {None, "RollingUpdate"}:
        return None
    update = strategy.rolling_update or _RollingUpdate()
    surge = resolved(update.max_surge, replicas, up=True)
    unavailable = resolved(update.max_unavailable, replicas)
    # If both are 0, the controller removes one pod first, because it could do nothing otherwise.
    return 1 if surge == unavailable == 0 else unavailable


def resolved(value: int | str | None, replicas: int, *, up: bool = False) -> int | None:
    """Return a number or a percentage as a number of pods; None if it is neither. The default is 25%."""
    written = "25%" if value is None else value
    if isinstance(written, int):
        return written
    percent = _PERCENT.fullmatch(written)
    return None if percent is None else (int(percent[1]) * replicas + 99 * up) // 100
