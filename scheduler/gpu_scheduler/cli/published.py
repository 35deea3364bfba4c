"""What drivers of ResourceClaims publish and schedulers have allocated, with the caller's rights."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.device_pools import DevicePools
from gpu_scheduler.kube.lists import NOT_FOUND, UnlistedError, list_all
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.resource_slices import read_slice

if TYPE_CHECKING:
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.nodes.device_pools import DeviceSlice
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.http.client import ApiClient

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"


@immutable
class Published:
    """Slices and claims of a cluster."""

    slices: tuple[DeviceSlice, ...] = ()
    claims: tuple[AllocatedClaim, ...] = ()
    unread: str = ""
    """That they may not be listed, as a sentence; empty if they could be, or if the scheduler does not read them."""
    pools: DevicePools = field(init=False, default_factory=DevicePools)

    def __post_init__(self) -> None:
        for each in self.slices:
            self.pools.apply(each)


async def read_published(api: ApiClient, policy: Policy) -> Published:
    """List slices and claims if the scheduler of this policy reads them."""
    if not policy.reads_claims:
        return Published()
    try:
        slices, claims = await asyncio.gather(
            list_all(api, "ResourceSlices", SLICES, read_slice, empty={NOT_FOUND}),
            list_all(api, "ResourceClaims", CLAIMS, read_allocated_claim, empty={NOT_FOUND}),
        )
    except UnlistedError as error:
        return Published(unread=missing_right(error, "list resourceclaims.resource.k8s.io -A"))
    return Published(tuple(each for _, each in slices), tuple(each for _, each in claims))
