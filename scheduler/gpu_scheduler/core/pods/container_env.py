"""Containers, the two CUDA variables of their environment, and the ResourceClaims that they use."""

from enum import StrEnum
from typing import Final

from gpu_scheduler.core.immutable import immutable


@immutable
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


@immutable
class ContainerClaims:
    """What a container has of `resources.claims`."""

    used: tuple[str, ...] | None = None
    """The entries of its pod's spec that it uses: NAME, or NAME/REQUEST for one request of the claim. None means that
    the container has no such list yet."""
    has_resources: bool = False
    """Whether it has the field `resources`, to which the list belongs."""


@immutable
class Container:
    """A container at `position` of its list.

    `env` keeps only the two CUDA variables, in order; None means that the container has no such list yet. `claims` is
    None unless its pod has ResourceClaims, or is to get some.
    """

    kind: ContainerKind
    position: int
    name: str
    env: tuple[EnvVar, ...] | None
    claims: ContainerClaims | None = None


@immutable
class Environment:
    """What all containers of a pod set for their devices. `environment_of` makes it."""

    containers: tuple[Container, ...] = ()
    own_devices: tuple[str, ...] | None = None
    """All devices that the containers name themselves; None if no container sets a literal value."""
    reads_assignment: bool = False
    """Whether a container reads its devices from the annotation that the Binding writes."""


NO_CONTAINERS: Final = Environment()
