"""Wiring of the watches: which resource feeds which part of the scheduler."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gpu_scheduler import names
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.objects.agentaflow import API
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.cordons import read_node_cordons
from gpu_scheduler.kube.objects.device_classes import read_device_class
from gpu_scheduler.kube.objects.leases import read_monitor_lease
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_foreign_pod, read_pod
from gpu_scheduler.kube.objects.resource_slices import read_slice
from gpu_scheduler.kube.objects.storage import read_claim, read_class, read_volume
from gpu_scheduler.kube.resource import DENIED_OR_NOT_SERVED, NOT_SERVED, ReflectorTimings, Resource
from gpu_scheduler.process.reflectors import Reflectors, by_name, by_path, by_uid
from gpu_scheduler.scheduler.access import NODES_INTERVAL, Missing, Use
from gpu_scheduler.scheduler.config_maps import read_limits, read_strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.device_classes import DeviceClass
    from gpu_scheduler.kube.resource import EventHandler
    from gpu_scheduler.scheduler.access import Denied
    from gpu_scheduler.scheduler.journal import FileJournal
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler
    from gpu_scheduler.settings import RunSettings

T = TypeVar("T")

# Seconds for which events of Leases may wait, so that many are read at once. Every monitor renews its Lease: thousands
# of monitors cause hundreds of events in a second, and each shows only that a monitor runs.
LEASE_PAUSE = 0.5
# Seconds for which events of other schedulers' pods may wait. We do not control their rate, and an event that is read
# alone costs several times as much as one among many. A pod that waits for the room of such a pod is requeued later by
# this time at most. Before a decision, the events that wait are read, and applied as far as one turn lasts.
FOREIGN_POD_PAUSE = 0.1
# Seconds. After an outage no pod is placed until the last watch is back. A cluster has few schedulers, so they ask the
# API server more often than the programs of thousands of nodes, which wait for 30 s.
BACKOFF_LONGEST = 10.0


class Watches(Reflectors):
    """The watches of the scheduler."""

    def __init__(  # noqa: PLR0913 - what tests turn, each with its default
        self,
        api: ApiClient,
        scheduler: Scheduler,
        settings: RunSettings,
        clock: Callable[[], float] = time.monotonic,
        journal: FileJournal | None = None,
        *,
        denied: Denied | None = None,
        device_classes: EventHandler[DeviceClass],
    ) -> None:
        """Register all watches; they send no request before `parts` run. `journal` records which versions are read.

        A resource that `denied` says to leave out is not watched, and counts as empty.
        """
        timings = ReflectorTimings(idle_limit=settings.watch_idle_limit, backoff_longest=BACKOFF_LONGEST)
        super().__init__(api, timings, clock, scheduler.lists)
        self._journal = journal
        denied = denied or {}
        self._left_out = {use for use, right in denied.items() if right.missing is Missing.LEAVE_OUT}
        cache, ours = scheduler.cache, f"spec.schedulerName={settings.scheduler_name}"
        # Of other schedulers' pods, only those that use resources of a node: bound and not finished.
        others = (
            f"spec.schedulerName!={settings.scheduler_name},spec.nodeName!=,"
            "status.phase!=Succeeded,status.phase!=Failed"
        )
        storage = "/apis/storage.k8s.io/v1"
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{segment(settings.monitor_namespace)}/leases"
        config_maps = f"/api/v1/namespaces/{segment(settings.kubernetes_namespace)}/configmaps"
        settings_alone, limits_alone = (f"metadata.name={name}" for name in (names.SETTINGS, names.LIMITS))
        # Optional: in a cluster without monitors, the scheduler has no permission to read their Leases.
        monitors = Resource(
            *("monitors", leases, None, read_monitor_lease, by_name),
            empty_if=DENIED_OR_NOT_SERVED,
            pause=LEASE_PAUSE,
        )
        # Nodes and other schedulers' pods come before our pods: an early decision reads them.
        nodes = Resource("nodes", "/api/v1/nodes", None, read_node, by_name)
        if Use.NODE_CHANGES in denied:
            nodes = replace(nodes, list_interval=NODES_INTERVAL)
        # Not optional: without permission to read the cordons, the scheduler must not ignore them.
        cordons = Resource("gpunodes", f"{API}/gpunodes", None, read_node_cordons, by_name, empty_if=NOT_SERVED)
        self.watch(nodes, cache.nodes)
        self.watch(cordons, scheduler.cordons)
        self.watch(monitors, cache.monitors)
        self.watch(Resource("settings", config_maps, settings_alone, read_strategy, by_name), scheduler.settings)
        # Not optional: without permission to read the limits, the scheduler must not lift them. So it decides nothing
        # before they are listed. Only an operator who elects no leader may leave them out.
        self.watch(Resource("limits", config_maps, limits_alone, read_limits, by_name), scheduler.limits)
        self.watch(
            Resource("foreign_pods", "/api/v1/pods", others, read_foreign_pod, by_uid, pause=FOREIGN_POD_PAUSE),
            cache.foreign_pods,
        )
        if settings.isolation == "dra":
            # Not optional: without permission to read the claims, the scheduler must not give away what they hold.
            devices = "/apis/resource.k8s.io/v1"
            slices = Resource(Use.DEVICE_SLICES, f"{devices}/resourceslices", None, read_slice, by_name)
            device_claims = Resource(Use.DEVICE_CLAIMS, f"{devices}/resourceclaims", None, read_allocated_claim, by_uid)
            classes = Resource(Use.DEVICE_CLASSES, f"{devices}/deviceclasses", None, read_device_class, by_name)
            self.watch(classes, device_classes)
            self.watch(slices, cache.device_slices)
            self.watch(device_claims, cache.device_claims)
        self.watch(Resource("claims", "/api/v1/persistentvolumeclaims", None, read_claim, by_path), cache.claims)
        self.watch(Resource("volumes", "/api/v1/persistentvolumes", None, read_volume, by_name), cache.volumes)
        self.watch(Resource("classes", f"{storage}/storageclasses", None, read_class, by_name), cache.classes)
        self.watch(Resource("pods", "/api/v1/pods", ours, read_pod, by_uid), scheduler.pods)

    def watch(self, resource: Resource[T], observer: EventHandler[T]) -> None:
        """Deliver each change of the resource to `observer`. The journal, if any, records which versions are read."""
        if resource.name in self._left_out:
            return
        if self._journal is not None:
            resource = replace(resource, read=self._journal.reading(resource.name, resource.read))
        super().watch(resource, observer)
