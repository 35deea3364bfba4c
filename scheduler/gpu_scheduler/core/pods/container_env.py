"""A container and the entries of its environment that count: the two CUDA variables."""

from dataclasses import dataclass
from enum import StrEnum


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
