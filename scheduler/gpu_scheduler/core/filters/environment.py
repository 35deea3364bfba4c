"""The bind gate: which environment variables every container must have, and what is wrong with those it has.

A pod with ResourceClaims always reads its devices from our annotation, and its containers must use the claims too.

LAW: the webhook completes an environment with the same functions with which the bind gate checks it. A container sees
no device that its pod does not hold.
"""

from itertools import chain
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.filters.container_claims import REMADE, claims_complete, gpu_containers
from gpu_scheduler.core.pods.bounds import MAX_VALUE
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.pods.visible_devices import FIELD_ENTRY, carried, keepable
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

_BY_BUS: Final = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)

_KEPT_RULE: Final = (
    "what a container keeps must be GPU numbers, or full UUIDs GPU-<uuid> or MIG-<uuid>, of one kind, as a map writes "
    f'them, separated by single commas, at most {MAX_VALUE} characters, or "" or "-1" for no GPU'
)

_DEBUGGING: Final = (
    "leave the variable out: it sees what its pod's containers see; "
    "if the pod already has this container, recreate the pod"
)
"""The remedy for an ephemeral container. Nobody can change or remove one that a pod has."""

BY_FIELD: Final = (FIELD_ENTRY, _BY_BUS)
"""The variables that a container needs if its devices are decided when its pod is placed."""


def required_env(value: str) -> tuple[EnvVar, EnvVar]:
    """Return the variables that a container needs to see the devices `value`, numbered as the map numbers them."""
    return EnvVar(names.VISIBLE_DEVICES, value), _BY_BUS


def missing(container: Container, needed: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Return those of `needed` that the container does not set at all, in the order given."""
    if not container.env:
        return needed
    names_set = {entry.name for entry in container.env}
    return tuple([entry for entry in needed if entry.name not in names_set])


def conflict(pod: Pod, container: Container, needed: tuple[EnvVar, ...]) -> Unschedulable | None:
    """Check that the container sets no variable of `needed` to another value, unless it may keep that value.

    If two entries have one name, the last one is valid. Therefore every entry is checked.
    """
    if not container.env:
        return None
    by_name = {entry.name: entry for entry in needed}
    for entry in container.env:
        need = by_name.get(entry.name)
        if need is None or entry in {need, FIELD_ENTRY}:
            continue
        if container.kind is ContainerKind.EPHEMERAL:
            # keep-env does not apply: an ephemeral container is added when the pod already holds its devices.
            if entry != carried(pod.environment.containers):
                return _other(container, entry, need, _DEBUGGING)
        elif not pod.request.keep_env:
            may_keep = keepable(entry) and not pod.isolated
            keep = f' or keep it with annotation {names.KEEP_ENV}: "true"' if may_keep else ""
            return _other(container, entry, need, made_anew(f"leave the variable out{keep}"))
        elif not keepable(entry):
            return _not_kept(container, entry)
    return None


def missing_env(pod: Pod, container: Container, needed: tuple[EnvVar, ...]) -> Unschedulable | None:
    """Check that the container has all of `needed`. The webhook adds them to every container."""
    gaps = missing(container, needed)
    if not gaps:
        return None
    return Unschedulable(
        Reason.ENV_NOT_INJECTED,
        f"cannot start container {quote(container.name)} without {_shown(gaps[0])}: it would not see its GPUs",
        REMADE,
        blockers=() if pod.owner is None else (pod.ref,),
    )


def _other(container: Container, entry: EnvVar, need: EnvVar, remedy: str) -> Unschedulable:
    own = "takes it from elsewhere (valueFrom)" if entry.value is None else f"says {quote(entry.value)} itself"
    what = f"cannot set {_shown(need)} in container {quote(container.name)}: it {own}"
    return Unschedulable(Reason.ENV_CONFLICT, what, remedy)


def _not_kept(container: Container, entry: EnvVar) -> Unschedulable:
    if entry.name == names.DEVICE_ORDER:
        rule = f"it must be {quote(names.PCI_BUS_ID)}, the order in which this scheduler numbers GPUs"
        remedy = "leave the variable out"
    else:
        rule = _KEPT_RULE
        remedy = f'correct it (example: {names.VISIBLE_DEVICES}: "0,1") or leave it out'
    own = f"{entry.name} from elsewhere (valueFrom)" if entry.value is None else _shown(entry)
    what = f"cannot keep {own} in container {quote(container.name)}: {rule}"
    return Unschedulable(Reason.ENV_CONFLICT, what, made_anew(remedy))


def _shown(entry: EnvVar) -> str:
    return entry.name if entry.value is None else f"{entry.name}={quote(entry.value)}"


def environment_complete(pod: Pod, value: str | None, *, by_field: bool) -> Unschedulable | None:
    """Check that every container with GPUs has `value`, or reads it from our annotation, and its pod's claims.

    This must be checked before the bind: later it cannot be corrected. `by_field`: the webhook wrote a reference to the
    annotation, because it could not know the value. `value` is None if it is not known now either. Then no literal
    value is right. Nor is one right for a pod with claims, whose devices have UUIDs in its containers.
    """
    needed = BY_FIELD if value is None or pod.isolated else required_env(value)
    written = BY_FIELD if by_field else needed
    containers = gpu_containers(pod)
    if all(container.env == written for container in containers):
        return claims_complete(pod)
    # A conflict in any container is reported first: the webhook refuses it with the same message.
    obstacles = chain(
        (conflict(pod, each, written) for each in containers if conflict(pod, each, needed) is not None),
        (missing_env(pod, container, written) for container in containers),
    )
    found = next((unschedulable for unschedulable in obstacles if unschedulable is not None), None)
    return found or claims_complete(pod)
