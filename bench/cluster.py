"""A fresh control plane for each cell, with our RBAC and policies, and with high limits on requests in flight.

If the temporary folder is in memory, so are all data. etcd does not wait for the disk. This holds for all contenders.
"""

from __future__ import annotations

import http.client
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench.contenders.load_generator import LoadGenerator
from bench.contenders.prepared_requests import Header, PreparedPod, Request, write
from tests.integration import policies
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.role_manifests import control_plane

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.cluster_objects import ClusterObjects
    from bench.contenders.prepared_requests import LoadReport
    from tests.objects import Object

FLAGS: Final = ("--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000")
_CREATES_AT_ONCE: Final = 32
"""Requests in flight while nodes and pods are created, which is not measured."""
_TIMEOUT: Final = 300.0
DATA: Final = "etcd"
"""The folder of etcd's data, in a control plane's folder."""
CREATED: Final = "201"
"""The status that a load generator reports for a created object."""


class ClusterUnderTest:
    """One control plane with a folder of its own."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        """Only `start_cluster` calls this."""
        self.folder = folder
        self.plane = plane
        self._made = 0

    def make(self, requests: Iterable[tuple[str, Object]]) -> None:
        """Create these objects, many at the same time; AssertionError when the API server refuses one."""
        made = self.send(requests, _CREATES_AT_ONCE)
        assert set(made.statuses) <= {CREATED}, made.statuses

    def send(self, requests: Iterable[tuple[str, Object]], in_flight: int) -> LoadReport:
        """POST these objects as fast as the API server answers, with `in_flight` requests at a time."""
        self._made += 1
        workloads = self.folder / f"make-{self._made}.jsonl"
        bodies = (PreparedPod(Request(path, msgspec.json.encode(body).decode()), None) for path, body in requests)
        write(workloads, self.header(ADMIN_TOKEN, in_flight), bodies)
        maker = LoadGenerator("curl", workloads, self.folder / f"make-{self._made}.log")
        try:
            maker.wait_ready()
            maker.go()
            return maker.wait(_TIMEOUT)
        finally:
            maker.stop()

    def make_namespaces(self, names: Iterable[str]) -> None:
        """Create namespaces with these names."""
        self.make(("/api/v1/namespaces", {"metadata": {"name": name}}) for name in names)

    def settle(self, objects: ClusterObjects) -> None:
        """Create namespaces and nodes."""
        self.make_namespaces(objects.namespaces)
        self.make(("/api/v1/nodes", body) for body in objects.node_bodies())

    def header(self, token: str, in_flight: int) -> Header:
        """Return server, CA, token and requests in flight for a load generator."""
        return Header(f"https://127.0.0.1:{self.plane.port}", str(self.plane.ca), token, in_flight)

    def items(self, path: str) -> list[bytes]:
        """Return all objects of a collection, each as the API server writes it."""
        status, body = self.plane.kube.raw("GET", path)
        assert status == http.client.OK, body[:500]
        return [bytes(item) for item in msgspec.json.decode(body, type=_Items).items]


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


@contextmanager
def start_cluster(*, data: Path | None = None, isolation: str = "env") -> Iterator[ClusterUnderTest]:
    """Start a control plane with the policies that accompany a webhook. Remove it at the end.

    `data` is the etcd folder of an earlier control plane with the same `isolation`, to begin with its objects.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if data is None:
            plane = control_plane(folder, *FLAGS, isolation=isolation)
        else:
            shutil.copytree(data, folder / DATA)
            plane = ControlPlane(folder, *FLAGS)
        try:
            if data is None:
                policies.guard(plane, isolation=isolation)
            else:
                policies.wait_guarded(plane, isolation)
            yield ClusterUnderTest(folder, plane)
        finally:
            plane.stop()
