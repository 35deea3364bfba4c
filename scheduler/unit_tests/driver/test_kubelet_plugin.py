"""The two gRPC services, called over their sockets as the kubelet calls them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from gpu_scheduler.driver import kubelet_api as api
from gpu_scheduler.driver.kubelet_plugin import KubeletPlugin, SocketError
from gpu_scheduler.driver.preparing import HandedDevice, PrepareError, PrepareFailure
from tests.messages import text_of
from tests.waiting import limit
from unit_tests.driver.parts import call, short_folder, sockets
from unit_tests.kube.server import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from gpu_scheduler.driver.preparing import ClaimRef

# gRPC works in threads of its own.
pytestmark = pytest.mark.clock("real")

Answer = tuple[str, PrepareFailure | None]
DEVICE = HandedDevice("gpu-1", ("a", "b"), "test/gpu=1")


class FakePreparer:
    """Prepares every claim but `held`, and `broken`; `slow` waits for `release`."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.unprepared: list[ClaimRef] = []
        self.waiting = 0

    async def prepare(self, claim: ClaimRef) -> tuple[HandedDevice, ...]:
        if claim.name == "held":
            raise PrepareError(PrepareFailure.HELD, claim, "it is held")
        if claim.name == "broken":
            raise KeyError(claim.name)
        if claim.name == "slow":
            self.waiting += 1
            await self.release.wait()
        return (DEVICE,)

    async def unprepare(self, claim: ClaimRef) -> None:
        if claim.name == "held":
            raise PrepareError(PrepareFailure.CHECKPOINT, claim, "the disk is full")
        self.unprepared.append(claim)


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    with short_folder() as folder:
        (folder / "plugins_registry").mkdir()
        (folder / "plugins" / "gpu.agentaflow.io").mkdir(parents=True)
        yield folder


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[KubeletPlugin, FakePreparer, list[Answer]]]:
    """Yield a plugin that serves, its preparer, and what it reports of each claim."""
    preparer: Any = FakePreparer()
    answers: list[Answer] = []
    async with KubeletPlugin(folder, "node1", preparer, lambda *answer: answers.append(answer)) as plugin:
        yield plugin, preparer, answers


def registration(folder: Path) -> Path:
    """Return the socket that the kubelet looks for."""
    return folder / "plugins_registry" / "gpu.agentaflow.io-reg.sock"


async def notify(folder: Path, **status: Any) -> None:
    asked = api.RegistrationStatus(**status)
    name = "pluginregistration.Registration/NotifyRegistrationStatus"
    await call(registration(folder), name, asked, api.RegistrationStatusResponse)


def claims(*names: str) -> list[dict[str, str]]:
    return [{"namespace": "default", "name": name, "uid": f"uid-{name}"} for name in names]


async def prepare(plugin: KubeletPlugin, *names: str) -> dict[str, Any]:
    asked = api.PrepareRequest(claims=claims(*names))
    name = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    return dict((await call(plugin.socket, name, asked, api.PrepareResponse)).claims)


async def unprepare(plugin: KubeletPlugin, *names: str) -> dict[str, Any]:
    asked = api.UnprepareRequest(claims=claims(*names))
    name = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
    return dict((await call(plugin.socket, name, asked, api.UnprepareResponse)).claims)


async def test_the_kubelet_registers_the_driver(kubelet_dir: Path) -> None:
    """It finds the socket, asks who serves and where, and says whether it accepts that."""
    async with serving(kubelet_dir) as (plugin, _, _):
        asked = "pluginregistration.Registration/GetInfo"
        info = await call(registration(kubelet_dir), asked, api.InfoRequest(), api.PluginInfo)

        assert (info.type, info.name, list(info.supported_versions)) == (
            "DRAPlugin",
            "gpu.agentaflow.io",
            ["v1.DRAPlugin"],
        )
        assert info.endpoint == str(kubelet_dir / "plugins" / "gpu.agentaflow.io" / "dra.sock")
        assert plugin.problem == text_of("driver: not registered")
        await notify(kubelet_dir, plugin_registered=False, error="the version is wrong")
        assert plugin.problem == "the kubelet does not register the driver: the version is wrong"
        await notify(kubelet_dir, plugin_registered=True)
        assert plugin.problem is None


@pytest.mark.promise("isolate-17")
async def test_each_claim_has_its_own_answer(kubelet_dir: Path) -> None:
    """One that fails has a sentence, and the others have their devices."""
    async with serving(kubelet_dir) as (plugin, _, answers):
        found = await prepare(plugin, "train", "held", "broken")

    (device,) = found["uid-train"].devices
    assert (device.pool_name, device.device_name) == ("node1", "gpu-1")
    assert (list(device.request_names), list(device.cdi_device_ids)) == (["a", "b"], ["test/gpu=1"])
    assert {uid: each.error for uid, each in found.items()} == {
        "uid-train": "",
        "uid-held": "cannot prepare claim default/held: it is held",
        "uid-broken": "cannot serve claim default/broken: internal error; see the driver's log",
    }
    assert set(answers) == {("prepare", None), ("prepare", PrepareFailure.HELD), ("prepare", PrepareFailure.INTERNAL)}
    assert len(answers) == 3


@pytest.mark.promise("isolate-17")
async def test_each_unprepared_claim_has_its_own_answer(kubelet_dir: Path) -> None:
    """The kubelet expects an entry for each."""
    async with serving(kubelet_dir) as (plugin, preparer, answers):
        found = await unprepare(plugin, "train", "held")

    assert [claim.name for claim in preparer.unprepared] == ["train"]
    assert {uid: each.error for uid, each in found.items()} == {
        "uid-train": "",
        "uid-held": "cannot prepare claim default/held: the disk is full",
    }
    assert sorted(answers, key=str) == [("unprepare", PrepareFailure.CHECKPOINT), ("unprepare", None)]


async def test_a_request_without_claims_is_answered(kubelet_dir: Path) -> None:
    """By nothing."""
    async with serving(kubelet_dir) as (plugin, _, _):
        assert (await prepare(plugin), await unprepare(plugin)) == ({}, {})


async def test_what_is_not_served_is_refused(kubelet_dir: Path) -> None:
    """A kubelet asks for the health of devices too, and goes on without it. A huge request is not read."""
    asked = api.InfoRequest()
    async with serving(kubelet_dir) as (plugin, _, _):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(plugin.socket, "v1alpha1.DRAResourceHealth/NodeWatchResources", asked, api.PluginInfo)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await prepare(plugin, *(f"a-rather-long-name-{number}" for number in range(5000)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_call_is_finished_at_the_end(kubelet_dir: Path) -> None:
    """The registration socket goes first: the kubelet sends no new call. No socket is left."""
    async with serving(kubelet_dir) as (plugin, preparer, _):
        calling = asyncio.create_task(prepare(plugin, "slow"))
        await until(lambda: preparer.waiting)
        ending = asyncio.create_task(plugin.__aexit__())
        await until(lambda: not registration(kubelet_dir).exists())
        preparer.release.set()

        assert list(await calling) == ["uid-slow"]
        await asyncio.wait_for(ending, limit(5))
    assert sockets(kubelet_dir) == []


async def test_the_socket_of_a_killed_process_is_replaced(kubelet_dir: Path) -> None:
    """The kubelet notices that it is new."""
    registration(kubelet_dir).write_text("")

    async with serving(kubelet_dir):
        await notify(kubelet_dir, plugin_registered=True)


PLACES = {"the kubelet's directory is another one": "absent", "the path is too long": "a" * 100}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_a_socket_that_cannot_be_opened_is_bad_input(kubelet_dir: Path, place: str) -> None:
    """The sentence names the setting."""
    if len(place) > 50:
        (kubelet_dir / place / "plugins" / "gpu.agentaflow.io").mkdir(parents=True)

    with pytest.raises(SocketError, match=r"^cannot open socket /.*\(example: KUBELET_DIR=/var/lib/kubelet\)$"):
        async with serving(kubelet_dir / place):
            pass
