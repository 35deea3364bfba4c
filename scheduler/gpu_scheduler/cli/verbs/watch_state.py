"""The state of `watch`: nodes and pods from the watches, and the changes since the last view."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpu_scheduler.cli.output import gpus_of, marked
from gpu_scheduler.cli.published import Published
from gpu_scheduler.cli.snapshot import ClusterObjects, Snapshot
from gpu_scheduler.cli.views import POD, node_views, pod_view, workload_view
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.cordons import Cordons
from gpu_scheduler.core.nodes.monitor_leases import MonitorLeases
from gpu_scheduler.core.text import natural, number_of, printable
from gpu_scheduler.kube.resource import EventHandlerFuncs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_scheduler.cli.installation import Installation
    from gpu_scheduler.cli.snapshot import ListedNode
    from gpu_scheduler.controller.objects import GpuWorkloadObject
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.core.nodes.device_pools import DeviceSlice
    from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
    from gpu_scheduler.core.pods.pod import ForeignPod, Pod

T = TypeVar("T")
View = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace, name; views are sorted in this order."""

NODE, WORKLOAD, GPU_WORKLOAD = "Node", "Workload", "GPUWorkload"


@immutable
class ClusterFacts:
    """What the screen shows of the whole cluster, as words."""

    leader: str
    strategy: str
    conflicts: tuple[str, ...] = ()


class _Table(dict[str, T], Generic[T]):
    """The objects of one watch, by key; the watch calls `handler`."""

    def __init__(self, key: Callable[[T], str], changed: asyncio.Event) -> None:
        super().__init__()
        self._key = key
        self._changed = changed
        self.handler = EventHandlerFuncs(self._applied, self._forgotten)

    def _applied(self, value: T) -> None:
        self[self._key(value)] = value
        self._changed.set()

    def _forgotten(self, value: T) -> None:
        self.pop(self._key(value), None)
        self._changed.set()


class WatchState:
    """Nodes, pods, cordons, ResourceClaims and monitors' Leases from the watches. A change of any sets `changed`."""

    def __init__(
        self,
        installation: Installation,
        namespace: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        *,
        no_leases: str = "",
    ) -> None:
        """`namespace` limits the workloads that are shown; None shows all.

        `no_leases` says that the monitors' Leases may not be listed: then nobody knows whether monitors are silent.
        """
        self.changed = asyncio.Event()
        self._leader = "unknown"
        self._conflicts: tuple[str, ...] = ()
        self._no_leases = no_leases
        self._installation = installation
        self._namespace = namespace
        self._clock, self._wall = clock, wall
        self._monitor_leases, self._cordons = MonitorLeases(), Cordons()
        self.nodes: _Table[ListedNode] = _Table(lambda seen: seen.node.name, self.changed)
        self.pods: _Table[Pod] = _Table(lambda pod: pod.ref.uid, self.changed)
        self.workloads: _Table[GpuWorkloadObject] = _Table(lambda workload: workload.metadata.uid or "", self.changed)
        self.foreign_pods: _Table[ForeignPod] = _Table(lambda foreign_pod: foreign_pod.ref.uid, self.changed)
        self.slices: _Table[DeviceSlice] = _Table(lambda found: found.name, self.changed)
        self.claims: _Table[AllocatedClaim] = _Table(lambda claim: claim.uid, self.changed)
        self.monitors = EventHandlerFuncs(self._monitor_applied, self._monitor_forgotten)
        self.cordons = EventHandlerFuncs(self._cordons_applied, self._cordons_forgotten)

    def tick(self) -> None:
        """Set `changed` if a monitor's Lease has expired, or a cordon has ended."""
        if [*self._monitor_leases.expired(self._clock()), *self._cordons.ended(self._wall())]:
            self.changed.set()

    def set_cluster(self, installation: Installation, leader: str) -> None:
        """Take configuration and leader as they were last read; set `changed`."""
        self._installation, self._leader = installation, leader
        self.changed.set()

    @property
    def facts(self) -> ClusterFacts:
        """Leader, strategy, and the conflicts of the last view."""
        strategy = self._installation.strategy
        named = "unknown" if strategy is None else f"{strategy} ({self._installation.source})"
        return ClusterFacts(self._leader, named, self._conflicts)

    def view(self) -> dict[Key, View]:
        """Return nodes and workloads as the verbs `nodes` and `workloads` print them, in the same order."""
        strategy = self._installation.strategy
        snapshot = self._snapshot()
        self._conflicts = tuple(
            f"GPU {each.device} of {each.node} is held by {each.first.holder} and {each.second.holder}"
            for each in snapshot.ledger.conflicts()
        )
        views = [pod_view(each, strategy) for each in snapshot.pods]
        views += [workload_view(each, strategy) for each in self.workloads.values()]
        mine = [each for each in views if self._namespace in {None, each["namespace"]}]
        return {
            **{(NODE, "", each["name"]): each for each in node_views(snapshot)},
            **{
                (WORKLOAD if each["objectKind"] == POD else GPU_WORKLOAD, each["namespace"], each["name"]): each
                for each in sorted(mine, key=lambda each: (each["namespace"], natural(each["name"])))
            },
        }

    def _snapshot(self) -> Snapshot:
        wall = self._wall()
        objects = ClusterObjects(
            tuple(self.nodes.values()),
            tuple(self.pods.values()),
            tuple(self.foreign_pods.values()),
            # When a monitor last renewed its Lease is not known here.
            {name: "" for name in self.nodes if self._monitor_leases.stale(name)},
            {name: self._cordons.in_force(name, wall) for name in self.nodes},
            Published(tuple(self.slices.values()), tuple(self.claims.values())),
            self._no_leases,
        )
        return Snapshot(self._installation.policy, objects)

    def _monitor_applied(self, lease: MonitorLease) -> None:
        if self._monitor_leases.seen(lease, now=self._clock(), wall=self._wall()):
            self.changed.set()

    def _monitor_forgotten(self, lease: MonitorLease) -> None:
        if self._monitor_leases.gone(lease.node):
            self.changed.set()

    def _cordons_applied(self, cordons: NodeCordons) -> None:
        self._cordons.put(cordons.node, cordons.cordons, self._wall())
        self.changed.set()

    def _cordons_forgotten(self, cordons: NodeCordons) -> None:
        self._cordons.put(cordons.node, (), self._wall())
        self.changed.set()


def changes(before: Mapping[Key, View], after: Mapping[Key, View]) -> Iterator[tuple[str, Key, View]]:
    """List the differences as (type, key, view); the types are those of watch events: ADDED, MODIFIED, DELETED."""
    for key, view in after.items():
        if before.get(key) != view:
            yield "MODIFIED" if key in before else "ADDED", key, view
    for key, view in before.items():
        if key not in after:
            yield "DELETED", key, view


def line_of(change: str, key: Key, view: View) -> str:
    """Return one change as one printable line: the object and its new state."""
    kind, namespace, name = key
    called = f"{namespace}/{name}" if namespace else name
    state = "gone" if change == "DELETED" else _node_line(view) if kind == NODE else _workload_line(view)
    return printable(f"{kind.lower():<8}  {called:<32}  {state}")


def _node_line(view: View) -> str:
    gpus = view["gpus"]
    total = "GPUs unknown" if gpus["total"] is None else number_of(gpus["total"], "GPU")
    words = [
        "Ready" if view["ready"] else "NotReady",
        *["cordoned"] * view["cordoned"],
        *["monitor stale"] * bool(view["stale"]),
        f"{total}, {gpus['held']} held, {gpus['available']} free",
        *([] if view["utilization"] is None else [f"{view['utilization']}% busy", view["health"]]),
    ]
    return ", ".join(words)


def _workload_line(view: View) -> str:
    if view["node"]:
        return f"{view['phase']} on {view['node']}, {marked(view, gpus_of(view['devices']))}"
    return f"{marked(view, view['phase'])}: {view['message'] or 'not tried yet'}"
