"""The verbs cordon, uncordon and drain: what they are about, what they write, and who uses a device."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.cli.cordoning import eviction, gpu_nodes
from gpu_scheduler.cli.cordoning.drained import users_of
from gpu_scheduler.cli.cordoning.targets import Target, cordons_of, read_reason, read_target, read_until, split
from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError
from gpu_scheduler.cli.verbs.cordon import cordon, drain, uncordon
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES, Cordon, NodeCordons
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from tests import objects
from tests.messages import text_of
from tests.waiting import limit
from unit_tests.cli.scripted_cluster import GPU_NODES, MISSING, Capsys, cluster, device, items, node, pod
from unit_tests.cli.stored import with_storage
from unit_tests.core import build
from unit_tests.core.asking import words
from unit_tests.kube.server import FakeServer, Reply, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gpu_scheduler.cli.options import Options
    from tests.objects import Object

GPU_0, GPU_1 = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1))
MIG = "MIG-a0000000-0000-0000-0000-000000000000"
NAMED = Inventory((Device(0, GPU_0, (MIG,)), Device(1, GPU_1)))
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
USER = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NODE1 = f"{GPU_NODES}/node1"
UUID_0 = "GPU-00000000-0000-4000-8000-000000000000"

TARGETS: dict[str, tuple[str, Target | None]] = {
    "a node": ("node1", Target("node1", ())),
    "a device": ("node1:0", Target("node1", ("0",))),
    "devices, one of them twice": (f"node1:0,{GPU_1},0", Target("node1", ("0", GPU_1))),
    "a MIG device": (f"aks-pool-1:{MIG}", Target("aks-pool-1", (MIG,))),
    "nothing": ("", None),
    "no node": (":0", None),
    "no device": ("node1:", None),
    "an empty device": ("node1:0,", None),
    "a word": ("node1:all", None),
    "a path": ("../secrets:0", None),
}


@pytest.mark.parametrize(("text", "target"), TARGETS.values(), ids=TARGETS)
def test_a_target_is_a_node_or_devices_of_it(text: str, target: Target | None) -> None:
    """As a map names them; `str` gives what can be read again."""
    if target is None:
        with pytest.raises(RefusedInputError, match=r"\(example: gpu-scheduler cordon node1:0\)"):
            read_target(text, "cordon")
        return
    assert read_target(text, "cordon") == target
    assert read_target(str(target), "cordon") == target


ENDS: dict[str, tuple[str, str | None]] = {
    "none": ("", ""),
    "a duration": ("90m", "2026-11-25T13:30:00Z"),
    "a time": ("2026-11-25T14:00:00+01:00", "2026-11-25T13:00:00Z"),
    "a time that is over": ("2026-11-25T12:00:00Z", None),
    "a duration that is over": ("-1s", None),
    "a time without a zone": ("2026-11-26T12:00:00", None),
    "a word": ("tomorrow", None),
    "a duration that is too long": ("99999999999h", None),
}


@pytest.mark.parametrize(("text", "end"), ENDS.values(), ids=ENDS)
def test_an_end_is_a_time_or_a_duration(text: str, end: str | None) -> None:
    """It must be in the future."""
    if end is None:
        with pytest.raises(RefusedInputError, match="cannot use --until"):
            read_until(text, NOW)
        return
    assert read_until(text, NOW) == end


@pytest.mark.parametrize("text", ["", " \n", "x" * 257])
def test_a_reason_says_something(text: str) -> None:
    """And fits into the GPUNode."""
    with pytest.raises(RefusedInputError, match="it must say why, in 1 to 256 characters"):
        read_reason(text)


MADE: dict[str, tuple[tuple[str, ...], Inventory | None, list[tuple[str, int | None]]]] = {
    "the whole node": ((), NAMED, [(ALL_DEVICES, None)]),
    "an index whose UUID is known": (("0",), NAMED, [(GPU_0, 0)]),
    "a UUID": ((GPU_1,), NAMED, [(GPU_1, 1)]),
    "index and UUID of one device": (("1", GPU_1), NAMED, [(GPU_1, 1)]),
    "a MIG device": ((MIG,), NAMED, [(MIG, 0)]),
    "an index on a node that only counts": (("1",), counted(2), [("1", 1)]),
    "a UUID on a node that only counts": ((GPU_1,), counted(2), [(GPU_1, None)]),
    "an index on a node without an inventory": (("7",), None, [("7", 7)]),
    "a UUID on a node without an inventory": ((GPU_1,), None, [(GPU_1, None)]),
}


@pytest.mark.parametrize(("devices", "inventory", "made"), MADE.values(), ids=MADE)
def test_a_cordon_goes_by_uuid_where_that_is_known(
    devices: tuple[str, ...], inventory: Inventory | None, made: list[tuple[str, int | None]]
) -> None:
    """The index is noted beside it."""
    found = cordons_of(Target("node1", devices), build.node(inventory=inventory), Cordon(ALL_DEVICES, reason="x"))

    assert [(each.device, each.index) for each in found] == made
    assert {each.reason for each in found} == {"x"}


def test_a_device_that_the_node_does_not_have_is_refused() -> None:
    """Its devices are named, the first few of many."""
    with pytest.raises(RefusedInputError, match=r'node1 has no GPU "9"; its GPUs are 0, 1, 2, 3, 4, 5, 6, 7, … '):
        cordons_of(Target("node1", ("9",)), build.node(inventory=counted(9)), Cordon(ALL_DEVICES))


SPLIT: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "the node means the cordon of the whole node": ((), [ALL_DEVICES]),
    "a device by index": (("0",), [GPU_0]),
    "a device by UUID": ((GPU_1,), [GPU_1]),
    "two devices": (("0", "1"), [GPU_0, GPU_1]),
}


@pytest.mark.parametrize(("devices", "meant"), SPLIT.values(), ids=SPLIT)
def test_a_device_means_its_own_cordon(devices: tuple[str, ...], meant: list[str]) -> None:
    """That of the whole node stays, and the other way round."""
    cordons = [Cordon(each) for each in (ALL_DEVICES, GPU_0, GPU_1)]

    found, others = split(cordons, Target("node1", devices), NAMED)

    assert [each.device for each in found] == meant
    assert {each.device for each in (*found, *others)} == {ALL_DEVICES, GPU_0, GPU_1}


def test_the_users_of_a_device_are_those_who_hold_or_see_it() -> None:
    """Which devices a device plugin gave is unknown, unless all are meant."""

    def using(name: str, devices: str, **others: Any) -> Any:
        return build.running(name, "node1", None, **{"annotations": words(assigned_devices=devices), **others})

    pods = [
        using("b-holder", "0"),
        using("a-mig", MIG),
        using("c-other", "1"),
        using("d-observer", "0,1", annotations=words(assigned_devices="0,1", observer="true")),
        using("e-finished", "0", phase="Succeeded"),
        build.running("f-elsewhere", "node2", None, annotations=words(assigned_devices="0")),
        using("g-none", ""),
    ]
    limited = using("h-limited", "0", gpu_limits=(("main", 1),))
    known, plugin = build.node(inventory=NAMED), build.node(inventory=counted(2), advertised=2)

    def users(where: Any, device_name: str, *given: Any) -> tuple[list[str], list[str]]:
        found, unknown = users_of(given, where, [Cordon(device_name)])
        return [each.ref.name for each in found], [each.ref.name for each in unknown]

    assert users(known, GPU_0, *pods) == (["a-mig", "b-holder", "d-observer"], [])
    assert users(known, ALL_DEVICES, *pods) == (["a-mig", "b-holder", "c-other", "d-observer"], [])
    assert users(plugin, "1", limited) == ([], ["h-limited"])
    assert users(plugin, ALL_DEVICES, limited) == (["h-limited"], [])


def gpu_node(*entries: Object, generation: int = 1, confirmed: int = 0, version: str = "7") -> Object:
    """Return the GPUNode of node1."""
    condition = {"type": "Cordoned", "status": "True", "observedGeneration": confirmed}
    return {
        "metadata": {"name": "node1", "generation": generation, "resourceVersion": version},
        "spec": {"nodeName": "node1", "cordoned": list(entries)},
        "status": {"conditions": [condition] if confirmed else []},
    }


ENTRY = {"device": "1", "index": 1, "reason": "old", "by": "bob", "since": "2026-11-25T10:00:00Z"}
ME = Reply(201, {"status": {"userInfo": {"username": "alice"}}})


def with_node(server: FakeServer, *gpu_nodes_read: Reply) -> None:
    """Let the cluster have node1 with two devices, and answer reads of its GPUNode one after the other."""
    server.on("GET", "/api/v1/nodes/node1", Reply(body=node("node1", device(0), device(1))))
    server.on("POST", USER, ME)
    server.on("GET", NODE1, *gpu_nodes_read)


async def test_a_first_cordon_makes_the_gpunode(tmp_path: Path, capsys: Capsys) -> None:
    """Without a monitor there is none."""
    async with cluster(tmp_path) as (server, options):
        with_node(server, MISSING, Reply(body=gpu_node(generation=1, confirmed=1)))
        server.on("POST", GPU_NODES, Reply(201, gpu_node(ENTRY, generation=1)))

        assert await cordon(options, "node1:0", reason="fan noise") == 0

    (sent,) = server.asked("POST", GPU_NODES)
    assert sent.body["metadata"] == {"name": "node1"}
    (entry,) = sent.body["spec"]["cordoned"]
    assert {**entry, "since": ""} == {"device": UUID_0, "index": 0, "reason": "fan noise", "by": "alice", "since": ""}
    assert capsys.readouterr().out == f"gpunode.agentaflow.io/node1 cordoned: GPU {UUID_0} (index 0)\n"


async def test_a_cordon_never_overwrites_those_of_others(tmp_path: Path) -> None:
    """The version that was read is part of the write. After a conflict everything is read again."""
    other = {**ENTRY, "device": "2"}
    async with cluster(tmp_path) as (server, options):
        with_node(
            server,
            Reply(body=gpu_node(ENTRY, version="7")),
            Reply(body=gpu_node(ENTRY, other, version="8")),
            Reply(body=gpu_node(generation=2, confirmed=2)),
        )
        server.on("PATCH", NODE1, Reply(409, {"message": "conflict"}), Reply(200, gpu_node(ENTRY, generation=2)))

        assert await cordon(replace(options, output=Output.NAME), "node1", reason="fan noise", until="8h") == 0

    first, second = server.asked("PATCH", NODE1)
    assert [each.body["metadata"]["resourceVersion"] for each in (first, second)] == ["7", "8"]
    assert [each["device"] for each in second.body["spec"]["cordoned"]] == ["1", "2", "*"]


CAN_I = "(example: kubectl auth can-i cordon gpunodes.agentaflow.io)"
REFUSALS: dict[str, tuple[str, list[Reply], tuple[str, ...]]] = {
    "the right is missing": (
        *("PATCH", [Reply(403, {"message": "no\nverb"})]),
        ("node1: HTTP 403: no verb; ", CAN_I),
    ),
    "others keep writing": (
        *("PATCH", [Reply(409, {"message": "conflict"})] * gpu_nodes.TRIES),
        ("cordons of node node1: ",),
    ),
    "the GPUNode may not be read": (
        *("GET", [Reply(403, {"message": "no"})]),
        ("GPUNode node1: HTTP 403: no; ", CAN_I),
    ),
    "nobody knows who asks": ("USER", [Reply(404, {"message": "no"})], (": HTTP 404: no; ",)),
}


@pytest.mark.parametrize(("method", "replies", "said"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_one_sentence(
    tmp_path: Path, method: str, replies: list[Reply], said: tuple[str, ...]
) -> None:
    """It names the remedy."""
    async with cluster(tmp_path) as (server, options):
        server.on("GET", "/api/v1/nodes/node1", Reply(body=node("node1", device(0))))
        server.on("POST", USER, *(replies if method == "USER" else [ME]))
        server.on("GET", NODE1, *(replies if method == "GET" else [Reply(body=gpu_node(ENTRY))]))
        server.on("PATCH", NODE1, *replies)

        with pytest.raises(FailedError) as error:
            await cordon(options, "node1:0", reason="fan noise")

    assert [part for part in said if part not in str(error.value)] == []


async def test_without_the_kind_nothing_can_be_cordoned(tmp_path: Path) -> None:
    """The remedy installs it."""
    async with cluster(tmp_path) as (server, options):
        with_node(server, MISSING)
        server.on("POST", GPU_NODES, MISSING)

        with pytest.raises(FailedError, match="knows no GPUNode: "):
            await cordon(options, "node1:0", reason="fan noise")


async def test_an_alias_means_its_node(tmp_path: Path, capsys: Capsys) -> None:
    """As in a map. What is no node, or several, is refused."""
    async with cluster(tmp_path, nodes=items(node("node1", device(0)))) as (server, options):
        server.on("GET", "/api/v1/nodes/gpu-a", MISSING)
        server.on("GET", NODE1, Reply(body=gpu_node({**ENTRY, "device": UUID_0}, ENTRY, generation=2, confirmed=1)))
        server.on("PATCH", NODE1, Reply(200, gpu_node(ENTRY, generation=3, confirmed=3)))

        assert await uncordon(options, "gpu-a:0") == 0

    (sent,) = server.asked("PATCH", NODE1)
    assert [each["device"] for each in sent.body["spec"]["cordoned"]] == ["1"]
    printed = capsys.readouterr()
    assert printed.out == f"gpunode.agentaflow.io/node1 uncordoned: GPU {UUID_0} (index 1)\n"
    assert printed.err.startswith("Still cordoned on node1: GPU 1 by bob since ")


async def test_the_cordons_of_a_node_that_is_gone_can_be_removed(tmp_path: Path, capsys: Capsys) -> None:
    """They are kept with its GPUNode. Without one, the name is refused."""
    async with cluster(tmp_path) as (server, options):
        server.on("GET", "/api/v1/nodes/node1", MISSING)
        there = Reply(body=gpu_node({**ENTRY, "device": "*"}))
        server.on("GET", NODE1, there, there, MISSING)
        server.on("PATCH", NODE1, Reply(200, gpu_node(generation=2, confirmed=2)))
        assert await uncordon(options, "node1", dry_run="server") == 0
        assert server.asked("PATCH", NODE1)[0].query["dryRun"] == "All"
        for verb in (uncordon, partial(cordon, reason="x"), partial(drain, reason="x")):
            with pytest.raises(RefusedInputError, match='"node1": no node, or more '):
                await verb(options, "node1")

    assert capsys.readouterr().out == "gpunode.agentaflow.io/node1 uncordoned: all GPUs (server dry run)\n"


async def test_a_drain_prints_who_goes_where_and_evicts(tmp_path: Path, capsys: Capsys) -> None:
    """A pod that a budget keeps is tried again, and one that is replaced meanwhile counts as gone."""
    pods = items(pod("train-0", "node1", "0"), pod("train-1", "node1", "1"))
    mine = "/api/v1/namespaces/ml/pods/train-0"
    async with cluster(tmp_path, nodes=items(node("node1", device(0), device(1))), pods=pods) as (server, options):
        cordoned = gpu_node({**ENTRY, "device": UUID_0}, generation=2, confirmed=2)
        with_node(server, Reply(body=cordoned))
        server.on("GET", GPU_NODES, items(cordoned))
        with_storage(server)
        busy = Reply(429, {"message": "budget"}, headers={"Retry-After": "0.01"})
        server.on("POST", f"{mine}/eviction", busy, busy, Reply(201, {}))
        server.on("GET", mine, Reply(body={"metadata": {"uid": "uid-train-0"}}), Reply(body={"metadata": {"uid": "b"}}))

        assert await drain(options, "node1:0", force=True) == 0

    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "NAMESPACE   POD       GPUS   COMES BACK   WHY NOT",
        f"ml          train-0   0      no           {text_of('plan: a pod without a controller')}",
    ]
    assert printed.err.splitlines() == ["ml/train-0 stays for now: budget", "ml/train-0 is gone"]
    (*_, sent) = server.asked("POST", f"{mine}/eviction")
    assert sent.body["deleteOptions"] == {"preconditions": {"uid": "uid-train-0"}}


@asynccontextmanager
async def of_stateful_set(tmp_path: Path, *entries: Object) -> AsyncIterator[tuple[FakeServer, Options]]:
    """Run a cluster with a pod of StatefulSet net on node1:0, and these cordons, which the scheduler has confirmed."""
    given = words(count="1", assigned_devices="0")
    net = objects.pod("net-0", None, annotations=given, **objects.in_stateful_set("net", 0))
    net["metadata"] |= {"namespace": "ml", "uid": "uid-net-0", "creationTimestamp": "2026-01-01T00:00:00Z"}
    net["spec"]["nodeName"], net["status"] = "node1", {"phase": "Running"}
    spec = {"schedulerName": "gpu-scheduler", "containers": [{"name": "main"}]}
    template = {"metadata": {"annotations": words(count="1")}, "spec": spec}
    owner = {"metadata": {"name": "net", "namespace": "ml"}, "spec": {"replicas": 1, "template": template}}
    cordoned = gpu_node(*entries, generation=1, confirmed=1)
    there = {"nodes": items(node("node1", device(0), device(1))), "gpu_nodes": items(cordoned)}
    async with cluster(tmp_path, **there, pods=items(net)) as (server, options):
        with_node(server, Reply(body=cordoned))
        server.on("GET", "/apis/apps/v1/namespaces/ml/statefulsets/net", Reply(body=owner))
        with_storage(server)
        yield server, options


@pytest.mark.promise("cordon-5")
async def test_a_drain_evicts_the_pod_of_a_stateful_set(tmp_path: Path) -> None:
    """Without --force: its controller makes it anew under the same name."""
    mine = "/api/v1/namespaces/ml/pods/net-0"
    async with of_stateful_set(tmp_path, {**ENTRY, "device": UUID_0, "index": 0}) as (server, options):
        server.on("POST", f"{mine}/eviction", Reply(201, {}))
        server.on("GET", mine, MISSING)

        assert await drain(options, "node1:0") == 0

        assert len(server.asked("POST", f"{mine}/eviction")) == 1


async def test_a_drained_pod_does_not_come_back_on_another_cordoned_device(tmp_path: Path, capsys: Capsys) -> None:
    """Cordons of the node that the drain is not about count too, also in a trial."""
    async with of_stateful_set(tmp_path, ENTRY) as (server, options):
        server.on("PATCH", NODE1, Reply(200, gpu_node(ENTRY, generation=2)))

        assert await drain(replace(options, output=Output.JSON), "node1:0", reason="fan", dry_run="server") == 0

    (shown,) = json.loads(capsys.readouterr().out)["items"]
    assert (shown["name"], shown["outcome"], shown["newDevices"]) == ("net-0", "waits", [])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test wait long between two looks."""
    for module, name in ((gpu_nodes, "POLL"), (eviction, "PAUSE"), (eviction, "RETRY")):
        monkeypatch.setattr(module, name, 0.01)


async def test_an_unconfirmed_cordon_is_reported(tmp_path: Path) -> None:
    """It is written; whether binds can still come is unknown."""
    async with cluster(tmp_path) as (server, options):
        with_node(server, Reply(body=gpu_node(ENTRY)))
        server.on("PATCH", NODE1, Reply(200, gpu_node(ENTRY, generation=2)))

        with pytest.raises(FailedError, match=r" within 0\.1 s"):
            await cordon(options, "node1:0", reason="fan noise", at_most="100ms")


SEEN: dict[str, tuple[list[Reply], int]] = {
    "at once": ([Reply(body=gpu_node(ENTRY, generation=2, confirmed=2))], 1),
    "after two looks": (
        [
            Reply(body=gpu_node(ENTRY, generation=2)),
            Reply(body=gpu_node(ENTRY, generation=2, confirmed=1)),
            Reply(body=gpu_node(ENTRY, generation=2, confirmed=2)),
        ],
        3,
    ),
    "with what somebody wrote meanwhile": ([Reply(body=gpu_node(generation=3, confirmed=3))], 1),
    "before what somebody wrote meanwhile": ([Reply(body=gpu_node(generation=3, confirmed=2))], 1),
    "not by a late write about an earlier GPUNode of its name": (
        [
            Reply(body=gpu_node(ENTRY, generation=2, confirmed=5)),
            Reply(body=gpu_node(ENTRY, generation=2, confirmed=2)),
        ],
        2,
    ),
    "not needed, as nothing is cordoned any more": ([MISSING], 1),
}


@pytest.mark.promise("cordon-2")
@pytest.mark.parametrize(("replies", "reads"), SEEN.values(), ids=SEEN)
async def test_a_cordon_is_waited_for_until_its_own_generation_is_confirmed(replies: list[Reply], reads: int) -> None:
    """A confirmation of another generation says nothing about the binds that were under way."""
    async with connected() as (server, api):
        server.on("GET", NODE1, *replies)

        await gpu_nodes.wait_confirmed(api, NodeCordons("node1", (Cordon("0"),), 2, 1), limit(5))

        assert len(server.asked("GET", NODE1)) == reads


@pytest.mark.promise("cordon-2")
@pytest.mark.parametrize("confirmed", [0, 1, 3])
async def test_a_cordon_of_which_another_generation_is_confirmed_is_an_error(confirmed: int) -> None:
    """The command does not end without one, as if no bind could come any more."""
    async with connected() as (server, api):
        server.on("GET", NODE1, Reply(body=gpu_node(ENTRY, generation=2, confirmed=confirmed)))

        with pytest.raises(FailedError, match=text_of("cordon: the scheduler has not answered", node="node1")):
            await gpu_nodes.wait_confirmed(api, NodeCordons("node1", (Cordon("0"),), 2), 0.1)


async def test_nothing_to_do_is_no_error(tmp_path: Path, capsys: Capsys) -> None:
    """Twice is as good as once."""
    async with cluster(tmp_path) as (server, options):
        with_node(server, Reply(body=gpu_node(generation=2, confirmed=2)))
        assert await uncordon(replace(options, output=Output.JSON), "node1:0") == 0
        assert server.asked("PATCH") == []

    printed = capsys.readouterr()
    assert json.loads(printed.out)["items"] == []
    assert printed.err == "Nothing to do: node1:0 is not cordoned\n"
