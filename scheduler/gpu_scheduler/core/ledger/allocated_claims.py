"""What allocated ResourceClaims hold: each device until the API shows that the allocation is cleared.

LAW: a hold lasts as long as the allocation, also while no slice says which GPU the device is. Then it is the GPU that
it was last; a device that was never published may be any GPU of its node.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools
from gpu_scheduler.core.refs import PodRef


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A ResourceClaim with the GPUs that it is allocated, without those that it may only observe (adminAccess)."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceId, ...] = ()
    """Empty for a claim without an allocation."""


class AllocatedClaims:
    """The claims that hold devices, and their holds: one for each node."""

    __slots__ = ("_by_pool", "_claims", "_holds", "_pools")

    def __init__(self, pools: DevicePools) -> None:
        self._pools = pools
        self._claims: dict[str, AllocatedClaim] = {}
        self._holds: dict[str, dict[DeviceId, tuple[str, str]]] = {}
        """Node and name of each device of each claim."""
        self._by_pool: dict[tuple[str, str], dict[str, None]] = {}

    def apply(self, claim: AllocatedClaim) -> tuple[Hold, ...]:
        """Store a claim. Return what it holds from now on."""
        known = self._holds.get(claim.uid, {})
        self.forget(claim.uid)
        if not claim.devices:
            return ()
        self._claims[claim.uid] = claim
        self._holds[claim.uid] = {
            each: self._pools.where(each) or known.get(each) or _unknown(each) for each in claim.devices
        }
        for each in claim.devices:
            self._by_pool.setdefault((each.driver, each.pool), {})[claim.uid] = None
        return self.holds_of(claim.uid)

    def forget(self, uid: str) -> None:
        """Remove a claim that is gone or has no allocation any more."""
        claim = self._claims.pop(uid, None)
        self._holds.pop(uid, None)
        for each in () if claim is None else claim.devices:
            users = self._by_pool.get((each.driver, each.pool), {})
            users.pop(uid, None)
            if not users:
                self._by_pool.pop((each.driver, each.pool), None)

    def of_pool(self, driver: str, pool: str) -> tuple[AllocatedClaim, ...]:
        """Return the claims that hold devices of this pool."""
        return tuple(self._claims[uid] for uid in self._by_pool.get((driver, pool), ()))

    def holds_of(self, uid: str) -> tuple[Hold, ...]:
        """Return what the claim holds, a hold for each node."""
        claim = self._claims[uid]
        by_node: dict[str, list[str]] = {}
        for node, name in self._holds[uid].values():
            by_node.setdefault(node, []).append(name)
        return tuple(_hold(claim, node, tuple(names)) for node, names in by_node.items())

    def __iter__(self) -> Iterator[tuple[str, tuple[Hold, ...]]]:
        """Iterate over the claims: uid, and what it holds."""
        return ((uid, self.holds_of(uid)) for uid in self._claims)


def _unknown(device: DeviceId) -> tuple[str, str]:
    """Return node and name of a device that no slice has shown. GPU drivers name a node's pool after the node."""
    return device.pool, device.device


def _hold(claim: AllocatedClaim, node: str, devices: tuple[str, ...]) -> Hold:
    return Hold(
        PodRef(claim.namespace, claim.name, claim.uid),
        node,
        devices,
        named=(),
        limit=0,
        workload=None,
        index=None,
        sharing_any=False,
        deleting_since=None,
        assumed=False,
        claims=(claim.name,),
        is_claim=True,
    )
