"""Containers, and the two CUDA variables of their environment."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One entry of a container's `env`.

    Both `value` and `field_path` are None if the value has another source (for example a Secret). An entry that gives
    neither value nor source has `value=""`.
    """

    name: str
    value: str | None
    field_path: str | None = None


class ContainerKind(StrEnum):
    """The list that a container is in. The value is the name of the field of `spec`."""

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
    """What all containers of a pod set for their devices. `environment_of` makes it."""

    containers: tuple[Container, ...] = ()
    own_devices: tuple[str, ...] | None = None
    """All devices that the containers name themselves; None if no container sets a literal value."""
    reads_assignment: bool = False
    """Whether a container reads its devices from the annotation that the Binding writes."""


NO_CONTAINERS: Final = Environment()
