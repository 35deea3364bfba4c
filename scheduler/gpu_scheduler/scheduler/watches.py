"""Wiring of the watches: which resource feeds which part of the scheduler."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gpu_scheduler import names
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.objects.leases import read_sighting
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_pod, read_resident
from gpu_scheduler.kube.objects.storage import read_claim, read_class, read_volume
from gpu_scheduler.kube.resource import Resource
from gpu_scheduler.process.reflectors import Reflectors, by_name, by_path, by_uid
from gpu_scheduler.scheduler.config_maps import read_limits, read_strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.resource import EventHandler
    from gpu_scheduler.scheduler.journal import FileJournal
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler
    from gpu_scheduler.settings import RunSettings

T = TypeVar("T")

# Seconds. Every monitor renews its Lease, thousands of them hundreds in a second, and says no more than that it lives.
HEARTBEATS = 0.5
# Likewise: others' pods come and go at a pace that is not ours, and each alone costs several times what it costs among
# many. Who waits for the room that one leaves hears of it so much later; before a decision all of them are read.
OTHERS = 0.1


class Watches(Reflectors):
    """What the scheduler watches."""

    def __init__(
        self,
        api: ApiClient,
        scheduler: Scheduler,
        settings: RunSettings,
        clock: Callable[[], float] = time.monotonic,
        journal: FileJournal | None = None,
    ) -> None:
        """Nothing is asked before `parts` run; `journal` is told which versions are read."""
        super().__init__(api, settings.watch_idle_limit, clock)
        self._journal = journal
        world, ours = scheduler.world, f"spec.schedulerName={settings.scheduler_name}"
        # Of others' pods only those that take something of a node: bound, and not finished.
        others = (
            f"spec.schedulerName!={settings.scheduler_name},spec.nodeName!=,"
            "status.phase!=Succeeded,status.phase!=Failed"
        )
        storage = "/apis/storage.k8s.io/v1"
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{segment(settings.monitor_namespace)}/leases"
        config_maps = f"/api/v1/namespaces/{segment(settings.kubernetes_namespace)}/configmaps"
        settings_alone, limits_alone = (f"metadata.name={name}" for name in (names.SETTINGS, names.LIMITS))
        # Without monitors nobody made us the right to see their Leases.
        monitors = Resource("monitors", leases, None, read_sighting, by_name, optional=True, pause=HEARTBEATS)
        # Nodes and others' pods first: who decides early decides by them.
        self.watch(Resource("nodes", "/api/v1/nodes", None, read_node, by_name), world.nodes)
        self.watch(monitors, world.monitors)
        self.watch(Resource("settings", config_maps, settings_alone, read_strategy, by_name), scheduler.settings)
        # Not optional: who may not see the limits must not lift them, so nothing is decided before they are listed.
        self.watch(Resource("limits", config_maps, limits_alone, read_limits, by_name), scheduler.limits)
        self.watch(
            Resource("residents", "/api/v1/pods", others, read_resident, by_uid, pause=OTHERS), world.foreign_pods
        )
        self.watch(Resource("claims", "/api/v1/persistentvolumeclaims", None, read_claim, by_path), world.claims)
        self.watch(Resource("volumes", "/api/v1/persistentvolumes", None, read_volume, by_name), world.volumes)
        self.watch(Resource("classes", f"{storage}/storageclasses", None, read_class, by_name), world.classes)
        self.watch(Resource("pods", "/api/v1/pods", ours, read_pod, by_uid), scheduler.pods)

    def watch(self, resource: Resource[T], observer: EventHandler[T]) -> None:
        """Keep `observer` level with this resource, and the journal informed of its versions."""
        if self._journal is not None:
            resource = replace(resource, read=self._journal.reading(resource.name, resource.read))
        super().watch(resource, observer)
