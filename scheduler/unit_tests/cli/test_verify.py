import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.container_environments import read_state
from gpu_scheduler.cli.options import FailedError, Output
from gpu_scheduler.cli.verbs.verify import verify
from gpu_scheduler.cli.verification import ContainerState, PodDetails
from tests.messages import text_of
from unit_tests.cli.scripted_cluster import Capsys, cluster, device, items, node, pod
from unit_tests.kube.server import Exec, FakeServer, Reply
from unit_tests.kube.test_exec import ERR, OUT, SUCCESS, status

Facts = dict[str, Any]
NODES = items(node("node1", device(0), device(1)))
RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
NO_EXEC = 'pods "a-0" is forbidden: User "jane" cannot create resource "pods/exec"'
FORBIDDEN = Reply(403, {"message": NO_EXEC})
ABSENT = status(status="Failure", message='exec: "cat": executable file not found in $PATH: unknown')


def running(name: str, devices: str, **annotations: str) -> Facts:
    """Return a pod on node1 whose container runs."""
    body = pod(name, "node1", devices, **annotations)
    body["status"]["containerStatuses"] = [{"name": "main", **RUNNING}]
    return body


def sees(devices: str) -> Exec:
    """Return what `cat /proc/1/environ` prints in a container that sees these devices."""
    return Exec((OUT + f"CUDA_VISIBLE_DEVICES={devices}\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0".encode(), SUCCESS))


def answer(server: FakeServer, **replies: Exec | Reply) -> None:
    """Answer the commands in containers of these pods."""
    for name, reply in replies.items():
        server.on("GET", f"/api/v1/namespaces/ml/pods/{name.replace('_', '-')}/exec", reply)


async def test_each_container_has_a_row(tmp_path: Path, capsys: Capsys) -> None:
    """The rows are in the order of names. The pod that waits has none, because it was not asked for by name."""
    found = items(
        running("a-1", "1"), running("a-0", "0,1", observer="true", count="2"), pod("a-2", message="GpuHeld: x")
    )
    async with cluster(tmp_path, nodes=NODES, pods=found, mine=found) as (server, options):
        answer(server, a_0=sees("0,1"), a_1=sees("1"))
        assert await verify(options) == 0
        table = capsys.readouterr().out
        assert await verify(replace(options, output=Output.WIDE)) == 0
        wide = capsys.readouterr().out
        assert await verify(replace(options, output=Output.NAME)) == 0
        names = capsys.readouterr().out

    assert table.splitlines() == [
        "NAME   CONTAINER   NODE    EXPECTED         ACTUAL   VERDICT   WHY",
        "a-0    main        node1   0,1 (observer)   0,1      ok        -",
        "a-1    main        node1   1                1        ok        -",
    ]
    assert wide.splitlines() == [
        "NAME   CONTAINER   NODE    EXPECTED         ACTUAL   VERDICT   HELD   ORDER        FROM      WHY",
        "a-0    main        node1   0,1 (observer)   0,1      ok        none   PCI_BUS_ID   Binding   -",
        "a-1    main        node1   1                1        ok        1      PCI_BUS_ID   map       -",
    ]
    assert names == "pod/a-0/main\npod/a-1/main\n"


@pytest.mark.promise("verify-2")
async def test_one_difference_fails(tmp_path: Path, capsys: Capsys) -> None:
    """The exit code is 1, also if other containers could not be read. What a container has is printable."""
    found = items(running("a-0", "0,1"), running("a-1", "1"))
    async with cluster(tmp_path, nodes=NODES, pods=found, mine=found) as (server, options):
        answer(server, a_0=Exec((ABSENT,)), a_1=sees("0\x1b[2J"))
        assert await verify(options) == 1
        printed = capsys.readouterr()

    assert printed.out.splitlines()[1:] == [
        "a-0    main        node1   0,1        -          unseen    it has no program cat",
        r"a-1    main        node1   1          0\x1b[2J   differs   wrong devices",
    ]
    assert printed.err.startswith("Warning: 1 of 2 ")


LISTED = {
    "its GPU": (Exec((OUT + b"null\nnvidia0\nnvidiactl\n", SUCCESS)), 0, "ok", None),
    "all GPUs of its node": (
        Exec((OUT + b"nvidia0\nnvidia1\n", SUCCESS)),
        1,
        "differs",
        text_of("verify: device files", files="2 GPUs", held=1),
    ),
    "no program": (
        Exec((status(status="Failure", message='exec: "ls": executable file not found in $PATH: unknown'),)),
        3,
        "unseen",
        "its device files: it has no program ls",
    ),
}


@pytest.mark.promise("isolate-12")
@pytest.mark.parametrize(("files", "code", "verdict", "why"), LISTED.values(), ids=LISTED)
async def test_a_pod_with_claims_has_its_device_files_alone(  # noqa: PLR0913, PLR0917 - the columns of the table
    tmp_path: Path, capsys: Capsys, files: Exec, code: int, verdict: str, why: str | None
) -> None:
    """They are listed by a second command, which containers of other pods are not asked."""
    uuid = device(0)["uuid"]
    isolated = running("a-0", str(uuid), count="1")
    isolated["spec"]["resourceClaims"] = [{"name": "gpu-scheduler-0", "resourceClaimName": "gpu-scheduler-1"}]
    found = items(isolated, running("b-0", "1", count="1"))
    async with cluster(tmp_path, nodes=NODES, pods=found, mine=found) as (server, options):
        server.on("GET", "/api/v1/namespaces/ml/pods/a-0/exec", sees(str(uuid)), files)
        answer(server, b_0=sees("1"))
        assert await verify(replace(options, output=Output.JSON)) == code

    first, second = json.loads(capsys.readouterr().out)["items"]
    assert (first["verdict"], first["why"]) == (verdict, why)
    assert (second["verdict"], second["actual"]["deviceFiles"]) == ("ok", None)


@pytest.mark.promise("verify-3")
async def test_what_cannot_be_read_is_no_success(tmp_path: Path, capsys: Capsys) -> None:
    """The exit code is 3. The missing right is named once, with the command that checks it."""
    found = items(running("a-0", "0,1"), running("a-1", "1"), running("b-0", "", count="1"))
    async with cluster(tmp_path, nodes=NODES, pods=found, mine=found) as (server, options):
        answer(
            server, a_0=FORBIDDEN, a_1=FORBIDDEN, b_0=Exec((ERR + b"cat: denied", status(message="it ended with 1")))
        )
        assert await verify(replace(options, output=Output.JSON)) == 3
        printed = capsys.readouterr()

    views = json.loads(printed.out)["items"]
    assert [(view["verdict"], view["why"], view["actual"]) for view in views] == [
        ("unseen", text_of("verify: no right to exec"), None),
        ("unseen", text_of("verify: no right to exec"), None),
        ("unseen", text_of("verify: exec fails", why="it ended with 1: cat: denied"), None),
    ]
    right, count = printed.err.splitlines()
    assert right.startswith("Warning: ")
    assert f" namespace ml: HTTP 403: {NO_EXEC}; " in right
    assert right.endswith(" (example: kubectl auth can-i create pods --subresource=exec -n ml)")
    assert count.startswith("Warning: 3 of 3 ")


async def test_pods_by_name(tmp_path: Path, capsys: Capsys) -> None:
    """A named pod has rows also if it waits. A name that no pod has fails, and nothing is read."""
    waits = pod("a-2", message="GpuHeld: x")
    found = items(running("a-0", "0,1"), waits)
    async with cluster(tmp_path, nodes=NODES, pods=found, mine=found) as (server, options):
        assert await verify(options, ["a-2", "a-2"]) == 3
        rows = capsys.readouterr().out.splitlines()[1:]
        with pytest.raises(FailedError, match=r'^cannot find pod "a-9" of this scheduler in namespace ml; see which '):
            await verify(options, ["a-0", "a-9"])
        with pytest.raises(FailedError, match="in any namespace; "):
            await verify(replace(options, all_namespaces=True), ["a-9"])
        assert not [each for each in server.requests if each.path.endswith("/exec")]

    assert rows == ["a-2    main        -      unknown    -        unseen    its pod has no node"]


async def test_all_namespaces_and_none(tmp_path: Path, capsys: Capsys) -> None:
    """-A adds the namespace's column. Without a pod the table is empty, and the exit code is 0."""
    found = items(running("a-0", "0,1"))
    async with cluster(tmp_path, nodes=NODES, pods=found) as (server, options):
        answer(server, a_0=sees("0,1"))
        assert await verify(replace(options, all_namespaces=True)) == 0
        everywhere = capsys.readouterr().out
        assert await verify(options) == 0
        nothing = capsys.readouterr()

    assert everywhere.splitlines()[1].split()[:3] == ["ml", "a-0", "main"]
    assert (nothing.out, nothing.err) == ("", f"{text_of('verify: no pods', ns='ml')}\n")


def state_of(spec: Facts, **statuses: object) -> PodDetails:
    """Return the state of a pod with this spec and these lists of statuses."""
    body = pod("a-0", "node1", "0,1")
    body["spec"].update(spec)
    uid, state = read_state(json.dumps({**body, "status": statuses or None}).encode())
    assert uid == "uid-a-0"
    return state


def test_the_state_of_containers_of_every_kind() -> None:
    """Ended for good: an init container that succeeded, an ephemeral container that ended in any way."""
    spec = {
        "initContainers": [{"name": name} for name in ("done", "failed")]
        + [{"name": "side", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "left"}, {"name": "joined", "targetContainerName": "main"}],
    }
    ended = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    failed = {"state": {"terminated": {"exitCode": 7}}}
    state = state_of(
        spec,
        containerStatuses=[{"name": "main", **RUNNING}, {"name": "batch", **ended}, {"name": "new"}],
        initContainerStatuses=[{"name": "done", **ended}, {"name": "failed", **failed}, {"name": "side", **ended}],
        ephemeralContainerStatuses=[{"name": "left", **failed}, {"name": "joined", **RUNNING}],
    )

    assert state.index == 0
    assert state.containers == {
        "main": ContainerState(running=True),
        "batch": ContainerState(why="Completed"),
        "new": ContainerState(why="no status yet"),
        "done": ContainerState(why="Completed", ended=True),
        "failed": ContainerState(why="exit code 7"),
        "side": ContainerState(why="Completed"),
        "left": ContainerState(why="exit code 7", ended=True),
        "joined": ContainerState(running=True, not_first="process 1 is that of container main"),
    }


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"shareProcessNamespace": True}, text_of("verify: process 1 is that of the pod")),
        ({"hostPID": True}, "process 1 is the node's, because the pod has hostPID"),
        ({"shareProcessNamespace": False, "hostPID": False}, ""),
    ],
)
@pytest.mark.promise("verify-3")
def test_a_process_1_that_is_not_the_container_s(spec: Facts, why: str) -> None:
    """With a shared process namespace process 1 belongs to no container of the pod."""
    state = state_of(spec, containerStatuses=[{"name": "main", **RUNNING}])

    assert state.containers["main"].not_first == why


def test_a_pod_without_status_and_index() -> None:
    """Its containers have no state, and it says no index."""
    assert state_of({}).containers == {}
    body = pod("a-x", "node1", "0,1")
    assert read_state(json.dumps(body).encode())[1] == PodDetails(None, {})
    waiting = [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    assert state_of({}, containerStatuses=waiting).containers["main"].why == "CrashLoopBackOff"
