"""Containers, and the entries of their environment that count: the two CUDA variables."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One entry of a container's `env`.

    Both `value` and `field_path` are None when it comes from elsewhere (a Secret, say); an entry that gives neither
    value nor source has `value=""`.
    """

    name: str
    value: str | None
    field_path: str | None = None


class ContainerKind(StrEnum):
    """A container's list; the value is the field of `spec`."""

    CONTAINER = "containers"
    INIT = "initContainers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Container:
    """A container at `position` of its list.

    `env` keeps only the two CUDA variables, in order; None means that the container has no such list yet.
    """

    kind: ContainerKind
    position: int
    name: str
    env: tuple[EnvVar, ...] | None


@dataclass(frozen=True, slots=True)
class Environment:
    """What all containers of a pod say of their devices; `environment_of` makes it."""

    containers: tuple[Container, ...] = ()
    own_devices: tuple[str, ...] | None = None
    """Devices that the containers name themselves, all together; None when none names any."""
    reads_assignment: bool = False
    """Some container reads its devices from the annotation that the Binding brings."""


NO_CONTAINERS: Final = Environment()
