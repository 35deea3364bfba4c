"""What `doctor` reads of an installation, as plain values.

LAW: standard library and core only; no I/O and no clock. A fact that may not be read is `UnreadFact`, never a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from gpu_scheduler.cli.doctor.expected import ENVIRONMENT
from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from gpu_scheduler.core.ledger.conflicts import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.ledger.moved_gpus import MovedGpu
    from gpu_scheduler.core.refs import PodRef

T = TypeVar("T")


class UnreadFactError(Exception):
    """A check needs a fact that could not be read."""

    def __init__(self, fact: UnreadFact) -> None:
        """Keep the fact, which says why."""
        super().__init__(fact.why)
        self.fact = fact


@immutable
class Known(Generic[T]):
    """A fact that was read."""

    value: T


@immutable
class UnreadFact:
    """A fact that could not be read: why, and a command that helps."""

    why: str
    remedy: str

    @property
    def value(self) -> NoReturn:
        """Raise UnreadFactError."""
        raise UnreadFactError(self)


@immutable
class Installer:
    """Who applied our objects: the label `managed-by` of the scheduler's Deployment, and Helm's release."""

    name: str = ""
    release: str = ""


@immutable
class Workload:
    """A Deployment or DaemonSet: how many pods it wants, and how many of them are available."""

    wanted: int
    available: int


@immutable
class Replica:
    """A running pod of ours, as its port `http` answers through the API server."""

    pod: str
    component: str
    """`scheduler`, `controller` or `webhook`."""
    unreachable: str = ""
    """Why the API server gets no answer from the pod; empty if it does."""
    failed: tuple[str, ...] = ()
    """The checks of its `/readyz` that fail, each with the reason."""
    version: str = ""
    commit: str = ""
    certificate_ends: datetime | None = None
    """When the certificate ends that a replica of the webhook serves."""


@immutable
class AdmissionPolicy:
    """An admission policy and its binding."""

    exists: bool = True
    fails_closed: bool = True
    """Whether `failurePolicy` is Fail."""
    bound: bool = True
    """Whether its binding exists and names it."""
    denies: bool = True
    """Whether its binding refuses requests, and does not only warn. True for a policy that changes objects."""


@immutable
class Answer:
    """How the API server answers the dry run of creating a pod."""

    accepted: bool
    message: str = ""
    """Why it refuses the pod."""
    injected: bool = False
    """Whether each container has the variables that show it its devices."""


@immutable
class Certificate:
    """The certificate in the serving Secret."""

    begins: datetime
    ends: datetime
    missing_names: tuple[str, ...] = ()
    """Names of the webhook's Service that it is not made for."""
    distrusted_by: tuple[str, ...] = ()
    """The registered webhooks whose caBundle has no CA that signed it."""
    renewer: str = ""
    """Who renews it: a CronJob of ours or cert-manager; empty if nobody is known."""


@immutable
class HeldLease:
    """The Lease of a leader, or of a node's monitor."""

    holder: str
    age: float
    """Seconds from its renewTime to the API server's time when it was read; negative if renewTime is in the future."""
    lasts: float
    renewed: bool = False
    """Whether its holder was seen renewing it, although by its renewTime it had expired."""

    @property
    def expired(self) -> bool:
        """Whether nobody renews it."""
        return self.age >= self.lasts and not self.renewed


@immutable
class NodeUse:
    """A node on which pods hold GPUs in two ways."""

    node: str
    by_plugin: int
    """How many GPUs the device plugin has handed out."""
    by_name: tuple[PodRef, ...]
    """The pods that hold GPUs by name there."""


@immutable
class Gpus:
    """What the pods of the cluster hold."""

    mixed: tuple[NodeUse, ...] = ()
    drifting: tuple[PodRef, ...] = ()
    """Bound pods that read their GPUs from an annotation that they do not have."""
    moved: tuple[tuple[Hold, tuple[MovedGpu, ...]], ...] = ()
    """Bound pods whose names for their GPUs mean other GPUs now."""
    conflicts: tuple[Conflict, ...] = ()


@immutable
class Claims:
    """What has no driver, where the scheduler allocates ResourceClaims."""

    unpublished: tuple[str, ...] = ()
    """Nodes whose monitor lists GPUs that no driver publishes."""
    without_driver: tuple[str, ...] = ()
    """Claims with a GPU of our driver that it does not publish, on other nodes; NAMESPACE/NAME."""


@immutable
class Facts:
    """Everything that the checks read."""

    namespace: str
    own_version: str
    """The version of this command; empty if it is unknown."""
    now: datetime
    """The API server's time."""
    server_version: Known[tuple[int, int]] | UnreadFact
    """The version of the API server as (major, minor)."""
    clock_ahead: Known[float] | UnreadFact
    """How many seconds the clock of this machine is ahead of the API server's."""
    deployments: Known[Mapping[str, Workload]] | UnreadFact
    """Our Deployments by name."""
    installer: Installer
    monitors: Known[Workload | None] | UnreadFact
    """The monitors' DaemonSet; None if there is none."""
    drivers: Known[Workload | None] | UnreadFact
    """The drivers' DaemonSet; None if there is none."""
    pods: Known[frozenset[str]] | UnreadFact
    """The names of the pods in the namespace of the scheduler."""
    replicas: Known[tuple[Replica, ...]] | UnreadFact
    kinds: Known[frozenset[str]] | UnreadFact
    """The CustomResourceDefinitions of ours that are established, by name."""
    denied: Known[Mapping[str, tuple[str, ...]]] | UnreadFact
    """The rights that each service account of ours lacks, by NAMESPACE/NAME."""
    flow_schemas: Known[frozenset[str]] | UnreadFact
    """The FlowSchemas of the API server, by name."""
    isolates: Known[bool] | UnreadFact
    """Whether the scheduler allocates ResourceClaims (`ISOLATION=dra`)."""
    policies: Known[Mapping[str, AdmissionPolicy]] | UnreadFact
    """Policies that refuse, by name."""
    injection: Known[AdmissionPolicy] | UnreadFact
    """The policy that injects variables in place of the webhook."""
    webhooks: Known[frozenset[str]] | UnreadFact
    """The webhooks that are registered, by name."""
    our_pod: Known[Answer] | UnreadFact
    """The answer to a pod of ours."""
    forged_pod: Known[Answer] | UnreadFact
    """The answer to a pod that claims to be assigned by the scheduler."""
    certificate: Known[Certificate | None] | UnreadFact
    leases: Known[Mapping[str, HeldLease | None]] | UnreadFact
    """The Leases of scheduler and controller by name; None if there is none."""
    monitor_leases: Known[Mapping[str, HeldLease]] | UnreadFact
    """The Leases of monitors by node, of nodes that exist."""
    gpus: Known[Gpus] | UnreadFact
    claims: Known[Claims] | UnreadFact
    limits_faults: Known[tuple[str, ...]] | UnreadFact

    @property
    def injects_by_policy(self) -> bool:
        """Whether a policy of the API server injects variables, and no webhook does."""
        if self.webhooks.value:
            return False
        injection = self.injection.value
        return injection.exists or injection.bound or self.policies.value[ENVIRONMENT].exists
