import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.show import health, nodes, status, workloads
from tests.messages import text_of
from unit_tests.cli.scripted_cluster import (
    MISSING,
    Capsys,
    cluster,
    deployment,
    device,
    items,
    lease,
    limits,
    node,
    pod,
    settings,
)
from unit_tests.kube.server import Reply

Facts = dict[str, Any]
FORBIDDEN = Reply(403, {"message": 'User "jane" cannot list resource "nodes"'})
HELD = "GpuHeld: GPU 1 of node1 is held by ml/a-0; wait"
SILENT = text_of("a monitor is silent since")
UNEXPLAINED = text_of("a GPU is unhealthy without a reason", health="unhealthy")
TWO = items(node("node1", device(0), device(1)), node("node2"))


def as_json(options: Options) -> Options:
    return replace(options, output=Output.JSON)


def printed_items(capsys: Capsys) -> list[Facts]:
    """Return the items of the printed JSON, without log lines before it."""
    printed = capsys.readouterr().out
    found: list[Facts] = json.loads(printed[printed.index("{\n") :])["items"]
    return found


async def test_status_is_one_screen(tmp_path: Path, capsys: Capsys) -> None:
    """It shows the GPUs and how many are held, the leader, and the reason of each pending pod."""
    waiting = [pod("a-1", message=HELD), pod("a-2")]
    pods = items(pod("a-0", "node1", "0,1"), *waiting)
    async with cluster(tmp_path, nodes=TWO, pods=pods, settings=settings("best_fit")) as (server, options):
        address = server.url
        assert await status(options) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"Cluster     test ({address})",
        "Leader      gpu-scheduler-0_1",
        "Strategy    best_fit (ConfigMap gpu-scheduler-settings)",
        "GPUs        2 known, 2 held, 0 free",
        "Nodes       2, 2 ready, 1 with GPUs",
        "Workloads   2 pending, 1 running",
        "",
        "NODE    0        1",
        "node1   ml/a-0   ml/a-0",
        "",
        "NAMESPACE   NAME   REASON    SINCE   MESSAGE",
        "ml          a-1    GpuHeld   -       GPU 1 of node1 is held by ml/a-0; wait",
        "ml          a-2    -         -       not tried yet",
    ]


async def test_status_as_data(tmp_path: Path, capsys: Capsys) -> None:
    """The same data, for programs."""
    listed = items(node("node1", device(0), device(1, health="unhealthy")))
    pods = items(pod("a-0", "node1", "0"), pod("a-1", message=HELD))
    since = "2026-01-01T00:00:00.000000Z"
    leading = Reply(body=lease("gpu-scheduler", acquireTime=since))
    async with cluster(tmp_path, nodes=listed, pods=pods, lease=leading) as (server, options):
        address = server.url
        assert await status(as_json(options)) == 0

    why = {"reason": "GpuHeld", "message": HELD, "since": None}
    waiting = {"namespace": "ml", "name": "a-1", "observer": False, **why}
    cells = [
        {"device": "0", "state": "held", "holders": ["ml/a-0"]},
        {"device": "1", "state": "unhealthy", "holders": []},
    ]
    assert printed_items(capsys) == [
        {
            "apiVersion": "cli.agentaflow.io/v1",
            "kind": "Status",
            "context": "test",
            "server": address,
            "leader": {"holder": "gpu-scheduler-0_1", "since": since},
            "strategy": {"name": "least_utilized", "source": "default"},
            "gpus": {"total": 2, "held": 1, "available": 0, "unhealthy": 1},
            "nodes": {"total": 1, "ready": 1, "withGpus": 1, "stale": []},
            "workloads": {"pending": 1, "running": 1, "waiting": [waiting]},
            "limits": {"lines": [], "faults": []},
            "conflicts": [],
            "grid": [{"node": "node1", "unnamed": 0, "devices": cells}],
        }
    ]


@pytest.mark.promise("share-8")
async def test_every_listing_marks_an_observer(tmp_path: Path, capsys: Capsys) -> None:
    """An observer sees GPUs and holds none. Readers must not think that its GPUs are held twice."""
    template = {"metadata": {"annotations": {"agentaflow.gpu/observer": "true"}}, "spec": {}}
    workload: Facts = {
        "metadata": {"namespace": "ml", "name": "look"},
        "spec": {"podTemplate": template},
        "status": {"phase": "Running", "node": "node1", "devices": ["1"]},
    }
    observer = pod("o-0", "node1", "0", observer="true", count="1")
    waiting = pod("o-1", message="GpuNotFound: none", observer="true", count="1")
    found = items(pod("a-0", "node1", "0"), observer, waiting)
    replies = {"nodes": TWO, "pods": found, "mine": found, "my_workloads": items(workload)}
    async with cluster(tmp_path, **replies) as (_, options):
        await workloads(options)
        rows = capsys.readouterr().out.splitlines()
        await workloads(replace(options, output=Output.WIDE))
        wide = capsys.readouterr().out.splitlines()
        await workloads(as_json(options))
        data = {each["name"]: each["observer"] for each in printed_items(capsys)}
        await status(options)
        screen = capsys.readouterr().out
        await status(as_json(options))
        (view,) = printed_items(capsys)
        await nodes(replace(options, output=Output.WIDE))
        devices = capsys.readouterr().out

    gpus = rows[0].index("GPUS")
    assert [line[gpus:].split("   ")[0] for line in rows[1:]] == ["1 (observer)", "0", "0 (observer)", "(observer)"]
    assert [line.count("(observer)") for line in wide] == [line.count("(observer)") for line in rows]
    assert data == {"look": True, "a-0": False, "o-0": True, "o-1": True}
    assert "ml          o-1 (observer)   GpuNotFound   -       none" in screen
    assert [each["observer"] for each in view["workloads"]["waiting"]] == [True]
    held_by, seen_by = (devices.splitlines()[0].index(title) for title in ("HELD BY", "OBSERVER"))
    assert [line[held_by:].split()[0] for line in devices.splitlines()[1:]] == ["ml/a-0", "-"]
    assert [line[seen_by:].split()[0] for line in devices.splitlines()[1:]] == ["ml/o-0", "-"]


async def test_status_shows_the_limits(tmp_path: Path, capsys: Capsys) -> None:
    """It shows the GPUs that each namespace with a line holds and may hold, and the line that cannot be read."""
    text = "ml: devices=2 priority=10\n*: devices=4\nlab: devices=unlimited\nodd: devices=x\n"
    pods = items(pod("a-0", "node1", "0,1"))
    async with cluster(tmp_path, nodes=TWO, pods=pods, limits=limits(text)) as (server, options):
        server.on("GET", "/api/v1/namespaces/other", Reply())
        await status(options)
        await status(as_json(options))
        await status(as_json(replace(options, namespace="other")))

    screen, _, rest = capsys.readouterr().out.partition("{\n")
    lines = [line for line in screen.splitlines() if line.startswith("Limits")]
    readable, wrong = lines
    assert readable == (
        "Limits      lab: 0 of any number of GPUs; ml: 2 of 2 GPUs, priority up to 10; "
        "odd: 0 of 0 GPUs, priority up to 0; *: 4 GPUs"
    )
    assert wrong.startswith('Limits      1 wrong: line 4: cannot read "devices=x": ')
    first, second = (json.loads("{" + part) for part in rest.split("\n{"))
    assert first["items"][0]["limits"]["lines"][1] == {"namespace": "ml", "devices": 2, "held": 2, "priority": 10}
    assert second["items"][0]["limits"]["lines"] == [{"namespace": "other", "devices": 4, "held": 0, "priority": None}]


NO_LEADER = {
    "a Lease that was not renewed in time": Reply(body=lease("gpu-scheduler", age=16)),
    "a Lease that was released": Reply(body=lease("gpu-scheduler", holderIdentity="")),
    "no Lease": MISSING,
}


@pytest.mark.promise("cli-2")
@pytest.mark.parametrize("reply", NO_LEADER.values(), ids=NO_LEADER)
async def test_status_fails_without_a_leader(reply: Reply, tmp_path: Path, capsys: Capsys) -> None:
    """Exit code 1, and the screen says so."""
    async with cluster(tmp_path, lease=reply) as (_, options):
        assert await status(options) == 1

    assert "Leader      none: " in capsys.readouterr().out


async def test_status_fails_where_a_gpu_is_held_twice(tmp_path: Path, capsys: Capsys) -> None:
    """Two workloads hold one device, against the rules."""
    pods = items(pod("a-0", "node1", "0"), pod("b-0", "node1", "0", count="1"))
    async with cluster(tmp_path, nodes=TWO, pods=pods) as (_, options):
        assert await status(options) == 1

    assert "GpuConflict   GPU 0 of node1 is held by ml/a-0 and ml/b-0" in capsys.readouterr().out


async def test_the_rules_are_the_schedulers_own(tmp_path: Path, capsys: Capsys) -> None:
    """The CLI reads sharing and strategy from the scheduler's Deployment."""
    pods = items(pod("a-0", "node1", "0"), pod("b-0", "node1", "0", count="1"))
    set_up = deployment(GPU_SHARING="any", SCHEDULING_STRATEGY="round_robin", SCHEDULER_NAME="second")
    async with cluster(tmp_path, nodes=TWO, pods=pods, deployment=set_up) as (server, options):
        assert await status(as_json(options)) == 0

    assert printed_items(capsys)[0]["strategy"] == {"name": "round_robin", "source": "Deployment gpu-scheduler"}
    assert server.asked("GET", "/api/v1/pods")[0].query["fieldSelector"] == "spec.schedulerName=second"


async def test_status_lists_monitors_that_do_not_renew(tmp_path: Path, capsys: Capsys) -> None:
    """Their nodes get no pod by strategy. The status also says for how long the leader has led."""
    leading = Reply(body=lease("gpu-scheduler", acquireTime=(datetime.now(UTC) - timedelta(hours=3)).isoformat()))
    async with cluster(tmp_path, nodes=TWO, lease=leading, monitors=items(lease("node1", age=60))) as (_, options):
        await status(replace(options, output=Output.WIDE))

    lines = capsys.readouterr().out.splitlines()
    assert "Leader      gpu-scheduler-0_1, for 3h" in lines
    assert any(line.startswith("Monitors    silent on node1: ") for line in lines)
    assert "GPUs        2 known, 0 held, 0 free" in lines


async def test_status_counts_the_workloads_of_one_namespace(tmp_path: Path, capsys: Capsys) -> None:
    """GPUs belong to no namespace."""
    async with cluster(tmp_path, nodes=TWO, pods=items(pod("a-0", "node1", "0"))) as (server, options):
        server.on("GET", "/api/v1/namespaces/other", Reply())
        await status(replace(as_json(options), namespace="other"))

    found = printed_items(capsys)[0]
    assert (found["workloads"]["running"], found["gpus"]["held"]) == (0, 1)


async def test_nodes_are_one_row_each(tmp_path: Path, capsys: Capsys) -> None:
    """Numbers in names sort as numbers. The status shows a cordon, and a monitor that does not renew."""
    listed = items(
        node("node10", device(0)),
        node("node2", device(0, utilization=30), device(1), spec={"unschedulable": True}),
        node("node3"),
    )
    expired = items(lease("node10", age=60))
    async with cluster(tmp_path, nodes=listed, monitors=expired, pods=items(pod("a-0", "node3", "7"))) as (_, options):
        assert await nodes(options) == 0

    lines = capsys.readouterr().out.splitlines()
    end = lines[0].index("TAINTS")
    assert [line[:end].rstrip() for line in lines] == [
        "NAME     ALIAS   STATUS           GPUS   HELD   FREE   MODEL       MEMORY     UTIL   HEALTH    TIER",
        "node2    -       Ready,cordoned   2      0      0      NVIDIA L4   1.0/48Gi   20%    healthy   low",
        "node3    -       Ready            -      1      0      -           -          -      -         low",
        "node10   -       Ready,stale      1      0      0      NVIDIA L4   0.5/24Gi   10%    healthy   low",
    ]
    assert lines[1].endswith(" (kubectl uncordon node2)")
    assert f" {SILENT} " in lines[3]


async def test_nodes_say_why_they_are_not_free(tmp_path: Path, capsys: Capsys) -> None:
    """Taints stand beside: they keep only pods away that do not tolerate them."""
    taints = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}, {"key": "old", "effect": "NoExecute"}]
    sick = node("node1", device(0, health="unhealthy"), device(1), spec={"taints": taints})
    down = node("node2", device(0), status={"conditions": [{"type": "Ready", "status": "False"}]})
    listed = items(sick, down, node("node3"), node("node4", device(0)))
    async with cluster(tmp_path, nodes=listed, pods=items(pod("a-0", "node4", "0"))) as (_, options):
        await nodes(as_json(options))

    shown = {each["name"]: each for each in printed_items(capsys)}
    assert {name: each["why"] for name, each in shown.items()} == {
        "node1": f"GPU 0 is unhealthy: {UNEXPLAINED}",
        "node2": "it is not Ready",
        "node3": text_of("nodes: no inventory"),
        "node4": text_of("nodes: nothing is free"),
    }
    assert shown["node1"]["taints"] == [{"value": None, **each} for each in taints]


@pytest.mark.promise("cli-10")
async def test_names_choose_nodes(tmp_path: Path, capsys: Capsys) -> None:
    """By name, by alias, and as -o name prints them. An unknown name is an error, and the others are shown."""
    small = node("node3", device(0))
    small["metadata"]["labels"]["gpu-node-name"] = "small"
    async with cluster(tmp_path, nodes=items(node("node1", device(0)), node("node2"), small)) as (_, options):
        named = replace(options, output=Output.NAME)
        assert await nodes(named, ["small", "node/node1"]) == 0
        assert capsys.readouterr().out.split() == ["node/node1", "node/node3"]
        assert await nodes(named, ["node2", "node9"]) == 1
        found = capsys.readouterr()
        assert await health(replace(options, no_headers=True), ["node1"]) == 0

    assert found.out.split() == ["node/node2"]
    assert found.err.startswith('cannot find "node9": ')
    assert found.err.endswith("(example: gpu-scheduler nodes)\n")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["node1"]


@pytest.mark.promise("cli-10")
async def test_the_api_server_selects(tmp_path: Path, capsys: Capsys) -> None:
    """Labels and fields of nodes, pods and GPUWorkloads are the API server's to compare."""
    mine, theirs = "/api/v1/namespaces/ml/pods", "/apis/agentaflow.io/v1/namespaces/ml/gpuworkloads"
    refused = Reply(400, {"message": "field label not supported: status.phase"})
    async with cluster(tmp_path, nodes=TWO, mine=items(pod("a-0")), my_workloads=refused) as (server, options):
        chosen = replace(options, selector="app=train", field_selector="status.phase=Running")
        await nodes(chosen)
        await workloads(replace(chosen, output=Output.NAME))
        with pytest.raises(RefusedInputError, match=r'^cannot list "a-0" by name'):
            await workloads(chosen, ["a-0"])

    query = {"labelSelector": "app=train", "fieldSelector": "status.phase=Running", "limit": "50"}
    assert [each.query for each in server.asked("GET", "/api/v1/nodes")] == [query]
    assert [each.query for each in server.asked("GET", theirs)] == [query]
    (asked,) = server.asked("GET", mine)
    assert asked.query["fieldSelector"] == "spec.schedulerName=gpu-scheduler,status.phase=Running"
    printed = capsys.readouterr()
    assert "pod/a-0" in printed.out
    assert printed.err.startswith("Warning: GPUWorkloads ")
    assert ": HTTP 400: field label not supported" in printed.err


async def test_a_wrong_selector_is_refused(tmp_path: Path) -> None:
    """With the API server's message."""
    async with cluster(tmp_path, nodes=Reply(400, {"message": "unable to parse requirement"})) as (_, options):
        with pytest.raises(RefusedInputError, match=r"^cannot list nodes: HTTP 400: .*; correct the selector \(exa"):
            await nodes(replace(options, selector="a=b=c"))


@pytest.mark.promise("cli-10")
async def test_an_unknown_namespace_is_an_error(tmp_path: Path) -> None:
    """An empty list would look like an idle namespace."""
    async with cluster(tmp_path) as (server, options):
        for space in ("ml", "mll"):
            server.on("GET", f"/api/v1/namespaces/{space}", Reply(404, {"message": "not found"}))
        for verb in (workloads(options), status(replace(options, namespace="mll"))):
            with pytest.raises(FailedError, match=r'^cannot list workloads of namespace "mll?": '):
                await verb


async def test_sorting_and_expressions(tmp_path: Path, capsys: Capsys) -> None:
    """Rows, names and data come in the same order."""
    listed = items(node("node1", device(0), device(1)), node("node2", device(0)), node("node3"))
    async with cluster(tmp_path, nodes=listed) as (_, options):
        by_gpus = replace(options, sort_by=".gpus.total")
        await nodes(replace(by_gpus, output=Output.NAME))
        await nodes(replace(by_gpus, output=Output.WIDE, no_headers=True))
        await nodes(replace(by_gpus, output=Output.JSONPATH, expression="{.items[*].name}"))
        await nodes(replace(by_gpus, output=Output.CUSTOM_COLUMNS, expression="N:.name,A:.alias,K:.kind"))
        with pytest.raises(RefusedInputError, match=r'^cannot sort by "\.none": '):
            await nodes(replace(options, sort_by=".none"))

    printed = capsys.readouterr().out
    assert printed.split("\n")[:3] == ["node/node3", "node/node2", "node/node1"]
    assert [line.split()[:2] for line in printed.split("\n")[3:6]] == [["node2", "0"], ["node1", "0"], ["node1", "1"]]
    assert printed.split("\n")[6:10] == [
        "node3 node2 node1N       A        K",
        "node3   <none>   Node",
        "node2   <none>   Node",
        "node1   <none>   Node",
    ]


@pytest.mark.promise("cli-11")
@pytest.mark.parametrize("columns", [80, 100, 200])
async def test_a_terminal_shows_messages_whole(
    columns: int, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its width. The lines fit."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    eight = items(*(node(f"node{number}", *map(device, range(8))) for number in range(1, 4)))
    pods = items(pod("training-run-0", "node1", "0,1,2,3"), pod("training-run-1", message=f"{HELD}, or {HELD}"))
    async with cluster(tmp_path, nodes=eight, pods=pods) as (_, options):
        await status(options)
        await nodes(options)

    printed = capsys.readouterr().out
    wide = [line for line in printed.splitlines() if len(line) > columns]
    assert [line for line in wide if not line.startswith("Cluster")] == []
    _, _, waiting = printed.partition("SINCE")
    message = "".join(line[line.index("   ") :] for line in waiting.splitlines()[:12] if "   " in line)
    assert f"{HELD}, or {HELD}".removeprefix("GpuHeld: ").replace(" ", "") in message.replace(" ", "")


async def test_many_nodes_are_summed_up(tmp_path: Path, capsys: Capsys) -> None:
    """The grid shows those of which some devices are held or cannot be used; -o wide shows all."""
    listed = [node(f"n{number}", device(0), device(1)) for number in range(30)]
    listed[3]["spec"] = {"unschedulable": True}
    pods = [pod("a-0", "n0", "0"), pod("b-0", "n1", "0,1")]
    async with cluster(tmp_path, nodes=items(*listed), pods=items(*pods)) as (_, options):
        await status(options)
        short = capsys.readouterr().out.splitlines()
        await status(replace(options, output=Output.WIDE))
        whole = capsys.readouterr().out.splitlines()

    start = next(at for at, line in enumerate(short) if line.startswith("NODE"))
    assert short[start:] == [
        "NODE   0          1",
        "n0     ml/a-0     free",
        "n3     cordoned   cordoned",
        "Not shown: 27 nodes with all GPUs free, 1 node with all GPUs held; -o wide shows all",
    ]
    assert sum(line.startswith("n") for line in whole) == 30


async def test_the_grid_has_a_word_for_each_state(tmp_path: Path, capsys: Capsys) -> None:
    """Without colours. A device that no inventory knows, and devices of a device plugin, have a column of their own."""
    plugin = {"nvidia.com/gpu": "1"}
    plugged = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": plugin, "capacity": plugin}
    down = node("n1", device(0), status={"conditions": []})
    late = node("n3", device(0))
    sick = node("n2", device(0), device(1, health="unhealthy"))
    listed = items(down, sick, late, node("n4", status=plugged), node("n5", device(0)))
    pods = items(pod("a-0", "n2", "0"), pod("b-0", "n5", "GPU-00000000-0000-4000-8000-00000000000f"))
    foreign_pod = pod("s", "n4")
    foreign_pod["spec"]["containers"][0]["resources"] = {"requests": plugin}
    silent = items(lease("n3", age=60))
    async with cluster(tmp_path, nodes=listed, pods=pods, monitors=silent) as (server, options):
        server.on("GET", "/api/v1/pods", items(foreign_pod))
        await status(options)

    _, _, shown = capsys.readouterr().out.partition("\n\n")
    assert shown.splitlines() == [
        "NODE   0          1           OTHER",
        "n1     NotReady   -           -",
        "n2     ml/a-0     unhealthy   -",
        "n3     stale      -           -",
        "n4     plugin     -           1 by a device plugin",
        "n5     ml/b-0     -           GPU-00000000-0000-4000-8000-00000000000f: ml/b-0",
    ]


async def test_a_count_beside_a_map_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """The map decides."""
    both = pod("a-0", "node1", "0")
    both["metadata"]["annotations"]["agentaflow.gpu/count"] = "2"
    async with cluster(tmp_path, mine=items(both, pod("a-1", message=HELD))) as (_, options):
        await workloads(replace(options, output=Output.WIDE))

    lines = capsys.readouterr().out.splitlines()
    why = lines[0].index("WHY")
    assert lines[1][why:].startswith("annotation agentaflow.gpu/count is ignored: the pod has a map")
    assert lines[2][why:] == HELD


@pytest.mark.promise("cli-7", "cli-1")
async def test_workloads_of_the_contexts_namespace(tmp_path: Path, capsys: Capsys) -> None:
    """Pods that a map places and pods that a strategy places, finished ones too."""
    done, leaving, gated = pod("c-0", "node1", "0"), pod("d-0", "node1", "1"), pod("e-0")
    done["status"]["phase"] = "Succeeded"
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gates are there"}
    gated["status"]["conditions"] = [gate]
    mine = items(
        pod("b-0", count="2", priority="7", message="NotEnoughGpus: cannot find 2 GPUs; wait"), done, leaving, gated
    )
    async with cluster(tmp_path, mine=mine, settings=settings("priority")) as (_, options):
        assert await workloads(options) == 0

    rows = [line.rsplit(maxsplit=1)[0].rstrip() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        "NAME   KIND   PHASE         NODE    GPUS   STRATEGY   PRIORITY   REASON",
        "b-0    Pod    Pending       -       -      priority   7          NotEnoughGpus",
        "c-0    Pod    Succeeded     node1   0      map        -          -",
        "d-0    Pod    Terminating   node1   1      map        -          -",
        "e-0    Pod    Pending       -       -      map        -          SchedulingGated",
    ]


async def test_workloads_of_all_namespaces_and_kinds(tmp_path: Path, capsys: Capsys) -> None:
    """It lists GPUWorkloads if the cluster has the kind, and adds a column for the namespace."""
    workload: Facts = {
        "metadata": {"namespace": "ml", "name": "train", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": 3, "schedulingStrategy": "best_fit", "podTemplate": {"spec": {}}},
        "status": {"phase": "Running", "node": "node1", "devices": ["0", "1"]},
    }
    fresh: Facts = {"metadata": {"namespace": "ml", "name": "zoo"}, "spec": {"podTemplate": {"spec": {}}}}
    made = pod("train-0", "node1", "0,1", count="2")
    made["metadata"]["ownerReferences"] = [{"kind": "GPUWorkload", "name": "train", "uid": "u", "controller": True}]
    async with cluster(tmp_path, pods=items(made), workloads=items(workload, fresh)) as (_, options):
        await workloads(replace(options, all_namespaces=True, output=Output.WIDE))
        printed = capsys.readouterr().out
        await workloads(replace(options, all_namespaces=True, output=Output.NAME))
        names = capsys.readouterr().out

    assert [line.split()[:8] for line in printed.splitlines()] == [
        ["NAMESPACE", "NAME", "KIND", "PHASE", "NODE", "GPUS", "STRATEGY", "PRIORITY"],
        ["ml", "train", "GPUWorkload", "Running", "node1", "0,1", "best_fit", "3"],
        ["ml", "zoo", "GPUWorkload", "Pending", "-", "-", "least_utilized", "0"],
        ["ml", "train-0", "Pod", "Running", "node1", "0,1", "least_utilized", "0"],
    ]
    assert printed.splitlines()[-1].split()[-2] == "train"
    assert names.split() == ["gpuworkload.agentaflow.io/train", "gpuworkload.agentaflow.io/zoo", "pod/train-0"]


async def test_an_empty_listing_is_reported_on_standard_error(tmp_path: Path, capsys: Capsys) -> None:
    """As kubectl does."""
    async with cluster(tmp_path) as (server, options):
        server.on("GET", "/api/v1/namespaces/ml", Reply(403, {"message": "forbidden"}))
        assert await workloads(options) == 0
        found = capsys.readouterr()
        await workloads(as_json(options))

    assert (found.out, found.err) == ("", "No workloads found in ml\n")
    assert json.loads(capsys.readouterr().out)["items"] == []


HEALTH = {
    "all is well": (items(node("node1", device(0), device(1))), items(), 0),
    "one device is unhealthy": (items(node("node1", device(0), device(1, health="unhealthy"))), items(), 1),
    "one device is degraded": (items(node("node1", device(0, health="degraded"))), items(), 1),
    "a monitor does not renew": (items(node("node1", device(0))), items(lease("node1", age=60)), 1),
    "no monitor reads devices": (items(node("node1")), items(), 0),
    "the monitors' Leases may not be listed": (items(node("node1", device(0))), FORBIDDEN, 1),
}


@pytest.mark.promise("cli-2")
@pytest.mark.parametrize(("listed", "monitors", "code"), HEALTH.values(), ids=HEALTH)
async def test_health_is_an_exit_code(listed: Reply, monitors: Reply, code: int, tmp_path: Path) -> None:
    """For scripts that ask whether all is well."""
    async with cluster(tmp_path, nodes=listed, monitors=monitors) as (_, options):
        assert await health(options) == code


async def test_health_says_why(tmp_path: Path, capsys: Capsys) -> None:
    """What the monitor wrote about each device that is not healthy, and since when a monitor is silent."""
    status = (
        "degraded: 3 GPUs, utilization 10 %; GPU 0 is unhealthy: one reason; GPU 2 is degraded: another, a third: 3"
    )
    devices = device(0, health="unhealthy"), device(1), device(2, health="degraded")
    listed = node("node1", *devices)
    listed["metadata"]["annotations"]["agentaflow.gpu/status"] = status
    expired = lease("node2", age=60)
    nodes_listed = items(listed, node("node2", device(0, health="unhealthy"), device(1)))
    async with cluster(tmp_path, nodes=nodes_listed, monitors=items(expired)) as (_, options):
        assert await health(options) == 1
        table = capsys.readouterr().out.splitlines()
        await health(as_json(options))

    silent = f"{SILENT} {expired['spec']['renewTime']}"
    expected = ["one reason", None, "another, a third: 3", f"{UNEXPLAINED}; {silent}", silent]
    assert [each["why"] for each in printed_items(capsys)] == expected
    why = table[0].index("WHY")
    assert [line[why:] for line in table[1:]] == [each or "-" for each in expected]


DENIED = Reply(403, {"message": 'User "jane" cannot get it'})
BY_STRATEGY = items(pod("a-0", "node1", "0", count="1"))
READS: dict[str, Facts] = {
    "status": {"verb": status, "warned": ("Deployment", "ConfigMap gpu-scheduler-settings", "-limits", "Leases")},
    "nodes": {"verb": nodes, "warned": ("Deployment", "Leases")},
    "health": {"verb": health, "warned": ("Deployment", "Leases")},
    "workloads": {"verb": workloads, "warned": ("Deployment", "ConfigMap gpu-scheduler-settings")},
}
# A user with rights on one namespace may use `workloads`; `nodes` shows what it can.
UNREAD_CODES = {"status": 1, "nodes": 0, "health": 1, "workloads": 0}


@pytest.mark.parametrize("name", READS)
async def test_what_may_not_be_read_is_not_shown_as_empty(name: str, tmp_path: Path, capsys: Capsys) -> None:
    """The verb says so on standard error, with the right that is missing. Unknown values are null in its data."""
    verb, warned = READS[name]["verb"], READS[name]["warned"]
    denied = dict.fromkeys(("deployment", "settings", "limits", "monitors"), DENIED)
    replies = {"nodes": TWO, "pods": BY_STRATEGY, "mine": BY_STRATEGY}
    async with cluster(tmp_path, **replies, **denied) as (_, options):
        assert await verb(as_json(options)) == UNREAD_CODES[name]
        printed = capsys.readouterr()
        await verb(options)
        screen = capsys.readouterr().out

    lines = [line for line in printed.err.splitlines() if line.startswith("Warning: ")]
    assert len(lines) == len(warned)
    assert all(
        part in line and " (example: kubectl auth can-i" in line for part, line in zip(warned, lines, strict=True)
    )
    first = json.loads(printed.out)["items"][0]
    if name == "status":
        assert (first["strategy"], first["limits"]) == ({"name": None, "source": None}, {"lines": None, "faults": []})
        assert first["nodes"]["stale"] is None
        shown = [line.split() for line in screen.splitlines()]
        assert [each for each in shown if each[1:] == ["unknown"]] == [
            [what, "unknown"] for what in ("Strategy", "Monitors", "Limits")
        ]
    elif name == "workloads":
        assert first["strategy"] is None
    else:
        assert first["stale"] is None


async def test_a_forbidden_list_is_one_sentence(tmp_path: Path) -> None:
    """With the API server's message, and what to do."""
    async with cluster(tmp_path, nodes=FORBIDDEN) as (_, options):
        with pytest.raises(FailedError, match=r'^cannot list nodes: HTTP 403: User "jane" .*; ask for the right'):
            await nodes(options)


async def test_one_object_that_cannot_be_read_costs_only_itself(tmp_path: Path, capsys: Capsys) -> None:
    """The CLI reads all pages, and every readable object of them."""
    pages = (
        Reply(body={"metadata": {"continue": "more"}, "items": [{"metadata": 1}, node("node1", device(0))]}),
        items(node("node2", device(0))),
    )
    async with cluster(tmp_path, nodes=pages[0]) as (server, options):
        server.on("GET", "/api/v1/nodes", pages[1])
        await nodes(as_json(options))

    assert [each["name"] for each in printed_items(capsys)] == ["node1", "node2"]
