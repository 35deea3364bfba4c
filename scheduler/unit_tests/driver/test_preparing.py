"""Claims are prepared: which devices they have, and that no other claim has them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.driver import preparing
from gpu_scheduler.driver.checkpoint import Checkpoint
from gpu_scheduler.driver.preparing import ClaimRef, HandedDevice, PrepareError, PrepareFailure, Preparer
from tests import objects
from unit_tests.driver.parts import NODE, NamedCdi, claim, inode, listed, name, result
from unit_tests.kube.server import FakeServer, Reply, connected, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.objects import Object

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NOON = "2026-11-21T12:00:00Z"


def ref(name: str, uid: str | None = None) -> ClaimRef:
    return ClaimRef("default", name, uid or f"uid-{name}")


def serve(server: FakeServer, *claims: Object) -> None:
    for each in claims:
        server.on("GET", f"{CLAIMS}/{each['metadata']['name']}", Reply(body=each))


@asynccontextmanager
async def preparing_on(file: Path, *claims: Object, **given: Any) -> AsyncIterator[tuple[FakeServer, Preparer]]:
    """Yield an API server that has these claims, and a preparer of a node with devices 0 to 3."""
    published, cdi = given.get("published", listed(0, 1, 2, 3)), given.get("cdi", NamedCdi())
    async with connected() as (server, api):
        serve(server, *claims)
        yield server, Preparer(api, NODE, lambda: published, cdi, Checkpoint(file), wall=lambda: NOON)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prepared.json"


def handed(index: int, *requests: str) -> HandedDevice:
    return HandedDevice(name(index), requests or ("gpu",), f"test/gpu={index}")


RESULTS: dict[str, tuple[tuple[Object, ...], tuple[HandedDevice, ...]]] = {
    "one device": ((result(1),), (handed(1),)),
    "devices in the order of the allocation": ((result(3, "a"), result(0, "b")), (handed(3, "a"), handed(0, "b"))),
    "one request for two devices": ((result(1), result(2)), (handed(1), handed(2))),
    "a request with alternatives": ((result(1, "gpu/large"),), (handed(1, "gpu"),)),
    "two requests with admin access for one device": (
        (result(1, "a", adminAccess=True), result(1, "b", adminAccess=True)),
        (handed(1, "a", "b"),),
    ),
    "devices of another driver are its own": ((result(1), result(0, driver="example.com")), (handed(1),)),
    "devices of another pool are none of this node": ((result(1), result(0, pool="node2")), (handed(1),)),
}


@pytest.mark.parametrize(("results", "devices"), RESULTS.values(), ids=RESULTS)
async def test_a_claim_has_the_devices_of_its_allocation(
    file: Path, results: tuple[Object, ...], devices: tuple[HandedDevice, ...]
) -> None:
    """Each with its requests and its CDI name. A second call answers the same."""
    async with preparing_on(file, claim("a", *results)) as (_, preparer):
        first = await preparer.prepare(ref("a"))
        written = inode(file)

        assert first == devices
        assert await preparer.prepare(ref("a")) == first
        assert inode(file) == written


NO_DEVICE = "it has no allocated device of driver gpu.agentaflow.io in pool node1"
FAILURES: dict[str, tuple[Object | None, PrepareFailure, str]] = {
    "it does not exist": (None, PrepareFailure.CLAIM, "it cannot be read: HTTP 404: gone"),
    "another claim has its name now": (
        claim("a", result(0), uid="uid-new"),
        PrepareFailure.CLAIM,
        "its uid is uid-new and not uid-a: another claim has its name now; delete the pod",
    ),
    "it is not allocated": (claim("a"), PrepareFailure.CLAIM, NO_DEVICE),
    "its devices are on another node": (claim("a", result(0, pool="node2")), PrepareFailure.CLAIM, NO_DEVICE),
    "it is no claim": ({"metadata": {"name": "a"}, "status": 3}, PrepareFailure.CLAIM, "it cannot be read: Expected "),
    "the node has no such device": (
        claim("a", result(0), result(7)),
        PrepareFailure.DEVICE,
        f"node node1 has no device {name(7)}",
    ),
}
ON_OTHER_NODES: dict[str, tuple[dict[str, Any], PrepareFailure, str]] = {
    "the node's devices are not known yet": (
        {"published": None},
        PrepareFailure.DEVICE,
        "the devices of node node1 are not known yet",
    ),
    "the runtime does not know its device": (
        {"cdi": NamedCdi(1)},
        PrepareFailure.CDI,
        f"no CDI spec names {objects.gpu(1)}",
    ),
}
BOTH = claim("a", result(0), result(1))


@pytest.mark.parametrize(
    ("stored", "given", "failure", "why"),
    [
        *((stored, {}, failure, why) for stored, failure, why in FAILURES.values()),
        *((BOTH, *row) for row in ON_OTHER_NODES.values()),
    ],
    ids=[*FAILURES, *ON_OTHER_NODES],
)
async def test_a_claim_that_cannot_be_prepared_has_its_sentence(
    file: Path, stored: Object | None, given: dict[str, Any], failure: PrepareFailure, why: str
) -> None:
    """The kubelet shows it on the pod. Nothing is prepared then."""
    async with preparing_on(file, **given) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(404, {"message": "gone"}) if stored is None else Reply(body=stored))
        with pytest.raises(PrepareError) as caught:
            await preparer.prepare(ref("a"))

    assert str(caught.value).startswith(f"cannot prepare claim default/a: {why}")
    assert caught.value.failure is failure
    assert inode(file) is None


async def test_a_claim_fails_if_the_api_server_does_not_answer(file: Path) -> None:
    """What was prepared may have changed meanwhile, so it is not answered from the checkpoint."""
    async with preparing_on(file, claim("a", result(0))) as (server, preparer):
        await preparer.prepare(ref("a"))
        await server.stop()
        with pytest.raises(PrepareError, match=r"^cannot prepare claim default/a: it cannot be read: GET /apis/"):
            await preparer.prepare(ref("a"))


HELD = (
    f"cannot prepare claim default/b: claim default/a has GPU 1 ({objects.gpu(1)}) of node node1 "
    f"since {NOON}; delete the pods of one of the two claims"
)
ADMIN: Object = {"adminAccess": True}


async def test_a_long_answer_is_cut(file: Path) -> None:
    """Whatever the API server says, the kubelet gets a sentence that an event may have."""
    async with preparing_on(file) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(403, {"message": "no " * 10_000}))
        with pytest.raises(PrepareError) as caught:
            await preparer.prepare(ref("a"))

    assert len(str(caught.value).encode()) <= 1000


RIVALS: dict[str, tuple[Object, Object, str | None]] = {
    "claims with different devices": (claim("a", result(1)), claim("b", result(2)), None),
    "claims with one device": (claim("a", result(1)), claim("b", result(1)), HELD),
    "claims that overlap": (claim("a", result(0), result(1)), claim("b", result(1), result(2)), HELD),
    "the later claim has admin access": (claim("a", result(1)), claim("b", result(1, **ADMIN)), None),
    "the earlier claim has admin access": (claim("a", result(1, **ADMIN)), claim("b", result(1)), None),
    "both claims have admin access": (claim("a", result(1, **ADMIN)), claim("b", result(1, **ADMIN)), None),
    "the later claim has admin access to another device": (
        claim("a", result(1)),
        claim("b", result(1), result(0, **ADMIN)),
        HELD,
    ),
}


@pytest.mark.parametrize(("first", "second", "refused"), RIVALS.values(), ids=RIVALS)
async def test_a_device_is_prepared_for_one_claim(
    file: Path, first: Object, second: Object, refused: str | None
) -> None:
    """A restart does not change that. When the first claim is unprepared, the second one gets its devices."""
    async with preparing_on(file, first) as (_, preparer):
        await preparer.prepare(ref("a"))
    async with preparing_on(file, second) as (_, preparer):
        if refused is None:
            await preparer.prepare(ref("b"))
            return
        with pytest.raises(PrepareError) as caught:
            await preparer.prepare(ref("b"))
        assert (str(caught.value), caught.value.failure) == (refused, PrepareFailure.HELD)
        await preparer.unprepare(ref("a"))
        assert len(await preparer.prepare(ref("b"))) == len(second["status"]["allocation"]["devices"]["results"])


async def test_of_two_claims_at_once_one_gets_the_device(file: Path) -> None:
    """It is the one for which the API server answers first."""
    answered = asyncio.Event()
    async with preparing_on(file) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(body=claim("a", result(1)), after=answered))
        server.on("GET", f"{CLAIMS}/b", Reply(body=claim("b", result(1))))
        first = asyncio.create_task(preparer.prepare(ref("a")))
        await until(lambda: server.requests)

        assert await preparer.prepare(ref("b")) == (handed(1),)
        answered.set()
        with pytest.raises(PrepareError):
            await first


async def test_a_claim_that_is_allocated_anew_gets_its_new_devices(file: Path) -> None:
    """Its old ones become free, and it is prepared since when it was."""
    async with preparing_on(file) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(body=claim("a", result(1))), Reply(body=claim("a", result(2))))
        serve(server, claim("b", result(1)))
        await preparer.prepare(ref("a"))

        assert await preparer.prepare(ref("a")) == (handed(2),)
        assert await preparer.prepare(ref("b")) == (handed(1),)


async def test_an_unknown_claim_is_unprepared(file: Path) -> None:
    """The kubelet repeats a call whose answer it did not get. Nothing is asked or written."""
    async with preparing_on(file) as (server, preparer):
        await preparer.unprepare(ref("a"))

        assert (server.requests, inode(file)) == ([], None)


async def test_a_full_disk_fails_the_call(file: Path) -> None:
    """A claim that is not in the file is not prepared, and one that is stays prepared."""
    async with preparing_on(file, claim("a", result(1)), claim("b", result(2))) as (_, preparer):
        await preparer.prepare(ref("a"))
        (blocked := file.with_name(f".{file.name}.new")).mkdir()
        for verb, call in (("unprepare", preparer.unprepare(ref("a"))), ("prepare", preparer.prepare(ref("b")))):
            with pytest.raises(PrepareError, match=f"^cannot {verb} claim default/.: cannot write {file}: ") as caught:
                await call
            assert caught.value.failure is PrepareFailure.CHECKPOINT
        blocked.rmdir()

        assert [Checkpoint(file).get(f"uid-{each}") is not None for each in "ab"] == [True, False]


async def test_calls_for_one_claim_wait_for_each_other(file: Path) -> None:
    """Those for other claims do not wait."""
    answered = asyncio.Event()
    async with preparing_on(file) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(body=claim("a", result(1)), after=answered))
        serve(server, claim("b", result(2)))
        order: list[str] = []

        async def call(name: str, act: Any) -> None:
            await act
            order.append(name)

        prepare = asyncio.create_task(call("prepare a", preparer.prepare(ref("a"))))
        await until(lambda: server.requests)
        unprepare = asyncio.create_task(call("unprepare a", preparer.unprepare(ref("a"))))
        await call("prepare b", preparer.prepare(ref("b")))
        answered.set()
        await asyncio.gather(prepare, unprepare)

    assert order == ["prepare b", "prepare a", "unprepare a"]
    assert len(Checkpoint(file)) == 1


async def test_a_call_that_takes_too_long_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet calls again."""
    monkeypatch.setattr(preparing, "CALL_LIMIT", 0.01)
    async with preparing_on(file) as (server, preparer):
        server.on("GET", f"{CLAIMS}/a", Reply(hang=True))
        with pytest.raises(PrepareError, match=r"^cannot prepare claim default/a: it took longer than 0\.01 s$"):
            await preparer.prepare(ref("a"))
