"""The ResourceSlices that are written, against an API server that keeps them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.driver import publisher as module
from gpu_scheduler.driver.devices import OwnNode
from gpu_scheduler.driver.node_state import WatchedNode, WatchedPools
from gpu_scheduler.driver.objects import read_slice
from gpu_scheduler.driver.ports import CdiError
from gpu_scheduler.driver.publisher import NotKnownError, Publisher, WriteError
from gpu_scheduler.kube.http.client import ApiResponse, NoResponseError
from tests import objects
from tests.messages import text_of
from unit_tests.driver.parts import DRIVER, NODE, NamedCdi
from unit_tests.kube.server import until
from unit_tests.virtual import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from gpu_scheduler.driver.devices import OwnDevice
    from tests.objects import Object

POOLS = "/apis/resource.k8s.io/v1/resourceslices"
FIRST = "node1-gpu.agentaflow.io-0"


class StoringApi:
    """An API server that keeps ResourceSlices. The driver gets no events, only answers."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.writes: list[str] = []
        self.store: Callable[[Object], Object] = lambda body: body
        self.refusal: ApiResponse | None = None
        self.silent = False
        self._version = 100

    async def call(self, method: str, path: str, *, body: bytes, most: int) -> ApiResponse:
        assert most
        asked = json.loads(body)
        name = path.removeprefix(POOLS).strip("/") or asked["metadata"]["name"]
        self.writes.append(f"{method} {name}")
        if self.silent:
            raise NoResponseError(f"{method} {path}: TimeoutError")
        if self.refusal is not None:
            return self.refusal
        if method == "DELETE":
            found = self.stored.pop(name, None)
            assert found is None or found["metadata"]["uid"] == asked["preconditions"]["uid"]
            return ApiResponse(200 if found else 404, b"{}")
        assert (name in self.stored) == (method == "PUT")
        return ApiResponse(200, json.dumps(self.keep(self.store(asked))).encode())

    def keep(self, body: Object) -> Object:
        """Store an object and return it, with uid and version."""
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", **body["metadata"], "resourceVersion": str(self._version)}
        self.stored[metadata["name"]] = kept = {**body, "metadata": metadata}
        return kept


class Published:
    """A publisher, what it watches, and the API server."""

    def __init__(self, *devices: int) -> None:
        self.api, self.cdi, self.changed = StoringApi(), NamedCdi(), asyncio.Event()
        self.cordons: tuple[Cordon, ...] = ()
        self.node, self.pools = WatchedNode(lambda: self.cordons), WatchedPools()
        self.unlisted: str | None = None
        self.now = 0.0
        self.publisher = self.start()
        if devices:
            self.list_devices(*devices)

    def start(self) -> Publisher:
        """Return the publisher of a new process that has listed what is stored."""
        self.pools = WatchedPools()
        for body in self.api.stored.values():
            self.pools.applied(read_slice(json.dumps(body).encode())[1])
        api: Any = self.api
        self.publisher = Publisher(
            *(api, self.node, self.pools, self.cdi),
            changed=self.changed,
            unlisted=lambda: self.unlisted,
            clock=lambda: self.now,
        )
        return self.publisher

    def list_devices(self, *indices: int, uid: str = "uid-node") -> None:
        devices = tuple(Device(index, objects.gpu(index)) for index in indices)
        self.node.applied(OwnNode(NODE, uid, Inventory(devices)))

    def change(self, name: str, change: Callable[[Object], Any] | None) -> None:
        """Change or delete a stored ResourceSlice, as another writer does, and deliver the event."""
        before = self.api.stored.pop(name)
        if change is None:
            self.pools.forgotten(read_slice(json.dumps(before).encode())[1])
        else:
            body = json.loads(json.dumps(before))
            change(body)
            self.pools.applied(read_slice(json.dumps(self.api.keep(body)).encode())[1])

    async def writes(self) -> list[str]:
        """Publish once; return the writes."""
        del self.api.writes[:]
        wrote = await self.publisher.publish_once()
        assert wrote == bool(self.api.writes)
        return self.api.writes

    def pool(self) -> list[tuple[int, int, int]]:
        """Return generation, number of ResourceSlices and number of devices of each ResourceSlice that is stored."""
        specs = [self.api.stored[name]["spec"] for name in sorted(self.api.stored)]
        return [
            (each["pool"]["generation"], each["pool"]["resourceSliceCount"], len(each["devices"])) for each in specs
        ]


async def having_published(*devices: int) -> Published:
    at = Published(*devices)
    await at.writes()
    return at


def add_device(body: Object) -> None:
    body["spec"]["devices"].append({"name": "gpu-more"})


CHANGES: dict[str, tuple[Callable[[Published], Any], list[str], list[tuple[int, int, int]]]] = {
    "nothing": (lambda _: None, [], [(1, 1, 2)]),
    "a device is added": (lambda at: at.list_devices(0, 1, 2), [f"PUT {FIRST}"], [(2, 1, 3)]),
    "a device has another index": (lambda at: at.list_devices(1, 3), [f"PUT {FIRST}"], [(2, 1, 2)]),
    "a device is cordoned": (lambda at: setattr(at, "cordons", (Cordon("0"),)), [f"PUT {FIRST}"], [(2, 1, 2)]),
    "all devices are gone": (lambda at: at.list_devices(), [f"DELETE {FIRST}"], []),
    "more devices than one ResourceSlice may have": (
        lambda at: at.list_devices(*range(129)),
        [f"PUT {FIRST}", "POST node1-gpu.agentaflow.io-1"],
        [(2, 2, 128), (2, 2, 1)],
    ),
    "the kubelet deletes them": (lambda at: at.change(FIRST, None), [f"POST {FIRST}"], [(1, 1, 2)]),
    "another writer adds a device": (lambda at: at.change(FIRST, add_device), [f"PUT {FIRST}"], [(2, 1, 2)]),
    "another writer sets a later generation": (
        lambda at: at.change(FIRST, lambda body: body["spec"]["pool"].update(generation=9)),
        [],
        [(9, 1, 2)],
    ),
    "another writer changes a label": (
        lambda at: at.change(FIRST, lambda body: body["metadata"].update(labels={"a": "b"})),
        [],
        [(1, 1, 2)],
    ),
}


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize(("change", "writes", "pool"), CHANGES.values(), ids=CHANGES)
async def test_only_a_change_is_written(
    change: Callable[[Published], Any],
    writes: list[str],
    pool: list[tuple[int, int, int]],
    restarted: bool,  # noqa: FBT001 - a table's column
) -> None:
    """Each is one generation more. A second pass writes nothing."""
    at = Published(0, 1)
    assert await at.writes() == [f"POST {FIRST}"]
    change(at)
    if restarted:
        at.start()

    assert await at.writes() == writes
    assert at.pool() == pool
    assert await at.writes() == []


async def test_a_part_of_the_pool_is_written_again() -> None:
    """The others stay: the pool is the same."""
    at = await having_published(*range(129))
    at.change(FIRST, None)

    assert await at.writes() == [f"POST {FIRST}"]
    assert at.pool() == [(1, 2, 128), (1, 2, 1)]


async def test_devices_that_change_while_nothing_is_stored_are_a_new_generation() -> None:
    """A reader that is behind must not mix both."""
    at = await having_published(0, 1)
    at.change(FIRST, None)
    at.list_devices(0)

    assert await at.writes() == [f"POST {FIRST}"]
    assert at.pool() == [(2, 1, 1)]


async def test_what_the_api_server_drops_is_not_sent_again() -> None:
    """Kubernetes 1.35 drops taints by default. Another writer's change is still noticed."""

    def without_taints(body: Object) -> Object:
        devices = [{key: value for key, value in each.items() if key != "taints"} for each in body["spec"]["devices"]]
        return {**body, "spec": {**body["spec"], "devices": devices}}

    at = Published()
    at.api.store = without_taints
    at.list_devices(0, 1)
    at.cordons = (Cordon("*"),)

    assert await at.writes() == [f"POST {FIRST}"]
    assert await at.writes() == []
    at.change(FIRST, add_device)
    assert await at.writes() == [f"PUT {FIRST}"]
    assert await at.writes() == []


async def test_beside_nvidias_driver_nothing_is_published(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once. When that driver is gone, the devices are published again."""
    at = await having_published(0, 1)
    foreign = {"driver": "gpu.nvidia.com", "pool": {"name": NODE, "generation": 1}}
    body = json.dumps({"metadata": {"name": "n", "uid": "uid-n"}, "spec": foreign}).encode()
    at.pools.applied(read_slice(body)[1])

    assert await at.writes() == [f"DELETE {FIRST}"]
    assert await at.writes() == []
    assert [len(devices) for devices in at.cdi.declared] == [2, 2, 2]
    logged = [record for record in caplog.records if "Not all devices are published" in record.message]
    assert [vars(record)["why"] for record in logged] == ["driver gpu.nvidia.com publishes the devices of this node"]
    at.pools.forgotten(read_slice(body)[1])
    assert await at.writes() == [f"POST {FIRST}"]
    assert at.pool() == [(3, 1, 2)]


async def test_why_a_device_is_withheld_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The others are published."""
    at = Published()
    at.node.applied(OwnNode(NODE, "uid", Inventory((Device(0, objects.gpu(0)), Device(1)))))
    await at.writes()
    await at.writes()

    assert at.pool() == [(1, 1, 1)]
    (logged,) = [record for record in caplog.records if "Not all devices are published" in record.message]
    assert vars(logged)["why"] == text_of("driver: a GPU without a UUID", gpu=1)


async def test_devices_are_declared_before_they_are_published() -> None:
    """Whoever allocates one must be able to start a container with it."""
    at = Published(0, 1)

    class FailingCdi(NamedCdi):
        def declare(self, devices: Collection[OwnDevice]) -> None:  # noqa: ARG002 - it fails
            raise CdiError("the disk is full")

    at.cdi = FailingCdi()
    at.start()
    with pytest.raises(CdiError):
        await at.writes()
    assert at.api.stored == {}
    at.cdi = NamedCdi()
    at.start()
    await at.writes()
    assert [[each.index for each in devices] for devices in at.cdi.declared] == [[0, 1]]


NOT_KNOWN: dict[str, tuple[Callable[[Published], Any], str]] = {
    "the node is not listed": (lambda at: setattr(at, "unlisted", "not listed yet: node"), "not listed yet: node"),
    "the node does not exist": (lambda _: None, "this node does not exist in the cluster: NODE_NAME must be its name"),
    "the monitor has listed nothing": (
        lambda at: at.node.applied(OwnNode(NODE, "uid", None)),
        "annotation agentaflow.gpu/devices of the node, which its monitor writes, cannot be read",
    ),
}


@pytest.mark.parametrize(("change", "why"), NOT_KNOWN.values(), ids=NOT_KNOWN)
async def test_nothing_is_written_before_the_devices_are_known(change: Callable[[Published], Any], why: str) -> None:
    """What an earlier process published stays."""
    at = Published()
    change(at)

    with pytest.raises(NotKnownError, match=f"^{why}$"):
        await at.writes()
    assert at.api.writes == []


REFUSED = ApiResponse(403, b'{"message": "not yours"}')
FAILURES: dict[str, tuple[Callable[[Published], Any], str]] = {
    "it is refused": (
        lambda at: setattr(at.api, "refusal", REFUSED),
        f"^cannot write ResourceSlice {FIRST}: HTTP 403: not yours$",
    ),
    "the API server does not answer": (lambda at: setattr(at.api, "silent", True), f"^POST {POOLS}: TimeoutError$"),
    "the answer cannot be read": (
        lambda at: setattr(at.api, "refusal", ApiResponse(201, b"[]")),
        f"^cannot read ResourceSlice {FIRST} as the API server answered it: ",
    ),
}


@pytest.mark.parametrize(("change", "why"), FAILURES.values(), ids=FAILURES)
async def test_a_write_that_fails_is_tried_again(change: Callable[[Published], Any], why: str) -> None:
    """The pool is written as it is then."""
    at = Published(0, 1)
    change(at)

    with pytest.raises(WriteError, match=why):
        await at.writes()
    at.api.refusal, at.api.silent = None, False
    assert await at.writes() == [f"POST {FIRST}"]
    assert at.pool() == [(1, 1, 2)]


async def test_a_deletion_that_fails_is_tried_again() -> None:
    """One that is gone already is deleted."""
    at = await having_published(0)
    at.list_devices()
    at.api.refusal = REFUSED
    with pytest.raises(WriteError, match=f"^cannot delete ResourceSlice {FIRST}: HTTP 403: not yours$"):
        await at.writes()
    at.api.refusal = None
    del at.api.stored[FIRST]

    assert await at.writes() == [f"DELETE {FIRST}"]
    assert await at.writes() == []


@asynccontextmanager
async def running(at: Published, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    for name in ("RESYNC", "RETRY", "PAUSE_FIRST"):
        monkeypatch.setattr(module, name, 0.01)
    task = asyncio.create_task(at.publisher.run())
    yield
    task.cancel()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 5)


async def test_the_loop_goes_on_after_every_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is wrong, and publishes as soon as it can."""
    at = Published()
    at.unlisted = "not listed yet: node"
    async with running(at, monkeypatch):
        await until(lambda: at.publisher.problem == "not listed yet: node")
        at.unlisted = None
        at.api.refusal = REFUSED
        at.list_devices(0)
        await until(lambda: "HTTP 403" in (at.publisher.problem or ""))
        at.api.refusal = None
        at.api.store = lambda body: body["absent"]
        await until(lambda: at.publisher.problem == "publishing failed with an internal error")
        at.api.store = lambda body: body
        await until(lambda: at.publisher.problem is None)
        assert at.pool() == [(1, 1, 1)]
        at.cordons = (Cordon("*"),)
        await until(lambda: at.pool() == [(2, 1, 1)])
        at.now = 7
        assert at.publisher.heartbeat_age == 7
        at.changed.set()
        await until(lambda: at.publisher.heartbeat_age == 0)


async def test_an_event_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet's deletion is repaired at once."""
    at = Published(0)
    async with running(at, monkeypatch):
        await until(lambda: at.publisher.problem is None)
        monkeypatch.setattr(module, "RESYNC", 1000.0)
        await settle()
        at.change(FIRST, None)
        at.changed.set()
        await until(lambda: at.pool() == [(1, 1, 1)])
    assert all(spec["spec"]["driver"] == DRIVER for spec in at.api.stored.values())
