"""Rows: what a node, its room, its ports and its volumes may make a pod wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.asking import (
    Question,
    asker,
    foreign,
    gone,
    holder,
    labels,
    patched,
    plain,
    resources,
    stored,
    world,
)
from tests.objects import literal, node

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.objects import Object

TAINT: Final = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
LEAVING: Final = {"key": "example.com/leaving", "effect": "NoExecute"}
SPEC: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _tier(operator: str, *values: str) -> Object:
    expression = {"key": "tier", "operator": operator, **({"values": list(values)} if values else {})}
    return {"nodeAffinity": {SPEC: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def _one_alias_twice(bench: Bench) -> None:
    bench.node("node1", alias="gpu-a")
    bench.node("node2", alias="gpu-a")


def _without_its_claim(bench: Bench) -> None:
    bench.node("node1")
    bench.storage("Immediate")


def _claim_and_volume(bench: Bench) -> None:
    bench.claim("data")
    bench.provision("data")


SMALL: Final = node("node1", room={"cpu": "4", "memory": "8Gi", "pods": "2", "example.com/fpga": "2"})
HELD_DISK: Final = asker(claims=("data",))

IDENTITY: Final = (
    Question(
        "a node that does not exist is waited for",
        ("fit-1",),
        "NodeNotFound",
        ('"node1"',),
        lambda _: None,
        asker(),
        lambda bench: bench.node("node1"),
    ),
    Question(
        "an alias that two nodes carry is waited for until one drops it",
        ("map-11",),
        "NodeAmbiguous",
        ("gpu-a", "node1", "node2"),
        _one_alias_twice,
        asker("0=gpu-a:0\n"),
        patched(labels(gpu_node_name=None), "node2"),
    ),
    Question(
        "a node that is not ready is waited for",
        ("fit-2",),
        "NodeNotReady",
        ("node1",),
        world(node("node1", ready=False)),
        asker(),
        lambda bench: bench.set_ready("node1", ready=True),
    ),
    Question(
        "a cordoned node is waited for",
        ("fit-3",),
        "NodeUnschedulable",
        ("node1",),
        world(node("node1", unschedulable=True)),
        asker(),
        lambda bench: bench.cordon("node1", cordoned=False),
    ),
    Question(
        "a taint that is not tolerated is named",
        ("fit-4",),
        "TaintNotTolerated",
        ("node1", "maintenance"),
        world(node("node1", taints=(TAINT,))),
        asker(tolerations=[{"key": "maintenance", "operator": "Equal", "value": "tomorrow"}]),
        patched({"spec": {"taints": []}}),
    ),
    Question(
        "a taint that evicts keeps new pods away too",
        ("fit-4",),
        "TaintNotTolerated",
        ("node1", "example.com/leaving"),
        world(node("node1", taints=(LEAVING,))),
        asker(tolerations=[{"key": "example.com/leaving", "operator": "Exists", "effect": "NoSchedule"}]),
        patched({"spec": {"taints": []}}),
    ),
    Question(
        "a node selector waits for its label",
        ("fit-5",),
        "NodeAffinityMismatch",
        ("node1",),
        plain(),
        asker(nodeSelector={"tier": "gold"}),
        patched(labels(tier="gold")),
    ),
    Question(
        "required node affinity waits for its label",
        ("fit-6",),
        "NodeAffinityMismatch",
        ("node1",),
        plain(),
        asker(affinity=_tier("In", "gold", "silver")),
        patched(labels(tier="silver")),
    ),
    Question(
        "required node affinity compares numbers",
        ("fit-6",),
        "NodeAffinityMismatch",
        ("node1",),
        world(node("node1", labels={"tier": "3"})),
        asker(affinity=_tier("Gt", "3")),
        patched(labels(tier="4")),
    ),
    Question(
        "required node affinity may ask for a label to be absent",
        ("fit-6",),
        "NodeAffinityMismatch",
        ("node1",),
        world(node("node1", labels={"tier": "bronze"})),
        asker(affinity=_tier("DoesNotExist")),
        patched(labels(tier=None)),
    ),
)

ROOM: Final = (
    Question(
        "too little CPU is told with what is asked, used and free",
        ("fit-8", "fit-10"),
        "InsufficientResources",
        ("cannot fit on node node1: asks for 1 cpu, 3.5 of 4 are used, 0.5 are free",),
        world(SMALL, foreign(requests={"cpu": "3500m"})),
        asker(requests={"cpu": "1"}),
        gone("foreign-0"),
    ),
    Question(
        "too little memory is told with what is asked, used and free",
        ("fit-8",),
        "InsufficientResources",
        ("node1", "memory", "4Gi", "6Gi", "8Gi", "2Gi"),
        world(SMALL, holder("0=node1:1\n", literal("1"), requests={"memory": "6Gi"})),
        asker(requests={"memory": "4Gi"}),
        gone(),
    ),
    Question(
        "memory that a node gains is noticed",
        ("fit-8",),
        "InsufficientResources",
        ("node1", "memory"),
        world(SMALL),
        asker(requests={"memory": "10Gi"}),
        patched(resources(memory="12Gi")),
    ),
    Question(
        "a node takes no more pods than it says, whoever placed them",
        ("fit-9", "fit-10"),
        "InsufficientResources",
        ("node1", "pods"),
        world(SMALL, foreign(), holder("0=node1:1\n", literal("1"))),
        asker(),
        gone("foreign-0"),
    ),
    Question(
        "extended resources are counted",
        ("fit-9", "fit-10"),
        "InsufficientResources",
        ("node1", "example.com/fpga"),
        world(SMALL, foreign(limits={"example.com/fpga": "1"})),
        asker(limits={"example.com/fpga": "2"}),
        gone("foreign-0"),
    ),
    Question(
        "an extended resource that the node does not have may still come",
        ("fit-9",),
        "InsufficientResources",
        ("node1", "example.com/asic"),
        world(SMALL),
        asker(limits={"example.com/asic": "1"}),
        patched(resources(**{"example.com/asic": "1"})),
    ),
    Question(
        "a pod of another scheduler that has finished gives its room back",
        ("fit-10",),
        "InsufficientResources",
        ("node1", "cpu"),
        world(SMALL, foreign(requests={"cpu": "4"})),
        asker(requests={"cpu": "1"}),
        lambda bench: bench.finish("foreign-0", "Failed"),
    ),
    Question(
        "a host port in use names who has it",
        ("fit-7",),
        "PortInUse",
        ("node1", "8080", "{ns}/foreign-0"),
        plain(foreign(port=8080)),
        asker(port=8080),
        gone("foreign-0"),
    ),
)

STORAGE: Final = (
    Question(
        "a claim that is not there yet is waited for",
        ("fit-13",),
        "VolumeNotBound",
        ("data",),
        _without_its_claim,
        HELD_DISK,
        _claim_and_volume,
        retold="is not bound",
    ),
    Question(
        "a claim that is not bound yet is waited for",
        ("fit-13",),
        "VolumeNotBound",
        ("data", "is not bound"),
        stored("Immediate"),
        HELD_DISK,
        lambda bench: bench.provision("data"),
    ),
    Question(
        "a volume that the node cannot reach keeps the pod away from it",
        ("fit-12",),
        "NodeAffinityMismatch",
        ("node1",),
        stored("Immediate", volume_of="node1"),
        HELD_DISK,
        patched({"metadata": {"labels": {"kubernetes.io/hostname": "node1"}}}),
    ),
    Question(
        "a claim for the first consumer is told the node, and the pod waits for its volume",
        ("fit-13",),
        "VolumeNotBound",
        ("data", "waits for its provisioner"),
        stored("WaitForFirstConsumer"),
        HELD_DISK,
        lambda bench: bench.provision_selected("data"),
    ),
)

QUESTIONS: Final = (*IDENTITY, *ROOM, *STORAGE)
