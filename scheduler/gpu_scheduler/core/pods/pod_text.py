"""The text of a pod that concerns its placement, as its author and its controllers wrote it.

LAW: a PodText exists only while its pod is read. A Pod keeps the values that were read, and no other code reads the
text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import NO_CONTAINERS, Environment
from gpu_scheduler.core.pods.own_claim import OwnClaim
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
    """Only those that `names.POD_ANNOTATIONS` lists."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only those that say the index and the workload."""
    environment: Environment = NO_CONTAINERS
    gpu_limits: tuple[tuple[str, int], ...] = ()
    """Containers with a limit of `nvidia.com/gpu` above 0, and that limit."""
    resource_claims: tuple[str, ...] = ()
    """The names of the ResourceClaims that our entries of `spec.resourceClaims` refer to, in order."""
    own_claim: OwnClaim | None = None
    """The ResourceClaim that its author wrote; then it has none of ours."""
    wants_claims: bool = False
    """Whether admission gives it ResourceClaims, because its namespace or the cluster demands them."""
    without_grace: bool = False
    """Whether it is deleted at once, while its processes may still run."""
    unsupported: tuple[str, ...] = ()
    """Fields that ask for something that this scheduler does not decide, by their path in the pod."""
    unknown_keys: tuple[str, ...] = ()
    """Keys of annotations that resemble ours and that no program reads; the first few of them."""
    excess: Excess | None = None
    """What exceeds its bound, so that the pod is not kept whole; None if nothing does."""

    @property
    def isolated(self) -> bool:
        """Whether the kubelet gives its containers only the devices of its ResourceClaims, and no other."""
        return self.wants_claims or bool(self.resource_claims) or self.own_claim is not None

    @property
    def keep_env(self) -> bool:
        """Whether its containers may set the CUDA variables themselves."""
        return self.annotations.get(names.KEEP_ENV) == "true"
