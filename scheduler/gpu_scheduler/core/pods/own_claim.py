"""The ResourceClaim that a pod brings of its own, and what it asks for (`isolation: dra`)."""

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.device_selector import DeviceSelector


@immutable
class OwnClaim:
    """How a pod names its own claim."""

    entry: str
    """The name of its entry in `spec.resourceClaims`, by which containers use it."""
    name: str
    """Empty while kube-controller-manager has not made it from its template."""


@immutable
class ClaimRequest:
    """What a claim of a user asks for."""

    name: str
    """The name of the request, which its allocation repeats."""
    device_class: str
    count: int
    selector: DeviceSelector
