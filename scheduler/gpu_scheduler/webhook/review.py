"""The webhook's pure half: pod in, patch operations or a refusal out.

LAW: no API and no state. A pod that is already complete is not changed, so a second review adds nothing to the first.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.filters.container_claims import gpu_containers, missing_claims, part_of_claim
from gpu_scheduler.core.filters.environment import BY_FIELD, conflict, missing, required_env
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import COUNT_IGNORED, excess_fault, read_request
from gpu_scheduler.core.pods.unknown_keys import unknown_key_message
from gpu_scheduler.core.pods.visible_devices import carried
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Fault, Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import number_of, quote

_MAX_NAME: Final = 253


@immutable
class AddOp:
    """A JSON patch operation `add`: one entry at the front or the end of a list, or a whole field."""

    path: str
    value: object


@immutable
class Admit:
    """Admit the object with these patches; `log` is the line to log, if any."""

    patches: tuple[AddOp, ...] = ()
    log: str | None = None


@immutable
class Deny:
    """Refuse the object; `message` says why."""

    reason: Reason
    message: str


def review_pod(
    pod: Pod, subresource: str, scheduler_name: str, old: Pod | None = None, *, claim_name: str = ""
) -> Admit | Deny:
    """Review a pod at its creation, or (subresource `ephemeralcontainers`, with `old`) one that is to be debugged.

    `claim_name` is the name of a new ResourceClaim whose devices are decided when the pod is placed.
    """
    if pod.scheduler_name != scheduler_name:
        return Admit()
    if subresource == "ephemeralcontainers":
        return _review_debugging(pod, old)
    fault = pod.request.fault
    if fault is not None:
        return _deny(fault) if fault.reason in REFUSED_AT_ADMISSION else Admit()
    needed, claims = _needed_env(pod), _claim_names(pod, claim_name)
    log = f"Injecting {_env_text(needed)}{_claims_text(claims)} for pod {_name_for_log(pod)} ({_placement_text(pod)})"
    verdict = _complete(pod, gpu_containers(pod), needed, log)
    return verdict if isinstance(verdict, Deny) else _with_claims(pod, claims, verdict, log)


def pod_of_text(text: PodText) -> Pod:
    """Return the pod with this text, with the fields that a review reads."""
    return Pod(
        PodRef(text.namespace, text.name, ""),
        read_request(text),
        scheduler_name=text.scheduler_name,
        generate_name=text.generate_name,
        environment=text.environment,
        resource_claims=text.resource_claims,
        gpu_limits=text.gpu_limits,
        excess=text.excess,
    )


def key_cautions(pod: Pod) -> tuple[str, ...]:
    """Return warnings for the author of a pod: annotations that are ignored, most of them misspelt."""
    request = pod.request
    return (*map(unknown_key_message, request.unknown_keys), *[COUNT_IGNORED] * request.count_ignored)


def _needed_env(pod: Pod) -> tuple[EnvVar, EnvVar]:
    """Return the variables that the containers of a new pod need.

    They contain the devices of the pod's line. If line or devices are decided later, they refer to our annotation. So
    they do if the pod has ResourceClaims: nobody knows the UUIDs yet.
    """
    line = pod.request.line
    if pod.isolated or line is None or line.slot is None or pod.gpu_limits:
        return BY_FIELD
    return required_env(line.slot.value)


def _placement_text(pod: Pod) -> str:
    """Return what is known of the pod's placement, for a log line."""
    line, own = pod.request.line, pod.request.own_claim
    if own is not None:
        return f"devices of its ResourceClaim {own.name or own.entry}"
    if line is None:
        return "devices decided by strategy when it is placed"
    return "index decided when it is placed" if line.index is None else f"index {line.index}"


def _review_debugging(pod: Pod, old: Pod | None) -> Admit | Deny:
    """Review new ephemeral containers: each must see the devices that its pod sees."""
    if pod.excess is not None:
        return _deny(excess_fault(pod.excess))
    known = {container.name for container in _ephemeral(old)} if old is not None else set()
    new = tuple(container for container in _ephemeral(pod) if container.name not in known)
    needed = _ephemeral_env(pod)
    return _complete(
        pod, new, needed, f"Injecting {_env_text(needed)} for ephemeral containers of pod {_name_for_log(pod)}"
    )


def _ephemeral(pod: Pod) -> Iterator[Container]:
    return (container for container in pod.environment.containers if container.kind is ContainerKind.EPHEMERAL)


def _ephemeral_env(pod: Pod) -> tuple[EnvVar, EnvVar]:
    """Return the variables that new ephemeral containers need.

    They are as in the pod's own containers, else as its request needs them. If the request has a fault, they refer to
    our annotation, which is then empty.
    """
    own = carried(pod.environment.containers)
    if own is not None:
        return own, BY_FIELD[1]
    return BY_FIELD if pod.request.fault is not None else _needed_env(pod)


def _complete(pod: Pod, containers: Iterable[Container], needed: tuple[EnvVar, ...], log: str) -> Admit | Deny:
    """Add to each container the variables of `needed` that it lacks. Refuse the pod if one sets another value."""
    patches: list[AddOp] = []
    for container in containers:
        unschedulable = conflict(pod, container, needed)
        if unschedulable is not None:
            return _deny(unschedulable)
        patches += _additions(container, missing(container, needed))
    return Admit(tuple(patches), log if patches else None)


def _claim_names(pod: Pod, claim_name: str) -> tuple[str, ...]:
    """Return the names of the ResourceClaims that the pod must carry."""
    return tuple(each.name or claim_name for each in pod.request.claims or ())


def _with_claims(pod: Pod, claims: tuple[str, ...], complete: Admit, log: str) -> Admit | Deny:
    """Add the claims to the pod, and to each container those that it does not use. Refuse it if one uses a part."""
    patches = list(complete.patches)
    if claims and not pod.resource_claims:
        pairs = zip(CLAIM_ENTRIES, claims, strict=False)
        patches.append(
            AddOp("/spec/resourceClaims", [{"name": entry, "resourceClaimName": name} for entry, name in pairs])
        )
    for container in pod.environment.containers if claims else ():
        unschedulable = part_of_claim(container)
        if unschedulable is not None:
            return _deny(unschedulable)
        patches += _claim_additions(container, missing_claims(container, len(claims)))
    return Admit(tuple(patches), log if patches else None)


def _claim_additions(container: Container, entries: tuple[str, ...]) -> list[AddOp]:
    """Make patches that add the entries, at the deepest path that the container has."""
    if not entries or container.claims is None:
        return []
    path = f"/spec/{container.kind}/{container.position}/resources"
    values = [{"name": entry} for entry in entries]
    if not container.claims.has_resources:
        return [AddOp(path, {"claims": values})]
    if container.claims.used is None:
        return [AddOp(f"{path}/claims", values)]
    return [AddOp(f"{path}/claims/-", value) for value in values]


def _additions(container: Container, entries: tuple[EnvVar, ...]) -> list[AddOp]:
    """Make patches that add the entries at the front: later entries may refer to them as $(CUDA_VISIBLE_DEVICES)."""
    if not entries:
        return []
    path = f"/spec/{container.kind}/{container.position}/env"
    values = [_json(entry) for entry in entries]
    if container.env is None:
        return [AddOp(path, values)]
    return [AddOp(f"{path}/0", value) for value in reversed(values)]


def _name_for_log(pod: Pod) -> str:
    """Return the pod's name for a log line. It may be invalid: the API server checks names after admission."""
    name = pod.ref.name or f"{pod.generate_name or ''}?"
    return name if name.isprintable() and len(name) <= _MAX_NAME else quote(name)


def _env_text(needed: tuple[EnvVar, EnvVar]) -> str:
    value = needed[0].value
    return f"{names.VISIBLE_DEVICES}={f'(annotation {names.ASSIGNED_DEVICES})' if value is None else value}"


def _claims_text(claims: tuple[str, ...]) -> str:
    """Return the text for a log line; empty without claims."""
    return f" and {number_of(len(claims), 'ResourceClaim')}" if claims else ""


def _json(entry: EnvVar) -> dict[str, object]:
    if entry.value is None:
        return {"name": entry.name, "valueFrom": {"fieldRef": {"fieldPath": entry.field_path}}}
    return {"name": entry.name, "value": entry.value}


def _deny(fault: Fault) -> Deny:
    return Deny(fault.reason, fault.message)
