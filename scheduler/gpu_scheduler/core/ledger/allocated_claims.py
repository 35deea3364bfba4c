"""What ResourceClaims hold, each device until the API shows that the allocation is cleared, and what users' ask for.

LAW: a hold lasts as long as the allocation, also while no slice says which GPU the device is. Then it is the GPU that
it was last; a device that was never published may be any GPU of its node.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools
from gpu_scheduler.core.pods.own_claim import ClaimRequest
from gpu_scheduler.core.refs import PodRef

K = TypeVar("K")


@immutable
class AllocatedClaim:
    """A ResourceClaim: what it asks for, and the GPUs that it is allocated, without those that it may only observe."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceId, ...] = ()
    """Empty for a claim without an allocation."""
    pods: tuple[str, ...] = ()
    """The uids of the pods for which it is reserved."""
    awaits_others: bool = False
    """Another scheduler may be about to allocate it."""
    classes: frozenset[str] | None = None
    """The DeviceClasses from which it may be allocated then; None if that is not read."""
    request: ClaimRequest | None = None
    """What it asks for; None for a claim of this scheduler, and if that is not read."""
    unread: str = ""
    """What a claim of a user has that this scheduler does not read: a field, and the rule for it."""
    version: str = ""
    """The version of the object that has shown this."""

    def shows(self, devices: frozenset[DeviceId], version: str) -> bool:
        """Whether it was allocated these devices in this version or a later one."""
        return frozenset(self.devices) == devices and _number(self.version) >= _number(version)


class AllocatedClaims:
    """The claims that hold devices, and their holds: one for each node."""

    __slots__ = ("_by_name", "_by_pod", "_by_pool", "_claims", "_holds", "_pending", "_pools")

    def __init__(self, pools: DevicePools) -> None:
        self._pools = pools
        self._claims: dict[str, AllocatedClaim] = {}
        self._holds: dict[str, dict[DeviceId, tuple[str, str]]] = {}
        """Node and name of each device of each claim."""
        self._by_pool: dict[tuple[str, str], dict[str, None]] = {}
        self._by_pod: dict[str, dict[str, None]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._pending: dict[str, frozenset[str] | None] = {}
        """The classes of each claim that another scheduler may be allocating."""

    def apply(self, claim: AllocatedClaim) -> tuple[Hold, ...]:
        """Store a claim. Return what it holds from now on."""
        known = self._holds.get(claim.uid, {})
        self.forget(claim.uid)
        if claim.awaits_others:
            self._pending[claim.uid] = claim.classes
        if not claim.devices and claim.request is None and not claim.unread:
            return ()
        self._claims[claim.uid] = claim
        self._holds[claim.uid] = {
            each: self._pools.where(each) or known.get(each) or _unknown(each) for each in claim.devices
        }
        self._by_name[claim.namespace, claim.name] = claim.uid
        for key in _pools_of(claim):
            self._by_pool.setdefault(key, {})[claim.uid] = None
        for pod in claim.pods:
            self._by_pod.setdefault(pod, {})[claim.uid] = None
        return self.holds_of(claim.uid)

    def forget(self, uid: str) -> None:
        """Remove a claim that is gone or has no allocation any more."""
        self._pending.pop(uid, None)
        claim = self._claims.pop(uid, None)
        if claim is None:
            return
        del self._holds[uid]
        if self._by_name[claim.namespace, claim.name] == uid:
            del self._by_name[claim.namespace, claim.name]
        for key in _pools_of(claim):
            _discard(self._by_pool, key, uid)
        for pod in claim.pods:
            _discard(self._by_pod, pod, uid)

    def of_pool(self, driver: str, pool: str) -> tuple[AllocatedClaim, ...]:
        """Return the claims that hold devices of this pool."""
        return tuple(self._claims[uid] for uid in self._by_pool.get((driver, pool), ()))

    def reserved_for(self, pod: str) -> tuple[AllocatedClaim, ...]:
        """Return the claims that are reserved for the pod with this uid."""
        return tuple(self._claims[uid] for uid in self._by_pod.get(pod, ()))

    def others_pending(self, may_give_gpus: Callable[[str], bool]) -> bool:
        """Whether another scheduler may be allocating GPUs to a claim now. `may_give_gpus` says it of a DeviceClass."""
        return any(classes is None or any(map(may_give_gpus, classes)) for classes in set(self._pending.values()))

    @property
    def claims(self) -> Iterable[AllocatedClaim]:
        """The claims that hold GPUs."""
        return (claim for claim in self._claims.values() if claim.devices)

    def find(self, namespace: str, name: str) -> AllocatedClaim | None:
        """Return the claim with this name, if it is allocated GPUs or says which it wants."""
        uid = self._by_name.get((namespace, name))
        return None if uid is None else self._claims[uid]

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


def _number(version: str) -> int:
    """Return a version as a number: etcd counts them. Kubernetes 1.35 promises that they can be compared so."""
    return int(version) if version.isdecimal() else 0


def _pools_of(claim: AllocatedClaim) -> frozenset[tuple[str, str]]:
    return frozenset((each.driver, each.pool) for each in claim.devices)


def _discard(table: dict[K, dict[str, None]], key: K, uid: str) -> None:
    """Remove an entry, and its key with the last one."""
    del table[key][uid]
    if not table[key]:
        del table[key]


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
