"""A whole driver in this process, against a scripted API server and called as by a kubelet."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from gpu_scheduler.driver import kubelet_api as api
from gpu_scheduler.driver.cdi import NvidiaCdi, SimulatedCdi
from gpu_scheduler.driver.checkpoint import open_checkpoint
from gpu_scheduler.driver.kubelet_plugin import plugin_dir
from gpu_scheduler.driver.resource_slice import slice_object, specs_of
from gpu_scheduler.driver.run import DriverProcess, run_driver
from gpu_scheduler.process import http_server
from gpu_scheduler.process.lifecycle import UsageError
from gpu_scheduler.settings import DriverSettings
from tests import objects
from tests.messages import text_of
from tests.ports import free_port
from unit_tests.driver.parts import NODE, call, claim, own, result, short_folder, sockets
from unit_tests.kube.server import FakeServer, Reply, Watch, connected, until
from unit_tests.programs import ask, end_by_sigterm, running, taken_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


# gRPC works in threads of its own.
pytestmark = pytest.mark.clock("real")

# The package's `driver` is the command; this is its module.
WIRING = import_module("gpu_scheduler.driver.run")
POOLS = "/apis/resource.k8s.io/v1/resourceslices"
GPUNODES = "/apis/agentaflow.io/v1/gpunodes"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a"
LISTED = {
    "metadata": {
        "name": NODE,
        "uid": "uid-node",
        "resourceVersion": "5",
        "annotations": objects.inventory(objects.device(0), objects.device(1)),
    }
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        (made / "kubelet" / "plugins_registry").mkdir(parents=True)
        yield made


def settings(folder: Path, **others: Any) -> DriverSettings:
    given = {
        "node_name": NODE,
        "bind_address": "127.0.0.1",
        "http_port": free_port(),
        "driver_source": "simulated",
        "kubelet_dir": folder / "kubelet",
        "cdi_dir": folder / "cdi",
    }
    return DriverSettings(**{**given, **others})


def script(server: FakeServer) -> None:
    """Script an API server that has the node, no cordons, and a claim of device 1."""
    nothing = {"metadata": {"resourceVersion": "7"}, "items": []}
    server.on("GET", "/api/v1/nodes", Reply(body={**nothing, "items": [LISTED]}))
    server.on("WATCH", "/api/v1/nodes", Watch())
    server.on("GET", GPUNODES, Reply(404))
    server.on("GET", POOLS, Reply(body=nothing))
    server.on("WATCH", POOLS, Watch())
    ((name, spec),) = specs_of(NODE, (own(0), own(1)), 1).items()
    stored = slice_object(name, NODE, "uid-node", spec)
    stored["metadata"].update(uid="uid-s", resourceVersion="8")
    server.on("POST", POOLS, Reply(201, stored))
    server.on("GET", CLAIM, Reply(body=claim("a", result(1))))


async def register(folder: Path) -> None:
    name = f"{api.REGISTRATION}/NotifyRegistrationStatus"
    registration = folder / "kubelet" / "plugins_registry" / "gpu.agentaflow.io-reg.sock"
    await until(registration.exists)
    asked = api.RegistrationStatus(plugin_registered=True)
    await call(registration, name, asked, api.RegistrationStatusResponse)


@asynccontextmanager
async def driving(given: DriverSettings) -> AsyncIterator[tuple[FakeServer, DriverProcess, str]]:
    """Run a driver; yield its API server, the driver and its URL."""
    async with connected() as (server, client):
        script(server)
        driver = DriverProcess(given, client, open_checkpoint(plugin_dir(given.kubelet_dir)))
        async with running(driver.serve):
            yield server, driver, f"http://127.0.0.1:{given.http_port}"


WATCHED = ["cordons", "node", "resourceslices"]
DRIVING = (
    'gpu_scheduler_driver_registered{node="node1"} 1.0',
    'gpu_scheduler_driver_current{node="node1"} 1.0',
    'gpu_scheduler_driver_prepared_claims{node="node1"} 1.0',
    'gpu_scheduler_driver_claims_total{node="node1",operation="prepare",outcome="done"} 1.0',
    'gpu_scheduler_driver_claims_total{node="node1",operation="prepare",outcome="claim"} 1.0',
    'gpu_scheduler_driver_claims_total{node="node1",operation="prepare",outcome="held"} 0.0',
    'gpu_scheduler_driver_claims_total{node="node1",operation="unprepare",outcome="done"} 0.0',
)


@pytest.mark.promise("isolate-17")
async def test_a_node_is_published_and_its_claims_are_prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the own node is watched. The driver is ready when it is registered and the devices are published."""
    # The metrics are read twice.
    monkeypatch.setattr(http_server, "PAUSE", 0)
    async with driving(settings(folder)) as (server, driver, url):
        await until(lambda: driver.publisher.problem is None)
        status, text = await ask(f"{url}/readyz")
        assert (status, f"kubelet failed: {text_of('driver: not registered')}" in text) == (503, True)
        assert 'gpu_scheduler_driver_registered{node="node1"} 0.0' in (await ask(f"{url}/metrics"))[1]
        await register(folder)
        assert await ask(f"{url}/readyz") == (200, "ok")
        assert (await ask(f"{url}/healthz"))[0] == 200
        for path, selector in (
            ("/api/v1/nodes", "metadata.name=node1"),
            (GPUNODES, "metadata.name=node1"),
            (POOLS, "spec.nodeName=node1"),
        ):
            assert server.asked("GET", path)[0].query["fieldSelector"] == selector
        named = {"namespace": "default", "name": "a", "uid": "uid-a"}
        asked = api.PrepareRequest(claims=[named, {**named, "uid": "uid-b"}])
        found = await call(driver.plugin.socket, f"{api.PLUGIN}/NodePrepareResources", asked, api.PrepareResponse)
        assert list(found.claims["uid-a"].devices[0].cdi_device_ids) == [f"agentaflow.io/gpu={objects.gpu(1)}"]
        await until(lambda: not driver.publisher.due)
        progress = json.loads((await ask(f"{url}/progress"))[1])
        assert (sorted(progress["versions"]), progress["due"]) == (WATCHED, {"publications": 0})
        metrics = (await ask(f"{url}/metrics"))[1]
        assert set(DRIVING) <= set(metrics.splitlines())


async def test_a_stuck_loop_is_not_alive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a restart helps then."""
    monkeypatch.setattr(WIRING, "STUCK", -1.0)
    async with driving(settings(folder)) as (_, driver, url):
        await until(lambda: driver.publisher.problem is None)
        status, text = await ask(f"{url}/livez")

    assert (status, "the loop has not run for " in text) == (503, True)


async def test_the_settings_choose_who_describes_devices(folder: Path) -> None:
    """NVIDIA's toolkit is the default."""
    async with connected() as (_, client):
        checkpoint = open_checkpoint(folder)
        sources = [
            DriverProcess(settings(folder, driver_source=source), client, checkpoint)._cdi()
            for source in ("nvidia", "simulated")
        ]

    assert list(map(type, sources)) == [NvidiaCdi, SimulatedCdi]


@asynccontextmanager
async def commanded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    """Let the command connect to a scripted API server."""
    async with connected() as (server, client):
        script(server)
        monkeypatch.setattr(WIRING, "connect", AsyncMock(return_value=client))
        yield server


async def test_a_signal_ends_the_driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sockets go, so that the kubelet notices. What it published stays."""
    async with commanded(monkeypatch) as server:
        await end_by_sigterm(run_driver(settings(folder), None, None), lambda: server.asked("POST", POOLS))

        assert {each.method for each in server.requests} == {"GET", "WATCH", "POST"}
    assert sockets(folder) == []


async def test_a_taken_port_is_bad_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable to change."""
    async with connected() as (server, client):
        script(server)
        with taken_port(monkeypatch, WIRING, client) as port:
            await run_driver(settings(folder, http_port=port), None, None)


OWN_DIR = "kubelet/plugins/gpu.agentaflow.io"


def write_checkpoint(folder: Path) -> None:
    (folder / OWN_DIR).mkdir(parents=True)
    (folder / OWN_DIR / "prepared.json").write_text("{}")


HOSTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "the directory is not the kubelet's": (
        lambda folder: (folder / "kubelet" / "plugins_registry").rmdir(),
        r"^cannot open socket .*/plugins_registry/.*KUBELET_DIR",
    ),
    "the checkpoint has another format": (
        write_checkpoint,
        r"^cannot read .*/prepared\.json, which says what devices containers have",
    ),
    "another driver runs": (
        lambda folder: open_checkpoint(folder / OWN_DIR),
        r"^cannot use .*: another driver ",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), HOSTS.values(), ids=HOSTS)
async def test_what_is_wrong_on_the_host_is_bad_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], sentence: str
) -> None:
    """Each fault is one sentence. Nothing is published."""
    change(folder)
    async with commanded(monkeypatch) as server:
        with pytest.raises(UsageError, match=sentence):
            await run_driver(settings(folder), None, None)
        assert server.requests == []
