"""How much of one pod is kept, and what is told of a pod that says more.

LAW: whatever its author writes, a pod takes a bounded part of our memory. One that goes beyond is never placed; what a
pod takes that somebody else has bound is counted still.
"""

from dataclasses import dataclass
from typing import Final

MAX_ANNOTATION: Final = 63
"""Bytes of an annotation of ours beside the map: the longest that means anything is a GPU's model."""

MAX_VALUE: Final = 4096
"""Bytes of a value of one of the two CUDA variables: every index of the largest inventory, or 99 UUIDs."""

MAX_VALUES: Final = 16 * 1024
"""Bytes of all different values of the two CUDA variables in a pod."""

MAX_ENV: Final = 256 * 1024
"""Bytes of JSON of one container's `env`, where one of the two variables stands in it."""

MAX_CONTAINERS: Final = 1000
"""Containers of a pod, of all kinds together: far beyond any honest pod, and the API itself sets no bound."""

MAX_ENTRIES: Final = 4 * MAX_CONTAINERS
"""Entries of the two CUDA variables in all containers of a pod; each container needs two."""

MAX_CONSTRAINTS: Final = 8 * 1024
"""Bytes of JSON of what a pod says of the node it wants: selector, affinity, tolerations, spread, resource claims."""

MAX_CLAIMS: Final = 128
"""Claims that a pod mounts: about as many volumes as a machine can have attached."""

MAX_VOLUMES: Final = 256 * 1024
"""Bytes of JSON of a pod's volumes."""

MAX_RESOURCES: Final = 64
"""Resources that a pod asks for."""

MAX_PORTS: Final = 64
"""Ports of the host that a pod asks for."""

MAX_PART: Final = 64 * 1024
"""Bytes of JSON of one part of a pod that is read at once: one container's resources or ports, its owners."""

MAX_MESSAGE: Final = 1001
"""Characters of what others tell of an object: one more than the longest that we write, so none is taken for ours."""

MAX_TEMPLATE: Final = 256 * 1024
"""Bytes of JSON of a GPUWorkload's pod template."""


@dataclass(frozen=True, slots=True)
class Excess:
    """What a pod has more of than is read; `str()` says so as a rule, without its cure."""

    what: str
    size: int
    most: int
    unit: str = "bytes"

    def __str__(self) -> str:
        """As a message has it."""
        return f"cannot read {self.what}: it has {self.size} {self.unit}, and must have at most {self.most}"
