"""`plan` says where the pods of manifests would run, and what a change of the cluster would do."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.plan import plan
from tests import objects
from tests.messages import text_of
from unit_tests.cli.scripted_cluster import MISSING, Capsys, cluster, device, items
from unit_tests.kube.server import FakeServer, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.objects import Object

MAP = "0=node1:0,1\n1=node2:0\n2=node2:0\n3=node9:0\n"
CONTAINER = {"name": "main", "image": "busybox"}
COUNT = {"agentaflow.gpu/count": "1"}
STAYS = text_of("plan: a pod that stays")
INVALID = text_of("a map is wrong in its first line").partition(": ")[2]
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ABSENT = (
    *(f"/apis/apps/v1/namespaces/ml/{kind}/train" for kind in ("statefulsets", "deployments", "replicasets")),
    "/apis/apps/v1/namespaces/ml/statefulsets/gone",
    "/apis/batch/v1/namespaces/ml/jobs/train",
)
SLOW = {
    "metadata": {"name": "slow", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def node(name: str, *devices: Object) -> Object:
    body = objects.node(name, labels={"kubernetes.io/hostname": name})
    body["metadata"]["annotations"] = {"agentaflow.gpu/devices": json.dumps(devices)} if devices else {}
    return body


NODES = (node("node1", device(0), device(1)), node("node2", device(0), device(1)))


def template(text: str | None = MAP, **annotations: str) -> Object:
    """Return the template of a pod of ours."""
    given = {f"agentaflow.gpu/{key}": value for key, value in annotations.items()}
    given |= {} if text is None else {"gpu-scheduling-map": text}
    spec = {"schedulerName": "gpu-scheduler", "containers": [CONTAINER]}
    return {"metadata": {"annotations": given}, "spec": spec}


def controller(kind: str, name: str, replicas: int, made: Object | None = None, **spec: Any) -> Object:
    body = {"replicas": replicas, "template": made or template(), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "ml"}, "spec": body}


def pod(
    name: str,
    where: str | None = None,
    devices: str = "",
    *,
    text: str | None = MAP,
    owner: tuple[str, str] | None = ("StatefulSet", "train"),
    **more: Any,
) -> Object:
    """Return a pod of ours that is bound, or that waits if `where` is None."""
    if owner is not None and owner[0] == "StatefulSet":
        more = {**objects.in_stateful_set(owner[1], name.rpartition("-")[2]), **more}
    else:
        more["owner"] = owner
    annotations = {"agentaflow.gpu/assigned-devices": devices, "agentaflow.gpu/assigned-node": where} if where else {}
    annotations |= more.pop("annotations", {})
    body = objects.pod(name, text, objects.reading(), annotations=annotations, **more)
    body["metadata"] |= {"namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body["status"] = {"phase": "Running" if where else "Pending"}
    if where:
        body["spec"]["nodeName"] = where
    return body


def replica(where: str, devices: str, annotations: dict[str, str] | None = None) -> Object:
    """Return the pod of a Deployment, which asks for a count."""
    owner = "web-6c8f9d7b54"
    given = {**COUNT, **(annotations or {})}
    made: dict[str, Any] = {"owner": ("ReplicaSet", owner), "generate_name": f"{owner}-", "annotations": given}
    return pod(f"{owner}-bbbbb", where, devices, text=None, **made)


class Planning:
    """A scripted cluster, and what `plan` prints of it."""

    def __init__(self, server: FakeServer, options: Options, folder: Path, capsys: Capsys) -> None:
        self.server = server
        self.options = options
        self._absent = set(ABSENT)
        self._folder = folder
        self._capsys = capsys

    def have(self, path: str, reply: Reply) -> None:
        """Answer a GET of this path."""
        self._absent.discard(path)
        self.server.on("GET", path, reply)

    async def run(self, *bodies: Object, code: int = 0, output: Output = Output.JSON, **what_ifs: Any) -> Any:
        """Plan these objects. Return the plan, or the text that is printed for people."""
        file = self._folder / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(bodies)}))
        given = {"filename": [str(file)]} if bodies else {}
        for path in sorted(self._absent):
            self.have(path, MISSING)
        assert await plan(replace(self.options, output=output), **given, **what_ifs) == code
        printed = self._capsys.readouterr()
        assert {request.method for request in self.server.requests} == {"GET"}
        return json.loads(printed.out)["items"][0] if output is Output.JSON else printed.out + printed.err

    async def rows(self, *bodies: Object, code: int = 0, **what_ifs: Any) -> list[tuple[Any, ...]]:
        """Plan these objects. Return name, outcome, node, devices, index and reason of each pod."""
        found = await self.run(*bodies, code=code, **what_ifs)
        return [
            (each["name"], each["outcome"], each["node"], ",".join(each["devices"]), each["index"], each["reason"])
            for each in found["pods"]
        ]


@asynccontextmanager
async def planning(
    tmp_path: Path, capsys: Capsys, *pods: Object, nodes: tuple[Object, ...] = NODES
) -> AsyncIterator[Planning]:
    async with cluster(tmp_path, nodes=items(*nodes), pods=items(*pods)) as (server, options):
        for path in (CLAIMS, VOLUMES):
            server.on("GET", path, items())
        server.on("GET", CLASSES, items(SLOW))
        yield Planning(server, options, tmp_path, capsys)


def existing(planning: Planning, body: Object) -> None:
    """Let the API server have this controller."""
    path = f"/apis/apps/v1/namespaces/ml/{body['kind'].lower()}s/{body['metadata']['name']}"
    planning.have(path, Reply(body=body))


@pytest.mark.promise("plan-1")
async def test_pods_are_decided_in_order(tmp_path: Path, capsys: Capsys) -> None:
    """Each holds its devices for those after it. Two lines of one map may name one device."""
    async with planning(tmp_path, capsys) as asked:
        rows = await asked.rows(controller("StatefulSet", "train", 4), controller("Deployment", "web", 1), code=1)

    assert rows == [
        ("train-0", "fits", "node1", "0,1", 0, None),
        ("train-1", "fits", "node2", "0", 1, None),
        ("train-2", "fits", "node2", "0", 2, None),
        ("train-3", "waits", None, "", None, "NodeNotFound"),
        ("web-?0", "waits", None, "", None, "GpuHeld"),
    ]


@pytest.mark.promise("plan-1", "together-1")
@pytest.mark.parametrize("held", [False, True])
async def test_pods_that_start_together_fit_together(tmp_path: Path, capsys: Capsys, *, held: bool) -> None:
    """Before any of them exists. While one of their lines is held, no one fits."""
    made = template("0=node1:0\n1=node2:0\n", start="together")
    holders = [pod("holder-0", "node2", "0", text="0=node2:0\n", owner=None)] if held else []
    async with planning(tmp_path, capsys, *holders) as asked:
        rows = await asked.rows(controller("StatefulSet", "train", 2, made), code=int(held))

    assert [(row[1], row[5]) for row in rows] == ([("waits", "GpuHeld")] if held else [("fits", None)]) * 2


@pytest.mark.promise("plan-5")
async def test_people_get_a_table_and_a_sentence(tmp_path: Path, capsys: Capsys) -> None:
    """With the whole message, and what was left out."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "train"}}
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [CONTAINER]}}
    wrong = controller("Deployment", "web", 1, template("0=node1:x\n"))
    async with planning(tmp_path, capsys) as asked:
        printed = await asked.run(
            service, other, controller("StatefulSet", "train", 1), wrong, code=1, output=Output.TABLE
        )

    assert printed.splitlines() == [
        "POD       NODE    GPUS   INDEX   REASON       MESSAGE",
        "train-0   node1   0,1    0       -            -",
        f"web-?0    -       -      -       MapInvalid   {INVALID}",
        "",
        "1 of 2 pods fits; 1 would be refused",
        f"{text_of('plan: what is left out')} Service train, Pod web",
    ]


@pytest.mark.promise("plan-5")
async def test_pods_that_exist_stay(tmp_path: Path, capsys: Capsys) -> None:
    """A StatefulSet's by name, a Deployment's by number; only the others are decided."""
    made = replica("node2", "1")
    ended = pod("train-1", "node2", "0")
    ended["status"]["phase"] = "Failed"
    async with planning(tmp_path, capsys, pod("train-0", "node1", "0,1"), ended, made) as asked:
        changed = controller("StatefulSet", "train", 2, template("0=node1:0,1\n1=node2:0\n"))
        found = await asked.run(changed, controller("Deployment", "web", 2, template(None, count="1")), code=1)

    assert [(each["name"], each["outcome"], each["node"], each["index"]) for each in found["pods"]] == [
        ("train-0", "exists", "node1", 0),
        ("train-1", "fits", "node2", 1),
        ("web-6c8f9d7b54-bbbbb", "exists", "node2", None),
        ("web-?1", "waits", None, None),
    ]
    assert found["pods"][2]["message"] == STAYS != found["pods"][0]["message"]


async def test_a_smaller_number_of_replicas_frees_devices(tmp_path: Path, capsys: Capsys) -> None:
    """For pods that wait already, then for those of the plan."""
    running = [pod("train-0", "node1", "0,1"), pod("train-1", "node2", "0")]
    waiting = pod("late-0", text="0=node2:0\n", owner=None)
    async with planning(tmp_path, capsys, *running, waiting) as asked:
        existing(asked, controller("StatefulSet", "train", 2))
        printed = await asked.run(scale=["sts/train=1"], output=Output.TABLE)

    assert printed.splitlines() == [
        "POD       NODE    GPUS   INDEX   REASON   MESSAGE",
        "late-0    node2   0      0       -        -",
        "train-1   -       -      -       -        StatefulSet/train removes it: it has 1 replica then",
        f"train-0   node1   0,1    0       -        {STAYS}",
        "",
        f"1 exists already; 1 would be removed; 1 {text_of('plan: waiting pods that would be placed')}",
    ]


@pytest.mark.promise("plan-3")
@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
async def test_a_text_that_is_refused_removes_no_pod(tmp_path: Path, capsys: Capsys, kind: str) -> None:
    """No new pod is made, so that the old ones of a smaller number of replicas run on, and nobody gets their GPUs."""
    owner = (kind, "train") if kind == "StatefulSet" else ("ReplicaSet", "train-6c8f9d7b54")
    running = [pod(f"train-{index}", f"node{index + 1}", "0", owner=owner) for index in range(2)]
    waiting = pod("late-0", text="0=node2:0\n", owner=None)
    async with planning(tmp_path, capsys, *running, waiting) as asked:
        found = await asked.run(controller(kind, "train", 1, template("0=node1:x\n")), code=1)

    assert [each["outcome"] for each in found["pods"]] == ["refused"]
    assert (found["counts"]["removed"], found["counts"]["placedBefore"], found["counts"]["waitOn"]) == (0, 0, 1)


@pytest.mark.promise("plan-3")
async def test_a_job_of_a_smaller_parallelism_removes_no_pod(tmp_path: Path, capsys: Capsys) -> None:
    """A Job's pods run to their end."""
    made = template("0=node1:0\n1=node2:0\n")
    made["spec"]["restartPolicy"] = "Never"
    running = [pod(f"sweep-{index}-x", f"node{index + 1}", "0", owner=("Job", "sweep")) for index in range(2)]
    spec = {"parallelism": 1, "completions": 2, "completionMode": "Indexed", "template": made}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep", "namespace": "ml"}, "spec": spec}
    async with planning(tmp_path, capsys, *running) as asked:
        found = await asked.run(job, code=1)

    assert found["counts"]["removed"] == 0


@pytest.mark.promise("plan-2", "plan-3")
async def test_pods_of_a_drained_node_come_back(tmp_path: Path, capsys: Capsys) -> None:
    """As their controllers make them anew, where the node's line allows it; bare pods do not come back."""
    running = [
        pod("train-0", "node1", "0,1"),
        pod("alone", "node1", "", text="0=node1:\n", owner=None),
        pod("gone-0", "node1", "", text="7=node1:\n", owner=("StatefulSet", "gone")),
        pod("other-0", "node1", "", text="6=node1:\n", owner=("Sweep", "other")),
        replica("node1", "", {"agentaflow.gpu/observer": "true"}),
        pod("of-daemons", "node1", "", text="5=node1:\n", owner=("DaemonSet", "all")),
    ]
    async with planning(tmp_path, capsys, *running) as asked:
        existing(asked, controller("StatefulSet", "train", 1))
        existing(asked, controller("ReplicaSet", "web-6c8f9d7b54", 1, template(None, count="1")))
        found = await asked.run(drain=["node1"], code=1)

    shown = {each["name"]: (each["outcome"], each["node"], each["reason"], each["message"]) for each in found["pods"]}
    assert shown.keys() == {"train-0", "alone", "gone-0", "other-0", "web-6c8f9d7b54-?0"}
    assert shown["train-0"][:3] == ("waits", None, "NodeUnschedulable")
    assert shown["web-6c8f9d7b54-?0"][:2] == ("fits", "node2")
    assert shown["alone"][3] == text_of("plan: a pod without a controller")
    assert shown["gone-0"][3] == text_of("plan: a pod whose controller is gone", controller="StatefulSet gone")
    assert shown["other-0"][3] == text_of("plan: a pod of an unknown controller", controller="Sweep other")
    replaced = next(each["replaces"] for each in found["pods"] if each["name"] == "web-6c8f9d7b54-?0")
    assert replaced == {"name": "web-6c8f9d7b54-bbbbb", "node": "node1", "devices": []}
    assert {what: number for what, number in found["counts"].items() if number} == {"fits": 1, "waits": 1, "lost": 3}


@pytest.mark.promise("plan-3")
async def test_a_pod_of_an_indexed_job_comes_back_with_its_index(tmp_path: Path, capsys: Capsys) -> None:
    """Also one that the Job began when others were done. One whose Job has fewer completions now does not."""
    text = "7=node2:0\n8=node1:1\n"
    running = [
        pod(f"sweep-{index}-bbbbb", "node1", str(index - 7), text=text, **objects.in_indexed_job("sweep", index))
        for index in (7, 8)
    ]
    spec = {"completionMode": "Indexed", "completions": 8, "parallelism": 2, "template": template(text)}
    async with planning(tmp_path, capsys, *running) as asked:
        asked.have("/apis/batch/v1/namespaces/ml/jobs/sweep", Reply(body={"metadata": {"name": "sweep"}, "spec": spec}))
        found = await asked.run(drain=["node1"], code=1)

    assert [(each["name"], each["outcome"], each["node"]) for each in found["pods"]] == [
        ("sweep-7", "fits", "node2"),
        ("sweep-8-bbbbb", "lost", None),
    ]
    assert found["pods"][1]["message"] == text_of("plan: a pod whose controller is smaller", controller="Job sweep")


@pytest.mark.promise("plan-3", "plan-5")
async def test_a_replicaset_counts_the_pods_that_it_has_adopted(tmp_path: Path, capsys: Capsys) -> None:
    """Their names were given, and it makes others in their place all the same."""
    fleet = controller("ReplicaSet", "fleet", 1, template(None, count="1"))
    adopted = pod("given", "node1", "0", text=None, annotations=COUNT, owner=("ReplicaSet", "fleet"))
    async with planning(tmp_path, capsys, adopted) as asked:
        existing(asked, fleet)
        again = await asked.rows(fleet)
        moved = await asked.rows(drain=["node1"])

    assert again == [("given", "exists", "node1", "0", None, None)]
    assert [row[:3] for row in moved] == [("fleet-?0", "fits", "node2")]


async def test_a_drain_of_an_empty_node_is_no_question_about_others(tmp_path: Path, capsys: Capsys) -> None:
    """Pods that wait for another reason do not make it fail."""
    async with planning(tmp_path, capsys, pod("train-3")) as asked:
        printed = await asked.run(drain=["node2"], output=Output.TABLE)
        moved = await asked.run({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, output=Output.TABLE)

    assert printed == f"1 {text_of('plan: waiting pods that wait on')}\n"
    assert moved.startswith(printed)


async def test_an_observer_is_marked(tmp_path: Path, capsys: Capsys) -> None:
    """Its devices are not held twice."""
    observer = controller("StatefulSet", "looks", 1, template("0=node1:0,1\n", observer="true"))
    async with planning(tmp_path, capsys, pod("train-0", "node1", "0,1")) as asked:
        printed = await asked.run(observer, output=Output.TABLE)

    assert printed.splitlines()[1].split() == ["looks-0", "node1", "0,1", "(observer)", "0", "-", "-"]


async def test_nothing_may_change(tmp_path: Path, capsys: Capsys) -> None:
    """That is said too."""
    async with planning(tmp_path, capsys) as asked:
        assert await asked.run(drain=["node2"], output=Output.TABLE) == f"{text_of('plan: nothing changes')}\n"


async def test_a_manifest_of_a_drained_controller_replaces_its_pods(tmp_path: Path, capsys: Capsys) -> None:
    """Its text decides where they come back."""
    moved = controller("StatefulSet", "train", 1, template("0=node2:1\n"))
    async with planning(tmp_path, capsys, pod("train-0", "node1", "0,1")) as asked:
        assert await asked.rows(moved, drain=["node1"]) == [("train-0", "fits", "node2", "1", 0, None)]


@pytest.mark.promise("plan-3")
async def test_a_broken_device_moves_its_holders(tmp_path: Path, capsys: Capsys) -> None:
    """A map names it, a strategy takes another."""
    running = [
        pod("train-0", "node1", "0,1"),
        pod("net-0", "node2", "1", text=None, annotations=COUNT, owner=("StatefulSet", "net")),
        pod("safe-0", "node2", "0", text="0=node2:0\n", owner=("StatefulSet", "safe")),
    ]
    async with planning(tmp_path, capsys, *running) as asked:
        existing(asked, controller("StatefulSet", "train", 1))
        existing(asked, controller("StatefulSet", "net", 1, template(None, count="1")))
        printed = await asked.run(without=["node1:0", "node2:1"], code=1, output=Output.TABLE)

    assert [line[:61].rstrip() for line in printed.splitlines()] == [
        "POD       LEAVES      NODE    GPUS   INDEX   REASON         M",
        "train-0   node1:0,1   -       -      -       GpuUnhealthy   c",
        "net-0     node2:1     node1   1      -       -              -",
        "",
        "1 of 2 pods fits; 1 would wait",
    ]


async def test_a_pod_may_be_taken_as_gone(tmp_path: Path, capsys: Capsys) -> None:
    """Without another question, the plan is of the pods that wait."""
    pods = [pod("train-0", "node1", "0,1"), pod("late-0", text="0=node1:0\n", owner=None), pod("train-3")]
    async with planning(tmp_path, capsys, *pods) as asked:
        rows = await asked.rows(assume_gone=["train-0"], code=1)
        again = await asked.rows(controller("StatefulSet", "train", 4), assume_gone=["ml/late-0"], code=1)

    assert rows == [("late-0", "fits", "node1", "0", 0, None), ("train-3", "waits", None, "", None, "NodeNotFound")]
    assert again == [
        ("train-0", "exists", "node1", "0,1", 0, None),
        ("train-1", "fits", "node2", "0", 1, None),
        ("train-2", "fits", "node2", "0", 2, None),
        ("train-3", "waits", None, "", None, "NodeNotFound"),
    ]


async def test_volumes_are_taken_as_made(tmp_path: Path, capsys: Capsys) -> None:
    """Where their class provisions them: a claim template's, a claim's in a manifest, with the default class."""
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    manual = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "manual"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    prompt = {**manual, "metadata": {"name": "prompt"}, "provisioner": "example.com", "volumeBindingMode": "Immediate"}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", **objects.volume("disk", "manual", "node2")}
    own = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **objects.claim(name, storage_class, of)}
        for name, storage_class, of in (("a", "manual", None), ("b", "prompt", None), ("c", "manual", "disk"))
    ]
    users = []
    for each in own:
        name = each["metadata"]["name"]
        user = template(None, count="1")
        user["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        users.append(
            {"apiVersion": "v1", "kind": "Pod", **user, "metadata": {"name": f"user-{name}", **user["metadata"]}}
        )
    async with planning(tmp_path, capsys) as asked:
        found = await asked.run(
            controller("StatefulSet", "train", 1, template("0=node1:0\n"), volumeClaimTemplates=claims),
            *(manual, prompt, volume, *own, *users),
            code=1,
        )

    assert [(each["name"], each["node"], each["volumes"], each["reason"]) for each in found["pods"]] == [
        ("train-0", "node1", ["data-train-0"], None),
        ("user-a", None, [], "VolumeNotBound"),
        ("user-b", "node2", ["b"], None),
        ("user-c", "node2", [], None),
    ]
    assert found["leftOut"] == []


async def test_a_pod_with_gates_waits_for_them(tmp_path: Path, capsys: Capsys) -> None:
    """The scheduler leaves it alone, and so no reason is known."""
    gated = template("0=node1:0\n")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    old = pod("old-0", text="0=node1:0\n", owner=None)
    old["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    again = {"apiVersion": "v1", "kind": "Pod", **gated, "metadata": {"name": "old-0", **gated["metadata"]}}
    async with planning(tmp_path, capsys, old) as asked:
        found = await asked.run(controller("StatefulSet", "train", 1, gated), again, code=1)

    assert [(each["outcome"], each["message"]) for each in found["pods"]] == [
        ("waits", text_of("plan: a pod with scheduling gates"))
    ] * 2


async def test_a_terminating_pod_is_gone_when_its_successor_comes(tmp_path: Path, capsys: Capsys) -> None:
    """Two pods of one name never exist together."""
    ending = pod("train-0", "node1", "0,1")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    async with planning(tmp_path, capsys, ending) as asked:
        assert await asked.rows(controller("StatefulSet", "train", 1)) == [("train-0", "fits", "node1", "0,1", 0, None)]


WRONG = {
    "nothing is asked": ({}, "cannot plan nothing: "),
    "a drain of no node": ({"drain": ["node9"]}, 'cannot use --drain "node9": '),
    "a device without a node": ({"without": ["0"]}, 'cannot use --without "0": '),
    "an empty device": ({"without": ["node1:0,"]}, 'cannot use --without "node1:0,": '),
    "a device that the node lacks": (
        {"without": ["node1:7"]},
        'cannot use --without "node1:7": node1 has no GPU "7"; its GPUs are 0, 1',
    ),
    "a node whose devices are unknown": (
        {"without": ["node3:0"]},
        'cannot use --without "node3:0": no monitor ',
    ),
    "a pod that is not there": (
        {"assume_gone": ["train-9"]},
        'cannot use --assume-gone "train-9": namespace ml has no such pod of this scheduler',
    ),
    "a pod with too many parts": ({"assume_gone": ["a/b/c"]}, 'cannot use --assume-gone "a/b/c": it must be POD'),
    "a scale without a number": ({"scale": ["train"]}, 'cannot use --scale "train": '),
    "a scale of another kind": ({"scale": ["pod/a=2"]}, 'cannot use --scale "pod/a=2": '),
    "a scale to a word": ({"scale": ["train=two"]}, 'cannot use --scale "train=two": '),
    "a scale of nothing": (
        {"scale": ["train=2"]},
        'cannot use --scale "train=2": neither ',
    ),
}


@pytest.mark.parametrize(("what_ifs", "sentence"), WRONG.values(), ids=WRONG)
async def test_a_wrong_value_is_refused(
    tmp_path: Path, capsys: Capsys, what_ifs: dict[str, Any], sentence: str
) -> None:
    """In one sentence, with exit code 2."""
    async with planning(tmp_path, capsys, nodes=(*NODES, node("node3"))) as asked:
        with pytest.raises(RefusedInputError) as raised:
            await asked.run(**what_ifs)

    assert str(raised.value).startswith(sentence)
    assert "example: " in str(raised.value)


async def test_a_name_of_two_kinds_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    """The kind tells them apart."""
    async with planning(tmp_path, capsys) as asked:
        existing(asked, controller("StatefulSet", "train", 1))
        existing(asked, controller("Deployment", "train", 1))
        with pytest.raises(RefusedInputError, match="has a StatefulSet and a Deployment of this name"):
            await asked.run(scale=["train=2"])
        assert await asked.rows(scale=["deploy/train=1"]) == [("train-?0", "fits", "node1", "0,1", 0, None)]


async def test_a_missing_right_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """A plan that does not know a controller would be wrong."""
    async with planning(tmp_path, capsys, pod("train-0", "node1", "0,1")) as asked:
        asked.have("/apis/apps/v1/namespaces/ml/statefulsets/train", Reply(403, {"message": "no"}))
        with pytest.raises(FailedError) as raised:
            await asked.run(drain=["node1"])

    assert str(raised.value).startswith("cannot read StatefulSet ml/train: HTTP 403: no; ")
    assert str(raised.value).endswith(" (example: kubectl auth can-i get statefulsets.apps -n ml)")


async def test_one_namespace_is_asked_about(tmp_path: Path, capsys: Capsys) -> None:
    """As by kubectl: the namespace of an object must be the one of the command line."""
    async with planning(tmp_path, capsys) as asked:
        asked.options = replace(asked.options, namespace="other")
        with pytest.raises(RefusedInputError, match="its namespace is ml, and -n says other; leave one of the two out"):
            await asked.run(controller("StatefulSet", "train", 1))


FAULTY = {
    "a class": {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": 3},
    "a claim": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": 3},
}


@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
async def test_wrong_storage_is_refused(tmp_path: Path, capsys: Capsys, body: Object) -> None:
    """As the API server would refuse it."""
    async with planning(tmp_path, capsys) as asked:
        with pytest.raises(RefusedInputError, match="cannot read "):
            await asked.run(body)


async def test_a_workload_has_one_pod(tmp_path: Path, capsys: Capsys) -> None:
    """Its second attempt, which has another name, is the pod that exists."""
    again = pod("net-1", "node1", "0", text=None, annotations=COUNT, owner=("GPUWorkload", "net"))
    async with planning(tmp_path, capsys, again) as asked:
        rows = await asked.rows(objects.gpu_workload("net", gpuRequirements={"gpuCount": 1}))

    assert rows == [("net-1", "exists", "node1", "0", None, None)]


async def test_a_job_that_is_done_makes_no_pod(tmp_path: Path, capsys: Capsys) -> None:
    """Its completed indices stay completed; a failed one is tried again."""
    pods = []
    for index, phase in enumerate(("Succeeded", "Failed")):
        made = pod(f"job-{index}-bbbbb", "node2", "0", **objects.in_indexed_job("job", index))
        made["status"]["phase"] = phase
        pods.append(made)
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template()}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    async with planning(tmp_path, capsys, *pods) as asked:
        rows = await asked.rows(job)

    assert rows == [("job-0-bbbbb", "exists", "node2", "0", 0, None), ("job-1", "fits", "node2", "0", 1, None)]
