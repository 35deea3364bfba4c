"""Bounds: how much of one pod is kept, and the message for its owner if it has more.

LAW: a pod takes a bounded part of our memory, whatever its author writes. A pod that exceeds a bound is never placed.
If another program binds it, what it takes still counts.
"""

from typing import Final

from gpu_scheduler.core.immutable import immutable

MAX_ANNOTATION: Final = 63
"""Bytes of one of our annotations, except the map. The longest valid value is a GPU's model."""

MAX_LINE_DEVICES: Final = 128
"""GPUs of one line of a map: more than a machine has, MIG devices included. A decision compares those of all lines."""

MAX_VALUE: Final = 4096
"""Bytes of a value of one of the two CUDA variables: enough for every index of a line, or for 99 UUIDs."""

MAX_VALUES: Final = 16 * 1024
"""Bytes of all different values of the two CUDA variables in a pod."""

MAX_ENV: Final = 256 * 1024
"""Bytes of JSON of one container's `env`, if it contains one of the two variables."""

MAX_CONTAINERS: Final = 1000
"""Containers of a pod, of all kinds together. Honest pods have far fewer. The API itself sets no bound."""

MAX_ENTRIES: Final = 4 * MAX_CONTAINERS
"""Entries of the two CUDA variables in all containers of a pod; each container needs two."""

MAX_CONSTRAINTS: Final = 8 * 1024
"""Bytes of JSON of a pod's rules for its node: selector, affinity, tolerations, topology spread, resource claims."""

MAX_CLAIMS: Final = 128
"""Volume claims that a pod mounts: about as many volumes as can be attached to one machine."""

MAX_VOLUMES: Final = 256 * 1024
"""Bytes of JSON of a pod's volumes."""

MAX_RESOURCES: Final = 64
"""Resources that a pod asks for."""

MAX_PORTS: Final = 64
"""Ports of the host that a pod asks for."""

MAX_PART: Final = 64 * 1024
"""Bytes of JSON of one part of a pod that is read at once: one container's resources or ports, or the pod's owners."""

MAX_MESSAGE: Final = 1001
"""Characters that are kept of a message of another program. This is one more than our longest message, so that no
shortened message equals one of ours."""

MAX_TEMPLATE: Final = 256 * 1024
"""Bytes of JSON of a GPUWorkload's pod template."""


@immutable
class Excess:
    """What a pod has more of than is read. `str()` gives the rule that it breaks, without the remedy."""

    what: str
    size: int
    most: int
    unit: str = "bytes"

    def __str__(self) -> str:
        """Return the text for a message."""
        return f"cannot read {self.what}: it has {self.size} {self.unit}, and must have at most {self.most}"
