"""What ResourceClaims hold, in the verbs' answers: a claim is no pod, and a pod's own claim is not shown beside it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.cli.installation import Installation
from gpu_scheduler.cli.options import FailedError, Options, Output
from gpu_scheduler.cli.snapshot import read_node, read_pod
from gpu_scheduler.cli.verbs.explain import explain
from gpu_scheduler.cli.verbs.plan import plan
from gpu_scheduler.cli.verbs.show import nodes, status
from gpu_scheduler.cli.verbs.watch_state import WatchState
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.resource_slices import read_slice
from tests import objects
from tests.messages import quotes, says
from unit_tests.cli.scripted_cluster import MISSING, Capsys, cluster, deployment, device, items, node, pod
from unit_tests.cli.stored import with_storage
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.objects import Object

DRIVER = "gpu.nvidia.com"
POOL = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
GPUS = [
    {"name": f"gpu-{index}", "attributes": {"uuid": {"string": objects.gpu(index)}, "index": {"int": index}}}
    for index in range(3)
]
SLICE = {"metadata": {"name": "s1"}, "spec": {"driver": DRIVER, "nodeName": "node1", "pool": POOL, "devices": GPUS}}
OWN = "gpu-scheduler-0123"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates/one"
DENIED = Reply(403, {"message": 'User "jane" cannot list it'})
NODE = node("node1")


def claim(namespace: str, name: str, index: int, *pods: str) -> Object:
    """Return a claim that is allocated this GPU, and reserved for the pods with these uids."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": "node1", "device": f"gpu-{index}"}]
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def mapped(name: str, index: int, **more: Any) -> Object:
    """Return a pod with a map that names this GPU."""
    body = pod(name, **more)
    body["metadata"]["annotations"]["gpu-scheduling-map"] = f"0=node1:{index}\n"
    body["spec"]["containers"] = [{"name": "main", "env": objects.reading()}]
    return body


def isolated(name: str) -> Object:
    """Return a pod that runs on GPU 0 by its claim."""
    body = mapped(name, 0, node="node1", devices=objects.gpu(0))
    body["spec"] |= {"resourceClaims": [{"name": "gpu-scheduler-0", "resourceClaimName": OWN}]}
    return body


HELD = "GpuHeld: GPU 1 of node1 is held by ResourceClaim team/training; wait"
WAITS = mapped("w-0", 1, message=HELD)
CLAIMS = claim("ml", OWN, 0, "uid-a-0"), claim("team", "training", 1)


@asynccontextmanager
async def isolating(
    tmp_path: Path, *pods: Object, claims: tuple[Object, ...] = CLAIMS, template: Reply = MISSING
) -> AsyncIterator[Options]:
    """Run a cluster with three GPUs, of which claims hold two. Pod `a-0` has the one claim; others have the other.

    `template` answers for ResourceClaimTemplate `one`.
    """
    settings = deployment(ISOLATION="dra")
    parts = {"slices": items(SLICE), "claims": items(*claims), "deployment": settings}
    listed = (isolated("a-0"), WAITS, *pods)
    async with cluster(tmp_path, nodes=items(NODE), pods=items(*listed), **parts) as (server, options):
        with_storage(server)
        server.on("GET", TEMPLATES, template)
        for each in listed:
            server.on("GET", f"/api/v1/namespaces/ml/pods/{each['metadata']['name']}", Reply(body=each))
        yield options


def item(capsys: Capsys) -> Any:
    """Return the first item of the printed JSON."""
    return json.loads(capsys.readouterr().out)["items"][0]


def json_of(options: Options) -> Options:
    return replace(options, output=Output.JSON)


@pytest.mark.promise("isolate-11")
async def test_a_claim_is_named_as_a_claim_where_devices_are_listed(tmp_path: Path, capsys: Capsys) -> None:
    """Its kind stands before its name."""
    async with isolating(tmp_path) as options:
        await nodes(replace(options, output=Output.WIDE))
    titles, *lines = capsys.readouterr().out.splitlines()
    column = slice(titles.index("HELD BY"), titles.index("SINCE"))
    assert [row[column].strip() for row in lines] == ["ml/a-0", "ResourceClaim team/training", "-"]

    async with isolating(tmp_path) as options:
        await nodes(json_of(options))
    rows = item(capsys)["cards"]
    assert [[(each["kind"], each["namespace"], each["name"]) for each in row["holders"]] for row in rows] == [
        [("Pod", "ml", "a-0")],
        [("ResourceClaim", "team", "training")],
        [],
    ]


@pytest.mark.promise("isolate-11")
async def test_status_names_a_claim_as_a_claim(tmp_path: Path, capsys: Capsys) -> None:
    """In the grid, and in a conflict, whose names stay NAMESPACE/NAME for programs."""
    rival = mapped("r-0", 1, node="node1", devices="1")
    async with isolating(tmp_path, rival) as options:
        assert await status(options) == 1
        screen = capsys.readouterr().out
        assert await status(json_of(options)) == 1
    assert "GPU 1 of node1 is held by ml/r-0 and ResourceClaim team/training" in " ".join(screen.split())

    found = item(capsys)
    assert found["conflicts"] == [
        {"node": "node1", "device": "1", "pods": ["ml/r-0", "team/training"], "kinds": ["Pod", "ResourceClaim"]}
    ]
    assert [each["holders"] for each in found["grid"][0]["devices"]] == [
        ["ml/a-0"],
        ["ml/r-0", "ResourceClaim team/training"],
        [],
    ]
    assert found["gpus"] == {"total": 3, "held": 2, "available": 1, "unhealthy": 0}


@pytest.mark.promise("isolate-11")
async def test_explain_names_the_claim_and_no_pod_to_delete(tmp_path: Path, capsys: Capsys) -> None:
    """Whose pods use it, its own command shows."""
    async with isolating(tmp_path) as options:
        assert await explain(options, ["w-0"]) == 1
        screen = capsys.readouterr().out
        assert await explain(json_of(options), ["w-0"]) == 1
    assert "ResourceClaim team/training" in screen
    assert "kubectl describe resourceclaim -n team training" in screen
    assert "kubectl delete" not in screen

    (row,) = item(capsys)["places"][0]["devices"]
    assert [(each["kind"], each["namespace"], each["name"]) for each in row["holders"]] == [
        ("ResourceClaim", "team", "training")
    ]


def selecting(index: int) -> Object:
    """Return the claim of a user who wants the GPU with this index."""
    cel = {"expression": f'device.attributes["{DRIVER}"].index == {index}'}
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1, "selectors": [{"cel": cel}]}
    metadata = {"namespace": "ml", "name": "mine", "uid": "uid-mine"}
    return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


@pytest.mark.promise("isolate-13")
async def test_explain_and_plan_read_the_own_claim_of_a_pod(tmp_path: Path, capsys: Capsys) -> None:
    """They say where it can be placed, or what is in its way."""
    bringing = pod("o-0", priority="1")
    used = {"name": "main", "env": objects.reading(), "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    bringing["spec"] |= {"resourceClaims": claims, "containers": [used]}
    found = {}
    for name, more in {"free": (selecting(2),), "held": (selecting(1),), "missing": ()}.items():
        async with isolating(tmp_path, bringing, claims=(*CLAIMS, *more)) as options:
            await explain(json_of(options), ["o-0"])
            sentence = item(capsys)["sentence"]
            await plan(json_of(options), assume_gone=["a-0"])
            outcomes = {each["name"]: each["outcome"] for each in item(capsys)["pods"]}
        found[name] = (outcomes["o-0"], sentence)

    assert found["free"][0] == "fits"
    assert "by ResourceClaim mine" in found["free"][1]
    assert found["held"][0] == "waits"
    wanted = f"that the pod's ResourceClaim selects (driver {DRIVER}, index 1)"
    quotes(found["held"][1], "NotEnoughGpus", "1 GPU", wanted)
    assert found["missing"][0] == "waits"
    quotes(found["missing"][1], "GpuNotFound", "ml/mine")


V1 = "resource.k8s.io/v1"
ONE = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
TEMPLATE: Object = {
    "apiVersion": V1,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "ml"},
    "spec": {"spec": ONE},
}


def bringing(replicas: int, **claim: str) -> Object:
    """Return a StatefulSet whose pods bring a claim of their own."""
    used = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"schedulerName": "gpu-scheduler", "containers": [used], "resourceClaims": [{"name": "gpu", **claim}]}
    metadata = {"name": "own", "namespace": "ml"}
    body = {"replicas": replicas, "template": {"spec": spec}}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": body}


def written(folder: Path, *bodies: Object) -> str:
    """Write manifests. Return their file."""
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(bodies)}))
    return str(file)


WANTED: dict[str, tuple[tuple[Object, ...], Reply, str]] = {
    "of a template beside it": (
        (TEMPLATE, bringing(2, resourceClaimTemplateName="one")),
        MISSING,
        "NotEnoughGpus: cannot get 1 GPU of known UUID",
    ),
    "of a template of the cluster": (
        (bringing(2, resourceClaimTemplateName="one"),),
        Reply(body=TEMPLATE),
        "NotEnoughGpus: cannot get 1 GPU of known UUID",
    ),
    "that all of them name": (
        ({**TEMPLATE, "kind": "ResourceClaim", "spec": ONE}, bringing(2, resourceClaimName="one")),
        MISSING,
        "GpuHeld: cannot use ResourceClaim ml/one: ",
    ),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("manifests", "template", "message"), WANTED.values(), ids=WANTED)
async def test_manifests_bring_claims_of_their_own(
    tmp_path: Path, capsys: Capsys, manifests: tuple[Object, ...], template: Reply, message: str
) -> None:
    """One GPU is free: the first pod of a StatefulSet gets it by its claim, and the second waits."""
    async with isolating(tmp_path, template=template) as options:
        assert await plan(json_of(options), filename=[written(tmp_path, *manifests)]) == 1
        first, second = item(capsys)["pods"]
        assert await explain(json_of(options), filename=[written(tmp_path, *manifests)]) == 1
        placeable, waiting = json.loads(capsys.readouterr().out)["items"]

    assert (first["name"], first["outcome"], first["node"], first["devices"]) == (
        "own-0",
        "fits",
        "node1",
        [objects.gpu(2)],
    )
    assert (second["name"], second["outcome"]) == ("own-1", "waits")
    assert message in second["message"]
    assert placeable["state"] == "placeable"
    assert message in waiting["sentence"]


async def test_a_claim_with_an_unreadable_spec_waits(tmp_path: Path, capsys: Capsys) -> None:
    """Its pods say why."""
    claim = {**TEMPLATE, "kind": "ResourceClaim", "spec": 7}
    async with isolating(tmp_path) as options:
        assert await plan(json_of(options), filename=[written(tmp_path, claim, bringing(1, resourceClaimName="one"))])
    (only,) = item(capsys)["pods"]

    says(only["message"], "Unsupported", "ml/one")


async def test_a_template_that_is_nowhere_is_missing(tmp_path: Path, capsys: Capsys) -> None:
    """The claim cannot be made. Without the right to read it, the right is named."""
    file = written(tmp_path, bringing(1, resourceClaimTemplateName="one"))
    async with isolating(tmp_path) as options:
        await plan(json_of(options), filename=[file])
        assert "made from its template" in item(capsys)["pods"][0]["message"]
    async with isolating(tmp_path, template=DENIED) as options:
        with pytest.raises(FailedError, match="kubectl auth can-i get resourceclaimtemplates"):
            await plan(json_of(options), filename=[file])


@pytest.mark.promise("isolate-11")
async def test_a_plan_without_a_pod_is_without_its_claim(tmp_path: Path, capsys: Capsys) -> None:
    """Its deletion releases the claim. A claim of others stays."""
    found = {}
    async with isolating(tmp_path, mapped("b-0", 0), mapped("c-0", 2)) as options:
        for gone in ("c-0", "a-0"):
            assert await plan(json_of(options), assume_gone=[gone]) == 1
            found[gone] = {each["name"]: each["outcome"] for each in item(capsys)["pods"]}
    assert found == {"c-0": {"b-0": "waits", "w-0": "waits"}, "a-0": {"b-0": "fits", "w-0": "waits", "c-0": "fits"}}


async def test_claims_that_may_not_be_listed_are_named(tmp_path: Path, capsys: Capsys) -> None:
    """What the monitors say is known nevertheless."""
    listed = items(node("node1", device(0)))
    parts = {"slices": DENIED, "claims": DENIED, "deployment": deployment(ISOLATION="dra")}
    async with cluster(tmp_path, nodes=listed, **parts) as (_, options):
        assert await nodes(json_of(options)) == 0
    printed = capsys.readouterr()

    (warned,) = printed.err.splitlines()
    assert "kubectl auth can-i list resourceclaims.resource.k8s.io -A" in warned
    assert json.loads(printed.out)["items"][0]["stale"] is False


def test_a_watch_shows_what_claims_hold() -> None:
    """Also where no monitor lists the GPUs."""
    made = WatchState(Installation())
    made.nodes.handler.applied(read_node(json.dumps(NODE).encode()))
    made.slices.handler.applied(read_slice(json.dumps(SLICE).encode())[1])
    for each in (isolated("a-0"), mapped("r-0", 1, node="node1", devices="1")):
        made.pods.handler.applied(read_pod(json.dumps(each).encode()))
    for each in CLAIMS:
        made.claims.handler.applied(read_allocated_claim(json.dumps(each).encode())[1])

    view = made.view()["Node", "", "node1"]
    assert [[each["name"] for each in row["holders"]] for row in view["cards"]] == [["a-0"], ["r-0", "training"], []]
    assert made.facts.conflicts == ("GPU 1 of node1 is held by ml/r-0 and ResourceClaim team/training",)
