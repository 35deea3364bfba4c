"""Wiring of the watches: which resource feeds which part of the scheduler, and whether what they say can be trusted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_scheduler.adapters.reflector import Pace, Reflector, Resource
from gpu_scheduler.adapters.storage import read_claim, read_class, read_volume
from gpu_scheduler.adapters.translate import read_node, read_pod, read_resident

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.adapters.api import Api
    from gpu_scheduler.adapters.objects import Identity
    from gpu_scheduler.ports import Observer
    from gpu_scheduler.scheduling import Scheduler
    from gpu_scheduler.settings import RunSettings

T = TypeVar("T")

# Readiness allows a watch twice the silence after which it is opened anew.
PATIENCE = 2


class Watches:
    """One reflector a resource, by the resource's name."""

    def __init__(self, api: Api, scheduler: Scheduler, settings: RunSettings) -> None:
        """Nothing is asked before `run`."""
        self._limit = PATIENCE * settings.watch_idle_limit
        self._pace = Pace(idle_limit=settings.watch_idle_limit)
        self._api = api
        self._all: dict[str, Reflector[Any]] = {}
        world, ours = scheduler.world, f"spec.schedulerName={settings.scheduler_name}"
        # Of others' pods only those that take something of a node: bound, and not finished.
        others = (
            f"spec.schedulerName!={settings.scheduler_name},spec.nodeName!=,"
            "status.phase!=Succeeded,status.phase!=Failed"
        )
        storage = "/apis/storage.k8s.io/v1"
        # Nodes and others' pods first: who decides early decides by them.
        self._watch(Resource("nodes", "/api/v1/nodes", None, read_node, _name), world.nodes)
        self._watch(Resource("residents", "/api/v1/pods", others, read_resident, _uid), world.residents)
        self._watch(Resource("claims", "/api/v1/persistentvolumeclaims", None, read_claim, _path), world.claims)
        self._watch(Resource("volumes", "/api/v1/persistentvolumes", None, read_volume, _name), world.volumes)
        self._watch(Resource("classes", f"{storage}/storageclasses", None, read_class, _name), world.classes)
        self._watch(Resource("pods", "/api/v1/pods", ours, read_pod, _uid), scheduler.pods)

    def parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Every watch as something to run, by what it is."""
        return {f"watch of {name}": watch.run() for name, watch in self._all.items()}

    async def relist(self) -> None:
        """Return when a list of every resource that began after this call has been applied."""
        await asyncio.gather(*(watch.relist() for watch in self._all.values()))

    def silences(self) -> dict[str, Callable[[], float]]:
        """By resource, the seconds since the API server last said anything about it."""
        return {name: partial(_silence, watch) for name, watch in self._all.items()}

    def unlisted(self) -> str | None:
        """What has not been listed yet."""
        missing = [name for name, watch in self._all.items() if not watch.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def silent(self) -> str | None:
        """What has been silent for too long."""
        silent = [
            f"{name} for {watch.silence:.0f} s" for name, watch in self._all.items() if watch.silence > self._limit
        ]
        return f"the API server says nothing of {', '.join(silent)}" if silent else None

    def _watch(self, resource: Resource[T], observer: Observer[T]) -> None:
        self._all[resource.name] = Reflector(self._api, resource, observer, pace=self._pace)


def _silence(watch: Reflector[Any]) -> float:
    return watch.silence


def _uid(identity: Identity) -> str:
    return identity.uid or ""


def _name(identity: Identity) -> str:
    return identity.name or ""


def _path(identity: Identity) -> str:
    return f"{identity.namespace}/{identity.name}"
