"""What `verify` says of a pod, for each way in which map, Binding, ledger, spec and process can disagree."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpu_scheduler.cli.verification import (
    ContainerState,
    PodDetails,
    Reading,
    Records,
    count_files,
    pod_views,
    read_environment,
    sort_out,
)
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import Container, ContainerClaims, ContainerKind, EnvVar
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.visible_devices import environment_of
from tests.messages import text_of
from unit_tests.core.build import (
    FIELD_REF,
    KEEP,
    MAP,
    PCI,
    container,
    device_id,
    isolated,
    node,
    nodes,
    own,
    pod,
    running,
    visible,
)
from unit_tests.core.build import claimed as claimed_by
from unit_tests.core.build import ledger as ledger_of

Facts = dict[str, Any]
RUNS = ContainerState(running=True)
SEES = Reading("0,1", "PCI_BUS_ID")
LITERAL = container((visible("0,1"), PCI))
BY_FIELD = container((FIELD_REF, PCI))
GPU_NODE = node("node1", advertised=4)


def assigned(devices: str, node: str = "node1", **others: str) -> Mapping[str, str]:
    """Return what a Binding wrote."""
    written = {"devices": devices, "node": node, **others}
    return {f"agentaflow.gpu/assigned-{key}": text for key, text in written.items()}


def placed(name: str = "train-0", on: str = "node1", text: str | None = MAP, **others: Any) -> Pod:
    """Return a running pod with the Binding of its line: GPUs 0 and 1 of node1."""
    written = {**assigned("0,1"), **others.pop("annotations", {})}
    return running(name, on, text, annotations=written, **others)


@dataclass(frozen=True)
class Case:
    """A pod, what its container has, and what `verify` says of it."""

    pod: Pod
    reading: Reading = SEES
    verdict: str = "ok"
    why: str | None = None
    value: str | None = "0,1"
    index: int | None = 0
    others: tuple[Pod, ...] = ()
    known: tuple[Node, ...] = ()
    claims: tuple[AllocatedClaim, ...] = ()
    more: Facts = field(default_factory=dict)
    """Other fields of the view."""


def views_of(case: Case) -> list[Facts]:
    """Return the views of the pod's containers, which all have the same reading."""
    known = nodes(*case.known)
    records = Records(known, claimed_by(ledger_of(case.pod, *case.others, known=known), known, *case.claims))
    names = [each.name for each in case.pod.environment.containers] or [""]
    return list(pod_views(case.pod, case.index, records, {(case.pod.ref, name): case.reading for name in names}))


GPUS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "abc"]
PAIR = ",".join(GPUS[:2])
COUNTED = {"agentaflow.gpu/count": "2"}
OBSERVER = {"agentaflow.gpu/observer": "true"}

KNOWN = node("node1", inventory=Inventory(tuple(map(Device, range(3), GPUS))))


def claimed(devices: str) -> Pod:
    """Return a running pod with ResourceClaims and a Binding of these devices."""
    return isolated("train-0", node="node1", phase="Running", annotations=assigned(devices), containers=(BY_FIELD,))


def saw(devices: str | None) -> Reading:
    """Return what is read in a container that sees these devices."""
    return Reading(devices, "PCI_BUS_ID")


def files(number: int) -> Reading:
    """Return what is read in a container that sees GPUs 0 and 1, and has device files of so many GPUs."""
    return replace(saw(PAIR), files=number)


CLAIMED = claimed(PAIR)
DEBUG = replace(BY_FIELD, kind=ContainerKind.EPHEMERAL)
CASES = {
    "a pod as its line says": Case(
        placed(),
        more={
            "expected": {"node": "node1", "visibleDevices": "0,1", "source": "map"},
            "held": {"devices": ["0", "1"], "unnamed": 0},
            "actual": {"visibleDevices": "0,1", "deviceOrder": "PCI_BUS_ID", "deviceFiles": None},
        },
    ),
    "a line without GPUs": Case(
        placed(text="0=node1:", annotations=assigned("")), saw(""), value="", more={"observer": False}
    ),
    "a line that names its node by the alias": Case(
        placed(text="0=small:0,1"), known=(node("node1", alias="small"),), more={"node": "node1"}
    ),
    "a pod that a strategy placed": Case(
        placed("job-x", text=None, annotations={**COUNTED, **assigned("0,1")}),
        index=None,
        more={"expected": {"node": "node1", "visibleDevices": "0,1", "source": "Binding"}},
    ),
    "a pod with a dynamic index, by the line that it got": Case(
        placed("any-x", annotations=assigned("0,1", index="0"), generate_name="any-", containers=(BY_FIELD,)),
        index=None,
    ),
    "an observer sees its GPUs and holds none": Case(
        placed(annotations=OBSERVER), more={"observer": True, "held": {"devices": [], "unnamed": 0}}
    ),
    "an observer stands beside the holder": Case(
        placed("look-0", annotations=OBSERVER, owner=None), others=(placed(),), more={"observer": True}
    ),
    "a pod that keeps a value of its own": Case(
        placed(annotations=KEEP, containers=own("3")),
        saw("3"),
        value="3",
        more={"held": {"devices": ["0", "1", "3"], "unnamed": 0}},
    ),
    "a device plugin chooses, and numbers from 0": Case(
        placed(text="0=node1:2,3", gpu_limits=(("main", 2),)),
        known=(GPU_NODE,),
        more={
            "expected": {"node": "node1", "visibleDevices": "0,1", "source": "Binding"},
            "held": {"devices": [], "unnamed": 2},
        },
    ),
    "a pod with claims sees the UUIDs of its line": Case(
        CLAIMED,
        saw(PAIR),
        value=PAIR,
        known=(KNOWN,),
        more={
            "expected": {"node": "node1", "visibleDevices": PAIR, "source": "map"},
            "held": {"devices": GPUS[:2], "unnamed": 0},
        },
    ),
    "a pod with claims whose GPUs are in no inventory has what its Binding says": Case(
        CLAIMED,
        saw(PAIR),
        value=PAIR,
        more={"expected": {"node": "node1", "visibleDevices": PAIR, "source": "Binding"}},
    ),
    "a pod with claims has other GPUs than its line means now": Case(
        claimed(f"{GPUS[0]},{GPUS[2]}"),
        saw(f"{GPUS[0]},{GPUS[2]}"),
        "differs",
        f"annotation agentaflow.gpu/assigned-devices says {GPUS[0]},{GPUS[2]}; the ledger holds {GPUS[0]},{GPUS[2]}; "
        "wrong devices",
        value=PAIR,
        known=(KNOWN,),
    ),
    "a pod with claims has the device files of its GPUs": Case(CLAIMED, files(2), value=PAIR, known=(KNOWN,)),
    "a pod with claims has the device files of all GPUs": Case(
        CLAIMED, files(3), "differs", "it has device files of 3 GPUs instead of 2", value=PAIR, known=(KNOWN,)
    ),
    "a pod with claims has no device files": Case(
        CLAIMED, files(0), "differs", "it has device files of 0 GPUs instead of 2", value=PAIR, known=(KNOWN,)
    ),
    "a debug container of a pod with claims has no device files": Case(
        replace(CLAIMED, environment=environment_of((DEBUG,))), files(0), value=PAIR, known=(KNOWN,)
    ),
    "a pod with claims whose device files were not listed": Case(
        CLAIMED,
        replace(files(2), files=None, unlisted="its device files: it has no program ls"),
        "unseen",
        "its device files: it has no program ls",
        value=PAIR,
        known=(KNOWN,),
    ),
    "a pod without claims may have any device files": Case(placed(), replace(SEES, files=8)),
    "another program bound it where its line says": Case(running("train-0", "node1", containers=(LITERAL,))),
    "the process sees another GPU": Case(placed(), saw("2"), "differs", "wrong devices"),
    "the process sees the GPUs in another order": Case(placed(), saw("1,0"), "differs", "wrong devices"),
    "the process has no such variable": Case(
        placed(),
        Reading(),
        "differs",
        "wrong devices; CUDA_DEVICE_ORDER is not PCI_BUS_ID",
        more={"actual": {"visibleDevices": None, "deviceOrder": None, "deviceFiles": None}},
    ),
    "the process sees all GPUs, and should see none": Case(
        placed(text="0=node1:", annotations=assigned("")), saw(None), "differs", "wrong devices", value=""
    ),
    "CUDA numbers the GPUs by speed": Case(
        placed(), Reading("0,1", "FASTEST_FIRST"), "differs", "CUDA_DEVICE_ORDER is not PCI_BUS_ID"
    ),
    "it runs on another node": Case(
        placed(on="node2"),
        verdict="differs",
        why=text_of("verify: another node", node="node1"),
        more={"node": "node2", "expected": {"node": "node1", "visibleDevices": "0,1", "source": "map"}},
    ),
    "the alias of its line means another node now": Case(
        placed(text="0=small:0,1"),
        verdict="differs",
        why=text_of("verify: another node", node="node4"),
        known=(node("node1"), node("node4", alias="small")),
    ),
    "no node has the name of its line": Case(
        placed(text="0=gone:0,1"), verdict="differs", why=text_of("verify: another node", node="gone")
    ),
    "the annotation says another node": Case(
        placed(annotations=assigned("0,1", "node2")),
        verdict="differs",
        why="annotation agentaflow.gpu/assigned-node says node2",
    ),
    "the annotation says other GPUs than the line": Case(
        placed(annotations=assigned("3")),
        verdict="differs",
        why="annotation agentaflow.gpu/assigned-devices says 3; the ledger holds 3",
        more={"held": {"devices": ["3"], "unnamed": 0}},
    ),
    "the annotation says no GPU": Case(
        placed(annotations=assigned("")),
        verdict="differs",
        why="annotation agentaflow.gpu/assigned-devices says no GPU; the ledger holds no GPU",
    ),
    "the Binding gave it another index": Case(
        placed(annotations=assigned("2", "node2", index="1"), on="node2"),
        saw("2"),
        "differs",
        "wrong index: annotation agentaflow.gpu/assigned-index does not say 0, its own",
        value="2",
    ),
    "its spec has another literal value": Case(
        running("train-0", "node1", containers=own("3")),
        saw("3"),
        "differs",
        "the ledger holds 3; wrong devices; its spec says CUDA_VISIBLE_DEVICES=3",
    ),
    "its spec has another literal value, and its process was not read": Case(
        placed(containers=own("3")),
        Reading(unseen="it has no program cat"),
        "differs",
        "its spec says CUDA_VISIBLE_DEVICES=3; it has no program cat",
        more={"actual": None},
    ),
    "its spec has another order": Case(
        placed(containers=(container((visible("0,1"), EnvVar("CUDA_DEVICE_ORDER", "FASTEST_FIRST"))),)),
        verdict="differs",
        why="its spec says CUDA_DEVICE_ORDER=FASTEST_FIRST",
    ),
    "of two entries of its spec the last is valid": Case(
        placed(containers=(container((visible("3"), visible("0,1"), PCI)),))
    ),
    "a value that nobody may keep": Case(
        placed(annotations=KEEP, containers=own("all")),
        saw("all"),
        "differs",
        "wrong devices; its spec says CUDA_VISIBLE_DEVICES=all",
    ),
    "drift: the annotation is missing": Case(
        running("job-x", "node1", None, annotations=COUNTED, containers=(BY_FIELD,)),
        saw(""),
        "differs",
        "drift: it reads its GPUs from annotation agentaflow.gpu/assigned-devices, which it does not have",
        value=None,
        index=None,
        more={"expected": {"node": None, "visibleDevices": None, "source": None}},
    ),
    "drift: one of its GPUs has another index now": Case(
        placed(annotations=assigned("0,1", uuids=PAIR)),
        verdict="differs",
        why="drift: " + text_of("a GPU has moved", gpu=1, uuid=GPUS[1], now=f"GPU 2 now, and {GPUS[2]} is GPU 1"),
        known=(node("node1", inventory=Inventory(tuple(map(Device, range(3), (GPUS[0], GPUS[2], GPUS[1]))))),),
    ),
    "nothing says its GPUs": Case(
        running("train-9", "node1", containers=(container(()),)),
        saw("7"),
        "differs",
        "neither a line of its map nor its Binding says its GPUs",
        value=None,
        index=9,
    ),
    "another pod holds its GPU": Case(
        placed(),
        verdict="differs",
        why=text_of("verify: a GPU is held twice", gpu=1, node="node1", pod="default/rival-0"),
        others=(running("rival-0", "node1", "0=node1:1", owner=None),),
    ),
    "a ResourceClaim of others holds its GPU": Case(
        placed(),
        verdict="differs",
        why=text_of("verify: a GPU is held twice", gpu=1, node="node1", pod="ResourceClaim team/training"),
        known=(KNOWN,),
        claims=(AllocatedClaim("team", "training", "uid-of-training", (device_id("node1", GPUS[1]),)),),
    ),
    "another pod has its index": Case(
        placed(text="0=node1:", annotations=assigned("")),
        saw(""),
        "differs",
        "index 0 of its workload is also held by default/double-0",
        value="",
        others=(running("double-0", "node1", "0=node1:"),),
    ),
    "the process could not be read": Case(
        placed(), Reading(unseen="it has no program cat"), "unseen", "it has no program cat", more={"actual": None}
    ),
    "a pod that waits is not compared": Case(
        pod("train-0", containers=own("3")), Reading(unseen="its pod has no node"), "unseen", "its pod has no node"
    ),
    "a pod that has ended is not compared": Case(
        replace(placed(containers=own("3"), on="node2"), phase="Failed"),
        Reading(unseen="its pod has ended (Failed)"),
        "unseen",
        "its pod has ended (Failed)",
        more={"held": {"devices": [], "unnamed": 0}},
    ),
    "a pod with too many containers": Case(
        placed(containers=()), Reading(unseen="too many"), "unseen", "too many", more={"container": ""}
    ),
}


@pytest.mark.promise("verify-1", "verify-2")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_container_has_a_verdict(case: Case) -> None:
    """What was compared, the verdict, and what differs."""
    (view,) = views_of(case)

    assert (view["verdict"], view["why"]) == (case.verdict, case.why)
    assert view["expected"]["visibleDevices"] == case.value
    assert {key: view[key] for key in case.more} == case.more


def test_only_the_device_files_of_gpus_are_counted() -> None:
    """NVIDIA's driver has others beside them, which every container with a GPU gets."""
    assert count_files(b"core\nfd\nnvidia-uvm\nnvidia-caps\nnvidia0\nnvidia12\nnvidiactl\nnull\n") == 2
    assert count_files(b"") == 0


def test_an_enormous_limit_is_not_counted() -> None:
    """A pod cannot fill our memory by its limit of GPUs."""
    (view,) = views_of(Case(placed(gpu_limits=(("main", 2**60),)), known=(GPU_NODE,)))

    assert view["verdict"] == "differs"
    assert len(view["expected"]["visibleDevices"]) < 10_000


def test_a_container_without_a_reading_has_no_row() -> None:
    """It has ended for good."""
    one = placed()

    assert not list(pod_views(one, 0, Records(nodes(), ledger_of(one)), {}))


def test_each_container_is_compared_alone() -> None:
    """One container of a pod that has another environment makes its own row differ, and no other."""
    both = placed(containers=(replace(LITERAL, name="good"), replace(LITERAL, name="bad", position=1)))
    records = Records(nodes(), ledger_of(both))
    readings = {(both.ref, "good"): SEES, (both.ref, "bad"): saw("3")}

    found = {view["container"]: view["verdict"] for view in pod_views(both, 0, records, readings)}

    assert found == {"good": "ok", "bad": "differs"}


OWN_READINGS = {
    "it has none": (Reading(files=0), "ok", None),
    "it has one": (Reading("3", files=1), "differs", text_of("verify: device files", files="1 GPU", held=0)),
}


@pytest.mark.promise("isolate-12")
@pytest.mark.parametrize(("helper", "verdict", "why"), OWN_READINGS.values(), ids=OWN_READINGS)
def test_a_container_that_does_not_use_the_pods_own_claim_has_no_gpu(
    helper: Reading, verdict: str, why: str | None
) -> None:
    """And needs no variable. The one that uses it is compared with the Binding."""
    used = container((FIELD_REF, PCI), claims=ContainerClaims(("gpu",), has_resources=True))
    containers = (used, container(None, position=1, name="helper"))
    bound = running(
        *("train-0", "node1", None),
        annotations=assigned(PAIR),
        containers=containers,
        own_claim=OwnClaim("gpu", "mine"),
    )
    known = nodes(KNOWN)
    records = Records(known, ledger_of(bound, known=known))
    readings = {(bound.ref, "main"): files(2), (bound.ref, "helper"): helper}

    found = {view["container"]: (view["verdict"], view["why"]) for view in pod_views(bound, None, records, readings)}

    assert found == {"main": ("ok", None), "helper": (verdict, why)}


KINDS = (
    Container(ContainerKind.CONTAINER, 0, "main", None),
    Container(ContainerKind.INIT, 0, "prepare", None),
    Container(ContainerKind.EPHEMERAL, 0, "debug", None),
)


def sorted_out(one: Pod, *known: Node, **states: ContainerState) -> tuple[dict[str, str], list[str]]:
    """Return why containers cannot be read, by name, and the names of those that can."""
    there = nodes(*known)
    unseen, readable = sort_out(
        [one], {one.ref.uid: PodDetails(0, states)}, Records(there, ledger_of(one, known=there))
    )
    return {name: reading.unseen for (_, name), reading in unseen.items()}, [name for _, name in readable]


@pytest.mark.promise("verify-3")
def test_running_containers_of_every_kind_are_read() -> None:
    """An init container that has ended is left out. One that has no status or does not run cannot be read."""
    three = placed(containers=KINDS)
    waits = ContainerState(why="ContainerCreating")

    assert sorted_out(three, main=RUNS, prepare=ContainerState(ended=True), debug=RUNS) == ({}, ["main", "debug"])
    assert sorted_out(three, main=waits, debug=replace(RUNS, not_first="process 1 is that of container main")) == (
        {
            "main": "it does not run (ContainerCreating)",
            "prepare": "it does not run (no status yet)",
            "debug": "process 1 is that of container main",
        },
        [],
    )


UNREADABLE = {
    "it has no node": (pod("train-0"), node("node1"), "its pod has no node"),
    "it has ended": (replace(placed(), phase="Succeeded"), node("node1"), "its pod has ended (Succeeded)"),
    "its node is not Ready": (placed(), node("node1", ready=False), "node node1 is not Ready"),
    "its node is gone": (placed(), node("node2"), "node node1 is not Ready"),
}


@pytest.mark.parametrize(("one", "known", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_pod_that_cannot_be_read(one: Pod, known: Node, why: str) -> None:
    """No command is sent where no kubelet can answer for a running container."""
    assert sorted_out(one, known, main=RUNS) == ({"main": why}, [])


def test_a_pod_that_is_too_large_to_be_kept() -> None:
    """It has a row, or it would seem to be well."""
    huge = placed(containers=(), excess=Excess("the pod", 1001, 1000, "containers"))

    assert sorted_out(huge) == ({"": str(Excess("the pod", 1001, 1000, "containers"))}, [])


ENVIRONMENTS = {
    "both variables": (b"A=1\0CUDA_VISIBLE_DEVICES=0,1\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0", SEES),
    "neither": (b"A=1\0", Reading()),
    "an empty value, and one with =": (b"CUDA_VISIBLE_DEVICES=\0X=a=b\0", Reading("")),
    "the first of two entries is valid": (b"CUDA_VISIBLE_DEVICES=0\0CUDA_VISIBLE_DEVICES=1\0", Reading("0")),
    "a name that ends like it": (b"MY_CUDA_VISIBLE_DEVICES=3\0", Reading()),
    "a value with line breaks": (b"X=\nCUDA_VISIBLE_DEVICES=3\0", Reading()),
    "bytes that are not UTF-8": (b"CUDA_VISIBLE_DEVICES=\xff\0", Reading("\N{REPLACEMENT CHARACTER}")),
}


@pytest.mark.parametrize(("data", "reading"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_an_environment_is_read(data: bytes, reading: Reading) -> None:
    """As getenv reads it."""
    assert read_environment(data) == reading


@pytest.mark.promise("verify-3")
@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"er process\0\0\0", b"CUDA_VISIBLE_DEVICES=0,1\0\0\0x"])
def test_an_environment_that_a_process_has_overwritten_is_unseen(data: bytes) -> None:
    """A process that sets its title writes over it: the variable may be set and not be there."""
    assert read_environment(data).unseen
