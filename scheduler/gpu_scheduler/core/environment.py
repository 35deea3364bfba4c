"""What containers must find in their environment, and what is wrong with what they have.

LAW: one reading of a container's `env` for the webhook, which completes it, and for the bind gate, which insists on it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.model import Container, EnvVar, Pod
from gpu_scheduler.core.placement_map import device_kind
from gpu_scheduler.core.reasons import Obstacle, Reason
from gpu_scheduler.core.text import quote

_BY_FIELD: Final = EnvVar(names.VISIBLE_DEVICES, None, names.DEVICES_FIELD)
_BY_BUS: Final = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)

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
    """What the container sets to something else than `needed`, unless its pod may keep it.

    Of two entries with one name the last wins, so every one is looked at.
    """
    if pod.keep_env:
        return None
    by_name = {entry.name: entry for entry in needed}
    for entry in container.env or ():
        need = by_name.get(entry.name)
        if need is not None and entry not in {need, _BY_FIELD}:
            own = "takes it from elsewhere (valueFrom)" if entry.value is None else f"says {quote(entry.value)}"
            return Obstacle(
                Reason.ENV_CONFLICT,
                f"cannot set {_shown(need)} in container {quote(container.name)}: it {own} itself",
                f'leave the variable out, or keep it with annotation {names.KEEP_ENV}: "true", and create the pod anew',
            )
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

    Like CUDA, it stops at the first part that names none. Thousands of pods say the same few values, so each is read
    once, and its devices are in memory once.
    """
    return _read(value) if len(value) <= _LONGEST else _read.__wrapped__(value)


@lru_cache(maxsize=4096)
def _read(value: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for part in value.split(","):
        device = part.strip()
        if device.isascii() and device.isdigit():
            device = device.lstrip("0") or "0"
        device = device[:4] + device[4:].lower()
        if device_kind(device) is None:
            break
        found[device] = None
    return tuple(found)


def _visible(pod: Pod) -> Iterator[EnvVar]:
    for container in pod.containers:
        for entry in container.env or ():
            if entry.name == names.VISIBLE_DEVICES:
                yield entry


def _shown(entry: EnvVar) -> str:
    return entry.name if entry.value is None else f"{entry.name}={quote(entry.value)}"
