"""What every container must carry in its environment, and what is wrong with what it carries: the bind gate.

LAW: the webhook completes an environment by the same functions by which the bind gate insists on it. A container sees
no device that is not booked for its pod.
"""

from itertools import chain
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import MAX_VALUE
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.visible_devices import FIELD_ENTRY, carried, keepable
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

_BY_BUS: Final = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)

_KEPT_RULE: Final = (
    "what a container keeps must be GPU numbers, or full UUIDs GPU-<uuid> or MIG-<uuid>, of one kind, as a map writes "
    f'them, separated by single commas, at most {MAX_VALUE} characters; or "" or "-1" for no GPU'
)

BY_FIELD: Final = (FIELD_ENTRY, _BY_BUS)
"""What a container needs to see the devices that are decided when its pod is placed."""


def required_env(value: str) -> tuple[EnvVar, EnvVar]:
    """What a container needs to see the devices `value`, numbered as the map numbers them."""
    return EnvVar(names.VISIBLE_DEVICES, value), _BY_BUS


def missing(container: Container, needed: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Those of `needed` that the container does not set at all, in the order given."""
    names_set = {entry.name for entry in container.env or ()}
    return tuple(entry for entry in needed if entry.name not in names_set)


def conflict(pod: Pod, container: Container, needed: tuple[EnvVar, ...]) -> Unschedulable | None:
    """What the container sets to something else than `needed`, and may not keep.

    Of two entries with one name the last wins, so every one is looked at.
    """
    by_name = {entry.name: entry for entry in needed}
    for entry in container.env or ():
        need = by_name.get(entry.name)
        if need is None or entry in {need, FIELD_ENTRY}:
            continue
        if container.kind is ContainerKind.EPHEMERAL:
            # keep-env does not speak for it: it comes when the pod's devices are booked already.
            if entry != carried(pod.environment.containers):
                return _other(container, entry, need, "leave the variable out: it sees what its pod's containers see")
        elif not pod.request.keep_env:
            keep = f', or keep it with annotation {names.KEEP_ENV}: "true"' if keepable(entry) else ""
            return _other(container, entry, need, f"leave the variable out{keep}, and create the pod anew")
        elif not keepable(entry):
            return _not_kept(container, entry)
    return None


def lacks(container: Container, needed: tuple[EnvVar, ...]) -> Unschedulable | None:
    """What the container does not carry although the webhook adds it to every one."""
    gaps = missing(container, needed)
    if not gaps:
        return None
    return Unschedulable(
        Reason.ENV_NOT_INJECTED,
        f"cannot start container {quote(container.name)} without {_shown(gaps[0])}: it would not see its GPUs",
        "delete the pod: its controller makes it anew and admission completes it; a bare pod must be created again",
    )


def _other(container: Container, entry: EnvVar, need: EnvVar, remedy: str) -> Unschedulable:
    own = "takes it from elsewhere (valueFrom)" if entry.value is None else f"says {quote(entry.value)}"
    what = f"cannot set {_shown(need)} in container {quote(container.name)}: it {own} itself"
    return Unschedulable(Reason.ENV_CONFLICT, what, remedy)


def _not_kept(container: Container, entry: EnvVar) -> Unschedulable:
    if entry.name == names.DEVICE_ORDER:
        rule = f"it must be {quote(names.PCI_BUS_ID)}, the order by which GPUs are numbered and booked"
        remedy = "leave the variable out, and create the pod anew"
    else:
        rule = _KEPT_RULE
        remedy = f'correct it (example: {names.VISIBLE_DEVICES}: "0,1"), or leave it out, and create the pod anew'
    own = f"{entry.name} from elsewhere (valueFrom)" if entry.value is None else _shown(entry)
    return Unschedulable(Reason.ENV_CONFLICT, f"cannot keep {own} in container {quote(container.name)}: {rule}", remedy)


def _shown(entry: EnvVar) -> str:
    return entry.name if entry.value is None else f"{entry.name}={quote(entry.value)}"


def environment_complete(pod: Pod, value: str | None, *, by_field: bool) -> Unschedulable | None:
    """Every container carries the devices `value`, or reads them from our annotation. After the bind it is too late.

    `by_field`: the webhook had to write the annotation's name, because it could not know the value. Where nobody can
    know it yet, it is None, and no literal is right.
    """
    needed = BY_FIELD if value is None else required_env(value)
    written = BY_FIELD if by_field else needed
    containers = pod.environment.containers
    if all(container.env == written for container in containers):
        return None
    # A conflict first, wherever it stands: the webhook would refuse it, with the same words.
    obstacles = chain(
        (conflict(pod, each, written) for each in containers if conflict(pod, each, needed) is not None),
        (lacks(container, written) for container in containers),
    )
    return next((unschedulable for unschedulable in obstacles if unschedulable is not None), None)
