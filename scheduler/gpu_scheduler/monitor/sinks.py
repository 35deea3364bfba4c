"""The objects that a monitor writes: labels and annotations of its node, its GPUNode, and its Lease.

All are written by server-side apply under one field manager. This keeps the fields of other managers, and an apply
without a change is no write in the API server.
"""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpu_scheduler import names
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.kube.http.client import APPLY, NoResponseError, segment, status_message
from gpu_scheduler.kube.objects.agentaflow import API, GROUP, VERSION, GpuDevice, MigDeviceObject
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.nodes import NodeObject
from gpu_scheduler.kube.timestamps import micro_time_of
from gpu_scheduler.monitor.ports import NodeLease, ReadingSink
from gpu_scheduler.monitor.readings import (
    GpuReading,
    MigDevice,
    Report,
    faults_of,
    schedulable,
    status_of,
    tier_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

FORBIDDEN, NOT_FOUND = 403, 404
# Intervals. The scheduler treats a node as stale when its monitor has not renewed its Lease for this long.
LEASE_INTERVALS = 3

log = logging.getLogger(__name__)

_nodes = msgspec.json.Decoder(NodeObject | None)
_devices = msgspec.json.Decoder(list[GpuDevice] | None)


class ApiNodeSink(ReadingSink):
    """Writes the monitor's own node. `uid` is the node's uid after a successful report, for owner references."""

    def __init__(self, api: ApiClient, node: str, goal: int) -> None:
        """`goal` is the utilization in percent that separates the tiers."""
        self._api = api
        self._node = node
        self._goal = goal
        self._path = f"/api/v1/nodes/{segment(node)}"
        self.uid: str | None = None

    async def written(self) -> tuple[GpuReading, ...] | None:
        """Read identity and health of the GPUs that are written on the node; None if the node cannot be read."""
        try:
            answer = await self._api.call("GET", self._path)
        except NoResponseError:
            return None
        node = decode_part(_nodes, bytes(answer.body)) if answer.ok else None
        if node is None:
            return None
        annotations = node.metadata.annotations or {}
        listed, faults = annotations.get(names.DEVICES, ""), faults_of(annotations.get(names.STATUS, ""))
        return tuple(_remembered(device, faults) for device in decode_part(_devices, listed.encode()) or ())

    async def report(self, report: Report) -> str | None:
        """Implement ReadingSink.report: apply labels and annotations of the node."""
        gpus = report.gpus
        metadata = {
            "name": self._node,
            "labels": {
                names.SCHEDULABLE: "true" if schedulable(gpus) else "false",
                names.COUNT: str(len(gpus)),
                names.TIER: tier_of(gpus, self._goal),
            },
            "annotations": {
                names.DEVICES: msgspec.json.encode([_device(gpu) for gpu in gpus]).decode(),
                names.STATUS: status_of(gpus),
                names.LAST_UPDATE: report.at,
            },
        }
        answer = await _apply(self._api, self._path, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        if isinstance(answer, str):
            return answer
        node = decode_part(_nodes, bytes(answer.body))
        self.uid = node.metadata.uid if node is not None else None
        return None


class ApiGpuNodeSink(ReadingSink):
    """Writes the GPUNode of the monitor's node. If the kind is not installed, nothing is written.

    The node does not own it: a node that is made anew must not forget its cordons.
    """

    def __init__(self, api: ApiClient, name: str) -> None:
        """`name` is the node's name, and the GPUNode has the same name."""
        self._api = api
        self._name = name
        self._path = f"{API}/gpunodes/{segment(name)}"
        self._missing = self._refused = False

    async def report(self, report: Report) -> str | None:
        """Implement ReadingSink.report: apply the GPUNode, then its status.

        Monitors of earlier versions set the node as its owner. Clusters that guard owner references do not let a
        monitor take that back, because it may not delete a GPUNode. The status is written nevertheless.
        """
        kind = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": names.NODE_KIND,
        }
        metadata = {"name": self._name}
        made = await _apply(self._api, self._path, {**kind, "metadata": metadata, "spec": {"nodeName": self._name}})
        refused = isinstance(made, str) and made.startswith(f"HTTP {FORBIDDEN}")
        if isinstance(made, str) and not refused:
            return self._unless_missing(made)
        if refused and not self._refused:
            log.warning("Only the status of the GPUNode is written", extra={"node": self._name, "error": made})
        self._missing, self._refused = False, refused
        status = {"gpus": len(report.gpus), "devices": [_released(gpu) for gpu in report.gpus]}
        body = {**kind, "metadata": metadata, "status": status}
        applied = await _apply(self._api, f"{self._path}/status", body)
        return applied if isinstance(applied, str) else None

    def _unless_missing(self, problem: str) -> str | None:
        """Return `problem`, or None if the kind GPUNode is not installed.

        That is no failure: it is logged once, and the next report tries again.
        """
        if not problem.startswith(f"HTTP {NOT_FOUND}"):
            return problem
        if not self._missing:
            log.info("Kind GPUNode is not installed: no GPUNode is written", extra={"node": self._name})
        self._missing = True
        return None


class ApiNodeLease(NodeLease):
    """A Lease with the node's name in the monitors' namespace."""

    def __init__(  # noqa: PLR0913 - what a Lease says
        self,
        api: ApiClient,
        node: ApiNodeSink,
        name: str,
        *,
        namespace: str,
        holder: str,
        interval: float,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`holder` is this pod's name, `interval` the seconds between two renewals."""
        self._api = api
        self._node = node
        self._name = name
        self._namespace = namespace
        self._holder = holder
        self._duration = math.ceil(LEASE_INTERVALS * interval)
        self._wall = wall

    async def renew(self) -> str | None:
        """Implement NodeLease.renew with one server-side apply."""
        collection = f"/apis/coordination.k8s.io/v1/namespaces/{segment(self._namespace)}/leases"
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, **_owned(self._name, self._node.uid)},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": self._duration,
                "renewTime": micro_time_of(self._wall()),
            },
        }
        answer = await _apply(self._api, f"{collection}/{segment(self._name)}", lease)
        return answer if isinstance(answer, str) else None


async def _apply(api: ApiClient, path: str, body: Mapping[str, object]) -> ApiResponse | str:
    """Apply `body`. Return the response, or the error as a sentence. Our fields that others changed are overwritten."""
    query = {"fieldManager": names.MONITOR, "force": "true"}
    try:
        answer = await api.call("PATCH", path, query=query, body=msgspec.json.encode(body), content_type=APPLY)
    except NoResponseError as error:
        return str(error)
    return answer if answer.ok else f"HTTP {answer.status}: {status_message(answer)}"


def _owned(name: str, uid: str | None) -> dict[str, object]:
    """Return the owner reference to the node as metadata, so that the object is deleted with the node."""
    if uid is None:
        return {}
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]}


def _device(gpu: GpuReading) -> GpuDevice:
    return GpuDevice(
        index=gpu.index,
        uuid=gpu.uuid,
        pci_bus_id=gpu.bus,
        model=gpu.model,
        memory_total_mib=gpu.total,
        memory_used_mib=gpu.used,
        utilization=gpu.utilization,
        temperature=gpu.temperature,
        power=gpu.power,
        health=gpu.health,
        mig_devices=[MigDeviceObject(uuid=each.uuid, memory_mib=each.memory) for each in gpu.mig_devices] or None,
    )


def _released(gpu: GpuReading) -> GpuDevice:
    """Return the device with what only the GPUNode says: the fields of the node's annotation are a contract."""
    return replace(_device(gpu), released=gpu.released or None)


def _remembered(device: GpuDevice, faults: Mapping[int, str]) -> GpuReading:
    return GpuReading(
        index=device.index,
        uuid=device.uuid,
        bus=device.pci_bus_id,
        model=device.model,
        total=device.memory_total_mib,
        health=device.health or Health.HEALTHY,
        why=faults.get(device.index, ""),
        mig_devices=tuple(MigDevice(each.uuid, each.memory_mib) for each in device.mig_devices or ()),
    )
