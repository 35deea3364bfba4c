"""The webhook's pure half: pod in, patch operations or a refusal out.

LAW: no API and no state. A pod that is right already is left alone, so that a second review adds nothing to the first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_scheduler import names
from gpu_scheduler.core.environment import conflict, missing, wanted
from gpu_scheduler.core.model import Container, ContainerKind, EnvVar, Pod
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Obstacle, Reason
from gpu_scheduler.core.request import read_request


@dataclass(frozen=True, slots=True)
class AddOp:
    """A JSON patch operation `add`: one entry at the front of a list, or a whole list."""

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Admit:
    """Let the pod in, with these changes; `log` is the line to log, if any."""

    patches: tuple[AddOp, ...] = ()
    log: str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """Keep the pod out, saying why."""

    reason: Reason
    message: str


def review_pod(pod: Pod, subresource: str, scheduler_name: str, old: Pod | None = None) -> Admit | Deny:
    """Review a pod under creation, or (subresource `ephemeralcontainers`, with `old`) one to be debugged."""
    if pod.scheduler_name != scheduler_name:
        return Admit()
    if subresource == "ephemeralcontainers":
        return _review_debugging(pod, old)
    request = read_request(pod)
    if isinstance(request, Obstacle):
        return _deny(request) if request.reason in REFUSED_AT_ADMISSION else Admit()
    slot = request.slot
    named = pod.ref.name or f"{pod.generate_name or ''}?"
    log = f"Injecting {names.VISIBLE_DEVICES}={slot.value} for pod {named} (index {slot.index})"
    return _complete(pod, pod.containers, wanted(slot.value), log)


def _review_debugging(pod: Pod, old: Pod | None) -> Admit | Deny:
    """A new ephemeral container sees what its pod sees; one without anything decided is not ours to complete."""
    known = {container.name for container in _ephemeral(old)} if old is not None else set()
    new = tuple(container for container in _ephemeral(pod) if container.name not in known)
    seen = _seen(pod)
    if seen is None:
        return Admit()
    shown = seen.value if seen.value is not None else f"(annotation {names.ASSIGNED_DEVICES})"
    log = f"Injecting {names.VISIBLE_DEVICES}={shown} for ephemeral containers of pod {pod.ref.name}"
    return _complete(pod, new, (seen, EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)), log)


def _ephemeral(pod: Pod) -> Iterator[Container]:
    return (container for container in pod.containers if container.kind is ContainerKind.EPHEMERAL)


def _seen(pod: Pod) -> EnvVar | None:
    """What the pod's own containers have, else what its map line says."""
    for container in pod.containers:
        if container.kind is not ContainerKind.EPHEMERAL:
            for entry in container.env or ():
                known = entry.value is not None or entry.field_path == names.DEVICES_FIELD
                if entry.name == names.VISIBLE_DEVICES and known:
                    return entry
    request = read_request(pod)
    return None if isinstance(request, Obstacle) else wanted(request.slot.value)[0]


def _complete(pod: Pod, containers: Iterable[Container], needed: tuple[EnvVar, ...], log: str) -> Admit | Deny:
    """Add to each of `containers` what it lacks of `needed`, or refuse one that sets something else."""
    patches: list[AddOp] = []
    for container in containers:
        obstacle = conflict(pod, container, needed)
        if obstacle is not None:
            return _deny(obstacle)
        patches += _additions(container, missing(container, needed))
    return Admit(tuple(patches), log if patches else None)


def _additions(container: Container, entries: tuple[EnvVar, ...]) -> list[AddOp]:
    """At the front, so that the container's own entries may refer to them as $(CUDA_VISIBLE_DEVICES)."""
    if not entries:
        return []
    path = f"/spec/{container.kind}/{container.position}/env"
    values = [_json(entry) for entry in entries]
    if container.env is None:
        return [AddOp(path, values)]
    return [AddOp(f"{path}/0", value) for value in reversed(values)]


def _json(entry: EnvVar) -> dict[str, object]:
    if entry.value is None:
        return {"name": entry.name, "valueFrom": {"fieldRef": {"fieldPath": entry.field_path}}}
    return {"name": entry.name, "value": entry.value}


def _deny(obstacle: Obstacle) -> Deny:
    return Deny(obstacle.reason, obstacle.message)
