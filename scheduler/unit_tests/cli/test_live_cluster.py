"""Everything that the scheduler watches, listed once with the caller's rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.live_cluster import dry_run_of, read_live_cluster
from gpu_scheduler.cli.options import FailedError
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.scheduler.ports import InputKind
from tests.objects import reading
from unit_tests.cli.scripted_cluster import cluster, deployment, device, items, lease, limits, node, pod, settings
from unit_tests.cli.stored import CLAIMS, CLASSES, FORBIDDEN, VOLUMES, with_storage
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = "spec.schedulerName!=gpu-scheduler,spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
FOREIGN = {"metadata": {"namespace": "kube-system", "name": "dns", "uid": "u"}, "spec": {"nodeName": "node1"}}


async def test_every_input_of_a_scheduler_is_listed(tmp_path: Path) -> None:
    """In the order in which it may apply them: our pods last. A node says whether its monitor is silent."""
    replies = {
        "nodes": items(node("node1", device(0)), node("node2")),
        "monitors": items(lease("node1", age=60)),
        "settings": settings("best_fit"),
        "limits": limits("ml: devices=1"),
    }
    async with cluster(tmp_path, **replies) as (server, options):
        with_storage(server)
        server.on("GET", "/api/v1/pods?fieldSelector=spec.schedulerName=gpu-scheduler", items(pod("a-0"), pod("a-1")))
        server.on("GET", f"/api/v1/pods?fieldSelector={OTHERS}", items(FOREIGN))
        async with reached(options) as api:
            live = await read_live_cluster(api, options.system_namespace)

    assert [kind for kind, _ in live.inputs] == [
        InputKind.NODE,
        InputKind.NODE,
        InputKind.LIMITS,
        InputKind.FOREIGN_POD,
        InputKind.STRATEGY,
        InputKind.CLAIM,
        InputKind.VOLUME,
        InputKind.STORAGE_CLASS,
        InputKind.POD,
        InputKind.POD,
    ]
    assert [value.stale for kind, value in live.inputs if kind is InputKind.NODE] == [True, False]
    assert (list(live.silent), list(live.nodes), live.unread) == (["node1"], ["node1", "node2"], ())
    dry_run = live.dry_run()
    assert dry_run.cluster.strategy is Strategy.BEST_FIT
    assert dry_run.cluster.limits.of("ml").devices == 1
    assert [each.ref.name for each in dry_run.pending()] == ["a-0", "a-1"]


ROOM = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110"}, "capacity": {}}


async def test_each_dry_run_begins_anew(tmp_path: Path) -> None:
    """None changes the inputs, which a caller may change itself: here the holder of both GPUs is left out."""
    asking = pod("c-0", count="1")
    asking["spec"]["containers"][0]["env"] = reading()
    replies = {
        "nodes": items(node("node1", device(0), device(1), status=ROOM)),
        "pods": items(pod("a-0", "node1", "0,1"), asking),
        "deployment": deployment(GPU_SHARING="none"),
    }
    async with cluster(tmp_path, **replies) as (server, options):
        with_storage(server)
        async with reached(options) as api:
            live = await read_live_cluster(api, options.system_namespace)

    without_holder = [(kind, value) for kind, value in live.inputs if kind is not InputKind.POD or not value.bound]
    for _ in range(2):
        assert isinstance(live.dry_run().decide("uid-c-0"), Wait)
        assert isinstance(dry_run_of(live.installation, without_holder).decide("uid-c-0"), Bind)
    assert live.dry_run().cluster.policy.sharing == "none"


async def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    """Storage, Leases and settings may be forbidden; each missing right is a sentence."""
    denied = dict.fromkeys(("deployment", "settings", "limits", "monitors"), FORBIDDEN)
    async with cluster(tmp_path, **denied) as (server, options):
        for path in (CLAIMS, VOLUMES, CLASSES):
            server.on("GET", path, FORBIDDEN)
        async with reached(options) as api:
            live = await read_live_cluster(api, options.system_namespace)

    rights = [sentence.rpartition("can-i ")[2].rstrip(")") for sentence in live.unread]
    assert rights == [
        "get deployments/gpu-scheduler -n gpu-scheduler-system",
        "get configmaps/gpu-scheduler-settings -n gpu-scheduler-system",
        "get configmaps/gpu-scheduler-limits -n gpu-scheduler-system",
        "list leases -n gpu-scheduler-monitor",
        "list persistentvolumeclaims -A",
        "list persistentvolumes -A",
        "list storageclasses.storage.k8s.io -A",
    ]
    assert [kind for kind, _ in live.inputs] == [InputKind.LIMITS]


@pytest.mark.parametrize("path", ["nodes", "pods"])
async def test_without_nodes_or_pods_there_is_no_answer(path: str, tmp_path: Path) -> None:
    """The error names the list."""
    async with cluster(tmp_path, **{path: FORBIDDEN}) as (server, options):
        with_storage(server)
        with pytest.raises(FailedError, match=f"^cannot list {path}"):
            async with reached(options) as api:
                await read_live_cluster(api, options.system_namespace)


async def test_other_errors_of_a_list_are_errors(tmp_path: Path) -> None:
    """Only a missing right is reported beside an answer."""
    async with cluster(tmp_path) as (server, options):
        for path in (CLAIMS, VOLUMES):
            server.on("GET", path, items())
        server.on("GET", CLASSES, Reply(500, {"message": "etcd is slow"}))
        with pytest.raises(FailedError, match=r"^cannot list storageclasses\.storage\.k8s\.io: .*etcd is slow"):
            async with reached(options) as api:
                await read_live_cluster(api, options.system_namespace)
