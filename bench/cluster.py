"""A fresh control plane for each cell: the tests' own, with our rights and policies, and with limits that nobody meets.

Everything is in memory where the temporary folder is; etcd does not wait for the disk. All contenders have the same.
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
from tests.integration import manifests
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.shipped import control_plane

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.cluster_objects import ClusterObjects
    from bench.contenders.prepared_requests import LoadReport
    from tests.objects import Object

FLAGS: Final = ("--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000")
_MAKERS: Final = 32
"""Requests in flight where nodes and pods are made, which nobody measures."""
_PATIENCE: Final = 300.0
DATA: Final = "etcd"
"""Where etcd keeps its data, in a control plane's folder."""
CREATED: Final = "201"
"""How a load generator tells of an object that was made."""


class ClusterUnderTest:
    """One control plane with a folder of its own."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        """`cluster` makes them."""
        self.folder = folder
        self.plane = plane
        self._made = 0

    def make(self, requests: Iterable[tuple[str, Object]]) -> None:
        """Create these objects, many at once; AssertionError when one was refused."""
        made = self.send(requests, _MAKERS)
        assert set(made.statuses) <= {CREATED}, made.statuses

    def send(self, requests: Iterable[tuple[str, Object]], in_flight: int) -> LoadReport:
        """Ask for these objects with so many requests in flight, as fast as they are answered."""
        self._made += 1
        orders = self.folder / f"make-{self._made}.jsonl"
        bodies = (PreparedPod(Request(path, msgspec.json.encode(body).decode()), None) for path, body in requests)
        write(orders, self.header(ADMIN_TOKEN, in_flight), bodies)
        maker = LoadGenerator("curl", orders, self.folder / f"make-{self._made}.log")
        try:
            maker.wait_ready()
            maker.go()
            return maker.wait(_PATIENCE)
        finally:
            maker.stop()

    def make_namespaces(self, names: Iterable[str]) -> None:
        """Make namespaces of these names."""
        self.make(("/api/v1/namespaces", {"metadata": {"name": name}}) for name in names)

    def settle(self, objects: ClusterObjects) -> None:
        """Make namespaces and nodes."""
        self.make_namespaces(objects.namespaces)
        self.make(("/api/v1/nodes", body) for body in objects.node_bodies())

    def header(self, token: str, in_flight: int) -> Header:
        """To whom a load generator sends."""
        return Header(f"https://127.0.0.1:{self.plane.port}", str(self.plane.ca), token, in_flight)

    def items(self, path: str) -> list[bytes]:
        """All objects of a kind, each as the API server writes it."""
        status, body = self.plane.kube.raw("GET", path)
        assert status == http.client.OK, body[:500]
        return [bytes(item) for item in msgspec.json.decode(body, type=_Items).items]


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


@contextmanager
def start_cluster(*, data: Path | None = None) -> Iterator[ClusterUnderTest]:
    """Start one, with the policies in force that stand beside a webhook; it is gone afterwards.

    `data` is what another one left behind.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if data is None:
            plane = control_plane(folder, *FLAGS)
        else:
            shutil.copytree(data, folder / DATA)
            plane = ControlPlane(folder, *FLAGS)
        try:
            if data is None:
                manifests.guard(plane)
            else:
                manifests.wait_guarded(plane)
            yield ClusterUnderTest(folder, plane)
        finally:
            plane.stop()
