"""What containers must find in their environment, and what is wrong with what they have.

LAW: one reading of a container's `env` for the webhook, which completes it, and for the bind gate, which insists on it.
A container sees no device that is not booked for its pod.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.bounds import MAX_VALUE
from gpu_scheduler.core.model import Container, ContainerKind, EnvVar, Pod
from gpu_scheduler.core.placement_map import device_kind
from gpu_scheduler.core.reasons import Obstacle, Reason
from gpu_scheduler.core.text import quote

_BY_FIELD: Final = EnvVar(names.VISIBLE_DEVICES, None, names.DEVICES_FIELD)
_BY_BUS: Final = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)

_NO_DEVICE: Final = frozenset({"", "-1"})
"""Values by which CUDA shows no device."""

_KEPT_RULE: Final = (
    "what a container keeps must be GPU numbers, or full UUIDs GPU-<uuid> or MIG-<uuid>, of one kind, as a map writes "
    f'them, separated by single commas, at most {MAX_VALUE} characters; or "" or "-1" for no GPU'
)

_LONGEST: Final = 256
"""Longest value whose devices are remembered."""

BY_FIELD: Final = (_BY_FIELD, _BY_BUS)
"""What a container needs to see the devices that are decided when its pod is placed."""


def wanted(value: str) -> tuple[EnvVar, EnvVar]:
    """What a container needs to see the devices `value`, numbered as the map numbers them."""
    return EnvVar(names.VISIBLE_DEVICES, value), _BY_BUS


def missing(container: Container, needed: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Those of `needed` that the container does not set at all, in the order given."""
    names_set = {entry.name for entry in container.env or ()}
    return tuple(entry for entry in needed if entry.name not in names_set)


def conflict(pod: Pod, container: Container, needed: tuple[EnvVar, ...]) -> Obstacle | None:
    """What the container sets to something else than `needed`, and may not keep.

    Of two entries with one name the last wins, so every one is looked at.
    """
    by_name = {entry.name: entry for entry in needed}
    for entry in container.env or ():
        need = by_name.get(entry.name)
        if need is None or entry in {need, _BY_FIELD}:
            continue
        if container.kind is ContainerKind.EPHEMERAL:
            # keep-env does not speak for it: it comes when the pod's devices are booked already.
            if entry != carried(pod):
                return _other(container, entry, need, "leave the variable out: it sees what its pod's containers see")
        elif not pod.keep_env:
            keep = f', or keep it with annotation {names.KEEP_ENV}: "true"' if _keepable(entry) else ""
            return _other(container, entry, need, f"leave the variable out{keep}, and create the pod anew")
        elif not _keepable(entry):
            return _not_kept(container, entry)
    return None


def kept_devices(value: str) -> tuple[str, ...] | None:
    """The devices that a container may keep by this value; None where it does not say which are to be booked.

    CUDA reads more than this: UUIDs cut short, signs, spaces, text behind a number. What is booked must be what it
    finds, so each device has one spelling here, the map's.
    """
    if value in _NO_DEVICE:
        return ()
    if len(value) > MAX_VALUE:
        return None
    devices = value.split(",")
    kinds = {device_kind(device) for device in devices}
    return None if None in kinds or len(kinds) > 1 else tuple(dict.fromkeys(devices))


def kept(pod: Pod) -> tuple[str, ...]:
    """The devices that containers of the pod name themselves, where it keeps its environment."""
    if not pod.keep_env:
        return ()
    values = (entry.value for entry in _visible(pod) if entry.value is not None)
    return tuple(dict.fromkeys(device for value in values for device in kept_devices(value) or ()))


def carried(pod: Pod) -> EnvVar | None:
    """How the pod's own containers see their devices: the first that says so in a way that is booked."""
    for container in pod.containers:
        if container.kind is not ContainerKind.EPHEMERAL:
            # Of two entries with one name the last wins.
            seen = {entry.name: entry for entry in container.env or ()}.get(names.VISIBLE_DEVICES)
            if seen is not None and (seen == _BY_FIELD or _keepable(seen)):
                return seen
    return None


def lacks(container: Container, needed: tuple[EnvVar, ...]) -> Obstacle | None:
    """What the container does not carry although the webhook adds it to every one."""
    gaps = missing(container, needed)
    if not gaps:
        return None
    return Obstacle(
        Reason.ENV_NOT_INJECTED,
        f"cannot start container {quote(container.name)} without {_shown(gaps[0])}: it would not see its GPUs",
        "delete the pod: its controller makes it anew and admission completes it; a bare pod must be created again",
    )


def literals(pod: Pod) -> tuple[str, ...] | None:
    """The devices that the pod's containers name themselves, all together; None when none names any."""
    values = [entry.value for entry in _visible(pod) if entry.value is not None]
    return tuple(dict.fromkeys(device for value in values for device in devices_in(value))) if values else None


def reads_annotation(pod: Pod) -> bool:
    """Whether some container reads its devices from the annotation that the Binding brings."""
    return any(entry == _BY_FIELD for entry in _visible(pod))


def devices_in(value: str) -> tuple[str, ...]:
    """The devices that CUDA finds in a value of CUDA_VISIBLE_DEVICES, spelled as a map spells them.

    Like CUDA, it takes a plus sign, and stops at the first part that names none. Thousands of pods say the same few
    values, so each is read once, and its devices are in memory once.
    """
    return _read(value) if len(value) <= _LONGEST else _read.__wrapped__(value)


@lru_cache(maxsize=4096)
def _read(value: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for part in value.split(","):
        device = part.strip().removeprefix("+")
        if device.isascii() and device.isdigit():
            device = device.lstrip("0") or "0"
        device = device[:4] + device[4:].lower()
        if device_kind(device) is None:
            break
        found[device] = None
    return tuple(found)


def _keepable(entry: EnvVar) -> bool:
    """Another order is never kept: it would make each number mean another device than the one that is booked."""
    return entry.name == names.VISIBLE_DEVICES and entry.value is not None and kept_devices(entry.value) is not None


def _other(container: Container, entry: EnvVar, need: EnvVar, cure: str) -> Obstacle:
    own = "takes it from elsewhere (valueFrom)" if entry.value is None else f"says {quote(entry.value)}"
    what = f"cannot set {_shown(need)} in container {quote(container.name)}: it {own} itself"
    return Obstacle(Reason.ENV_CONFLICT, what, cure)


def _not_kept(container: Container, entry: EnvVar) -> Obstacle:
    if entry.name == names.DEVICE_ORDER:
        rule = f"it must be {quote(names.PCI_BUS_ID)}, the order by which GPUs are numbered and booked"
        cure = "leave the variable out, and create the pod anew"
    else:
        rule = _KEPT_RULE
        cure = f'correct it (example: {names.VISIBLE_DEVICES}: "0,1"), or leave it out, and create the pod anew'
    own = f"{entry.name} from elsewhere (valueFrom)" if entry.value is None else _shown(entry)
    return Obstacle(Reason.ENV_CONFLICT, f"cannot keep {own} in container {quote(container.name)}: {rule}", cure)


def _visible(pod: Pod) -> Iterator[EnvVar]:
    for container in pod.containers:
        for entry in container.env or ():
            if entry.name == names.VISIBLE_DEVICES:
                yield entry


def _shown(entry: EnvVar) -> str:
    return entry.name if entry.value is None else f"{entry.name}={quote(entry.value)}"
