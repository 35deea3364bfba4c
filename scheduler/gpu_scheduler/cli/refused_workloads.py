"""Controllers of ours that lack pods because their pods are refused at creation: no list of pods shows those.

Deployments and ReplicaSets have the refusal in their status. Of StatefulSets and Jobs only events have it, which end
after an hour. So their templates are read as the webhook reads them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import UnlistedError, list_all
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ConditionObject, ObjectMeta, ReadStruct
from gpu_scheduler.webhook.pod_templates import GROUPS, read_controller
from gpu_scheduler.webhook.template_review import review_template

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.webhook.template_review import ControllerTemplate

View = dict[str, Any]

_LISTED: Final = {
    "StatefulSet": "",
    "Deployment": "",
    # A Deployment has the status of its ReplicaSets, which all have this label.
    "ReplicaSet": f"!{names.POD_TEMPLATE_HASH}",
    "Job": "",
}
"""The kinds that are listed, and the label selector of each."""
_DENIED: Final = "denied the request: "


class _Spec(ReadStruct):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class _Status(ReadStruct):
    replicas: int | None = None
    active: int | None = None
    succeeded: int | None = None
    conditions: list[ConditionObject] | None = None


class _Controller(ReadStruct):
    metadata: ObjectMeta
    spec: _Spec
    status: _Status | None = None


_controllers = msgspec.json.Decoder(_Controller)


async def refused_workloads(api: ApiClient, scheduler_name: str, namespace: str | None) -> tuple[list[View], str]:
    """Return the controllers of one namespace, or of all if it is None, that lack pods which are refused at creation.

    The second value says what may not be listed; it is empty if everything could be.
    """

    async def of_kind(kind: str, labels: str) -> list[View | None]:
        group, plural = GROUPS[kind], f"{kind.lower()}s"
        space = f"namespaces/{segment(namespace)}/" if namespace else ""

        def read(raw: msgspec.Raw) -> View | None:
            return refused_view(raw, kind, scheduler_name)

        return await list_all(api, f"{kind}s", f"/apis/{group}/v1/{space}{plural}", read, labels=labels)

    listed = await asyncio.gather(*(of_kind(*each) for each in _LISTED.items()), return_exceptions=True)
    found: list[View] = []
    unlisted: dict[str, str] = {}
    for kind, each in zip(_LISTED, listed, strict=True):
        if isinstance(each, UnlistedError):
            where = f"-n {namespace}" if namespace else "-A"
            unlisted[f"{kind}s"] = missing_right(each, f"list {kind.lower()}s.{GROUPS[kind]} {where}")
        elif isinstance(each, BaseException):
            raise each
        else:
            found += (view for view in each if view is not None)
    return found, _left_out(unlisted)


def _left_out(unlisted: dict[str, str]) -> str:
    """Return one sentence for all kinds, with the first of their reasons; empty if there is none."""
    if not unlisted:
        return ""
    return f"{', '.join(unlisted)} whose pods are refused are left out: {next(iter(unlisted.values()))}"


def refused_view(raw: msgspec.Raw, kind: str, scheduler_name: str) -> View | None:
    """Return a controller of ours that lacks pods which are refused; None for any other object.

    msgspec.ValidationError if it is no such controller.
    """
    template = read_controller(raw, kind, "", scheduler_name)
    if template is None:
        return None
    controller = decode_object(_controllers, raw)
    meta, status = controller.metadata, controller.status or _Status()
    refusal = _refusal(template, status, scheduler_name) if _missing(template, controller.spec, status) > 0 else None
    if refusal is None:
        return None
    reason, message = refusal
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "objectKind": kind,
        "phase": "Pending",
        "node": None,
        "devices": [],
        "observer": template.text.annotations.get(names.OBSERVER) == "true",
        "strategy": None,
        "priority": None,
        "reason": reason,
        "message": message,
        "why": message,
        "since": None,
        "workload": None,
        "createdAt": meta.creation_timestamp,
    }


def _missing(template: ControllerTemplate, spec: _Spec, status: _Status) -> int:
    """Return how many pods the controller would have beside those that it has."""
    if template.replicas is not None:
        return template.replicas - (status.replicas or 0)
    ended = any(each.type in {"Complete", "Failed"} and each.status == "True" for each in status.conditions or ())
    if ended or spec.suspend:
        return 0
    at_once = 1 if spec.parallelism is None else spec.parallelism
    left = at_once if spec.completions is None else spec.completions - (status.succeeded or 0)
    return min(at_once, left) - (status.active or 0)


def _refusal(template: ControllerTemplate, status: _Status, scheduler_name: str) -> tuple[str, str] | None:
    """Return reason and message of why pods are refused; None if nothing says that they are."""
    for found in review_template(template, scheduler_name):
        if found.reason in REFUSED_AT_ADMISSION:
            return found.reason, found.message
    for condition in status.conditions or ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            message = condition.message or ""
            text = message.partition(_DENIED)[2]
            word = text.partition(":")[0]
            return (word, text) if word in tuple(Reason) else (condition.reason or condition.type, message)
    return None
