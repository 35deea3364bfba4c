"""Controllers whose pods are refused at creation are listed beside the pods that exist."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpu_scheduler.cli.options import FailedError, Output
from gpu_scheduler.cli.refused_workloads import refused_view
from gpu_scheduler.cli.verbs.show import workloads
from unit_tests.cli.scripted_cluster import CONTROLLERS, Capsys, cluster, items, pod
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects import Object

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"
FAILURE = (
    'admission webhook "mutate.gpu-scheduler.agentaflow.io" denied the request: EnvConflict: cannot set it; leave it'
)


def controller(
    name: str = "train", lines: str = THREE, status: Object | None = None, scheduler: str = "gpu-scheduler", **spec: Any
) -> Object:
    """Return a controller with a map."""
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    template = {
        "metadata": {"annotations": {"gpu-scheduling-map": lines}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main"}]},
    }
    return {"metadata": meta, "spec": {"template": template, **spec}, "status": status}


def failed(message: str, status: str = "True") -> Object:
    condition = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
    return {"replicas": 0, "conditions": [{"type": "Progressing", "status": "False"}, condition]}


def indexed(**spec: Any) -> Object:
    return controller(**{"completionMode": "Indexed", "completions": 4, "parallelism": 4, **spec})


# Kind, object, and the reason with which it is listed; None if it is not.
LISTED: dict[str, tuple[str, Object, str | None]] = {
    "a bad map, and no pod": ("StatefulSet", controller(lines="x", replicas=5, status={"replicas": 0}), "MapInvalid"),
    "a bad map, and no status yet": ("StatefulSet", controller(lines="x"), "MapInvalid"),
    "some pods are there": ("StatefulSet", controller(replicas=5, status={"replicas": 3}), "IndexNotInMap"),
    "all pods are there, from an earlier map": (
        "StatefulSet",
        controller(lines="x", replicas=2, status={"replicas": 2}),
        None,
    ),
    "pods are still to be made": ("StatefulSet", controller(replicas=3, status={"replicas": 1}), None),
    "no pods are wanted": ("StatefulSet", controller(lines="x", replicas=0), None),
    "another scheduler": ("StatefulSet", controller(lines="x", scheduler="volcano"), None),
    "pods that wait are no refusal": ("Deployment", controller(replicas=4, status={"replicas": 1}), None),
    "a Deployment with a bad map": ("Deployment", controller(lines="x", status=failed("")), "MapInvalid"),
    "a refusal that only the status has": ("Deployment", controller(status=failed(FAILURE)), "EnvConflict"),
    "a refusal by others": ("ReplicaSet", controller(status=failed("pods are forbidden: quota")), "FailedCreate"),
    "a refusal that is over": ("ReplicaSet", controller(status=failed(FAILURE, "False")), None),
    "a Job with a bad map": ("Job", controller(lines="x"), "MapInvalid"),
    "an Indexed Job lacks a line": ("Job", indexed(status={"active": 3}), "IndexNotInMap"),
    "its other indices are done": ("Job", indexed(status={"succeeded": 3}), "IndexNotInMap"),
    "it has as many pods as may run at once": ("Job", indexed(parallelism=2, status={"active": 2}), None),
    "a Job that is suspended": ("Job", indexed(suspend=True), None),
    "a Job that has ended": ("Job", indexed(status={"conditions": [{"type": "Failed", "status": "True"}]}), None),
    "a Job that may not run": ("Job", indexed(parallelism=0), None),
}


@pytest.mark.promise("warn-5")
@pytest.mark.parametrize(("kind", "body", "reason"), LISTED.values(), ids=LISTED)
def test_a_controller_is_listed_where_its_pods_are_refused(kind: str, body: Object, reason: str | None) -> None:
    """With the reason of the refusal, in its words."""
    view = refused_view(msgspec.Raw(json.dumps(body).encode()), kind, "gpu-scheduler")

    assert (view and view["reason"]) == reason
    assert view is None or view["reason"] == "FailedCreate" or view["message"].startswith(f"{reason}: ")


async def test_it_stands_beside_the_pods(tmp_path: Path, capsys: Capsys) -> None:
    """As a row, as data and as a name that kubectl knows. ReplicaSets of Deployments are not asked for."""
    found = {
        "mine": items(pod("a-0", "node1", "0")),
        "my_statefulsets": items(controller("bad", "x", replicas=5), controller("good")),
        "my_replicasets": items(controller("old", "x")),
        "my_jobs": items(controller("once", "x")),
    }
    async with cluster(tmp_path, **found) as (server, options):
        assert await workloads(options) == 0
        rows = [row.split() for row in capsys.readouterr().out.splitlines()]
        await workloads(replace(options, output=Output.JSON))
        views = json.loads(capsys.readouterr().out)["items"]
        await workloads(replace(options, output=Output.NAME))
        names = capsys.readouterr().out.split()
        asked = [each for each in server.requests if "replicasets" in each.path]

    assert [row[:3] + row[-2:-1] for row in rows[1:]] == [
        ["once", "Job", "Pending", "MapInvalid"],
        ["a-0", "Pod", "Running", "-"],
        ["old", "ReplicaSet", "Pending", "MapInvalid"],
        ["bad", "StatefulSet", "Pending", "MapInvalid"],
    ]
    assert names == ["job.batch/once", "pod/a-0", "replicaset.apps/old", "statefulset.apps/bad"]
    assert len({tuple(view) for view in views}) == 1
    assert all(each.query["labelSelector"] == "!pod-template-hash" for each in asked)


@pytest.mark.promise("warn-5")
async def test_a_missing_right_leaves_them_out_with_one_sentence(tmp_path: Path, capsys: Capsys) -> None:
    """Who may list the pods gets these."""
    denied = {f"my_{name}": Reply(403, {"message": f"jane cannot list {name}"}) for name in ("statefulsets", "jobs")}
    async with cluster(tmp_path, mine=items(pod("a-0", "node1", "0")), **denied) as (_, options):
        assert await workloads(options) == 0

    printed = capsys.readouterr()
    assert "a-0" in printed.out
    assert printed.err == (
        "Warning: StatefulSets, Jobs whose pods are refused are left out: cannot list StatefulSets: HTTP 403: jane "
        "cannot list statefulsets; ask for the right (example: kubectl auth can-i list statefulsets.apps -n ml)\n"
    )


async def test_a_failed_list_is_no_answer(tmp_path: Path) -> None:
    """An answer with some of them would be wrong."""
    broken = {name: Reply(500, {"message": "etcd is down"}) for name in CONTROLLERS}
    async with cluster(tmp_path, **broken) as (_, options):
        with pytest.raises(FailedError, match="cannot list StatefulSets: HTTP 500: etcd is down"):
            await workloads(replace(options, all_namespaces=True))
