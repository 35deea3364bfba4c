"""What a pod says of its placement, as its author and its controllers wrote it.

LAW: it lives as long as the pod is read; a Pod keeps what was read from it, and nothing else asks for its text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import NO_CONTAINERS, Environment
from gpu_scheduler.core.refs import Owner


@dataclass(slots=True)
class PodText:
    """The parts of a pod by which it asks for GPUs."""

    namespace: str = ""
    name: str = ""
    generate_name: str | None = None
    owner: Owner | None = None
    scheduler_name: str = names.SCHEDULER_NAME
    bound: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those that `names.POD_ANNOTATIONS` lists."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of index and workload."""
    environment: Environment = NO_CONTAINERS
    gpu_limits: tuple[tuple[str, int], ...] = ()
    """Containers with a limit of `nvidia.com/gpu` above 0, and that limit."""
    unsupported: tuple[str, ...] = ()
    """Fields that ask for something we do not decide, by their path in the pod."""
    excess: Excess | None = None
    """What the pod has too much of to be kept whole."""

    @property
    def keep_env(self) -> bool:
        """Its containers may set the CUDA variables themselves."""
        return self.annotations.get(names.KEEP_ENV) == "true"
