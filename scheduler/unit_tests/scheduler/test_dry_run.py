"""The dry run of the scheduling loop: what it applies, assumes and reserves, and in which order pods are decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.volumes import StorageClass, VolumeClaim
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.nodes.device_pools import DeviceId
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Inventory
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.ports import InputKind
from unit_tests.core.build import FIELD_REF, PCI, bound, container, isolated, node, pod

ONE = "0=node1:0\n"
ANY_LINE: dict[str, Any] = {"owner": None, "generate_name": "web-", "containers": (container((FIELD_REF, PCI)),)}


def of(*inputs: tuple[InputKind, Any]) -> DryRun:
    dry_run = DryRun(Policy())
    for kind, value in inputs:
        dry_run.apply(kind, value)
    return dry_run


def pods(*each: Pod) -> list[tuple[InputKind, Any]]:
    return [(InputKind.POD, one) for one in each]


def counting(name: str, created: str = "", **annotations: str) -> Pod:
    given = {f"agentaflow.gpu/{key.replace('_', '-')}": text for key, text in {"count": "1", **annotations}.items()}
    return pod(name, None, owner=None, annotations=given, created=created, containers=(container((FIELD_REF, PCI)),))


NODE = (
    InputKind.NODE,
    node(
        "node1",
        inventory=Inventory((Device(0, "GPU-0", (), "A100", 40960),)),
        readings={0: DeviceReading(0, 0)},
        monitored=True,
    ),
)


def test_what_is_decided_is_assumed() -> None:
    """The next pod finds the GPU held, as in the loop. A pod with a placement gets no second one."""
    first, second = pod("a-0", ONE), pod("b-0", ONE, owner=None)
    dry_run = of(NODE, *pods(first, second))

    bind, wait = dry_run.decide(first.ref.uid), dry_run.decide(second.ref.uid)

    assert isinstance(bind, Bind)
    assert isinstance(wait, Wait)
    assert wait.reason == "GpuHeld"
    assert dry_run.decide(first.ref.uid) is None
    assert [each.ref.name for each in dry_run.pending()] == ["b-0"]
    assert [each.ref.name for each in dry_run.pods] == ["a-0", "b-0"]
    assert dry_run.pod(first.ref.uid) is first
    assert dry_run.pod("unknown") is None


def test_a_claim_is_released_with_the_last_pod_that_has_it() -> None:
    """As kube-controller-manager does a while after its deletion."""
    shared = "0=node1:0\n1=node1:0\n"
    first, second = (isolated(name, shared) for name in ("train-0", "train-1"))
    claim = AllocatedClaim(
        "default",
        first.resource_claims[0],
        "1",
        (DeviceId("gpu.nvidia.com", "node1", "gpu-0"),),
        (first.ref.uid, second.ref.uid),
    )
    dry_run = of(NODE, (InputKind.DEVICE_CLAIM, claim), *pods(first, second, pod("b-0", ONE, owner=None)))

    reasons = []
    for each in (first, second):
        dry_run.evict(each)
        decision = dry_run.decide("uid-of-default/b-0")
        reasons.append(decision.reason if isinstance(decision, Wait) else "")
    assert reasons == ["GpuHeld", ""]


def test_a_release_and_the_end_of_a_holder_free_the_gpu() -> None:
    """The pod whose bind failed is pending again. The next one gets the GPU when its holder is gone."""
    first, second = pod("a-0", ONE), pod("b-0", ONE, owner=None)
    dry_run = of(NODE, *pods(first, second))

    assert isinstance(dry_run.decide(first.ref.uid), Bind)
    dry_run.apply(InputKind.RELEASED, first.ref)
    assert [each.ref.name for each in dry_run.pending()] == ["a-0", "b-0"]
    bind = dry_run.decide(first.ref.uid)
    assert isinstance(bind, Bind)
    dry_run.apply(InputKind.POD, bound(first, bind.placement))
    assert isinstance(dry_run.decide(second.ref.uid), Wait)
    dry_run.apply(InputKind.POD, first, gone=True)
    assert isinstance(dry_run.decide(second.ref.uid), Bind)
    dry_run.apply(InputKind.POD, first, gone=True)


def test_a_repaired_ledger_keeps_what_is_assumed() -> None:
    """It is rebuilt from the objects and the assumptions."""
    first = pod("a-0", ONE)
    dry_run = of(NODE, *pods(first))
    dry_run.decide(first.ref.uid)

    dry_run.apply(InputKind.REPAIRED, None)

    assert dry_run.cluster.ledger.holds(first.ref.uid)


def test_a_node_that_is_gone_is_not_found() -> None:
    """The pod waits for it, and is refused for a fault of its own text."""
    wrong, right = pod("bad-0", "0=node1:x"), pod("a-0", ONE)
    dry_run = of(NODE, *pods(wrong, right))

    dry_run.apply(*NODE, gone=True)

    wait = dry_run.decide(right.ref.uid)
    assert isinstance(wait, Wait)
    assert wait.reason == "NodeNotFound"
    assert isinstance(dry_run.decide(wrong.ref.uid), Refuse)


def test_a_line_is_reserved_while_volumes_are_provisioned() -> None:
    """A pod that takes any line keeps its line; another pod takes the next. Its end frees the line."""
    text = "0=node1:0\n1=node1:1\n"
    web = pod("web-bcd12", text, claims=("data",), **ANY_LINE)
    storage = [
        (InputKind.STORAGE_CLASS, StorageClass("fast", waits_for_consumer=True)),
        (InputKind.CLAIM, VolumeClaim("default", "data", None, "fast")),
    ]
    dry_run = of((InputKind.NODE, node("node1")), *storage, *pods(web))

    wait = dry_run.decide(web.ref.uid)

    assert isinstance(wait, Wait)
    assert wait.selection is not None
    assert dry_run.cluster.ledger.reserved(web.ref.uid) == 0
    dry_run.apply(InputKind.POD, replace(web, phase="Failed"))
    assert dry_run.cluster.ledger.reserved(web.ref.uid) is None
    dry_run.apply(InputKind.CLAIM, VolumeClaim("default", "data", None, "fast"), gone=True)
    assert dry_run.pending() == []


def test_a_pod_of_another_scheduler_takes_its_part() -> None:
    """What it uses is not free, until it is gone."""
    request = ResourceRequest({"cpu": 8000})
    other = ForeignPod(PodRef("default", "other", "u"), "node1", request)
    asking = pod("a-0", ONE, resource_request=request)
    dry_run = of(NODE, (InputKind.FOREIGN_POD, other), *pods(asking))

    assert isinstance(dry_run.decide(asking.ref.uid), Wait)
    dry_run.apply(InputKind.FOREIGN_POD, other, gone=True)
    assert isinstance(dry_run.decide(asking.ref.uid), Bind)


ORDERS: dict[str, tuple[str, str, list[str]]] = {
    "by priority, then by age": ("priority", "", ["urgent", "old", "young"]),
    "by age where the strategy ignores priorities": ("best_fit", "", ["old", "urgent", "young"]),
    "by priority up to the namespace's maximum": ("priority", "default: priority=0", ["old", "urgent", "young"]),
}


@pytest.mark.parametrize(("strategy", "limits", "expected"), ORDERS.values(), ids=ORDERS)
def test_pending_pods_are_in_the_order_of_the_scheduling_queue(strategy: str, limits: str, expected: list[str]) -> None:
    """Strategy and limits decide."""
    waiting = pods(
        counting("young", "2026-01-01T00:00:03Z"),
        counting("urgent", "2026-01-01T00:00:02Z", priority="7"),
        counting("old", "2026-01-01T00:00:01Z"),
        replace(counting("gated", "2026-01-01T00:00:00Z"), gated=True),
    )
    settings = [(InputKind.STRATEGY, Strategy(strategy)), (InputKind.LIMITS, parse_limits(limits)[0])]

    assert [each.ref.name for each in of(*settings, *waiting).pending()] == expected


def test_namespaces_take_turns_among_pending_pods() -> None:
    """The namespace of the oldest pod begins; `spec.priority` goes before."""
    waiting = [
        replace(pod(f"{place}-{second}", None, namespace=place), created=f"2026-01-01T00:00:0{second}Z")
        for place, second in (("b", 1), ("b", 2), ("b", 3), ("a", 4), ("a", 5), ("c", 6))
    ]
    waiting[2] = replace(waiting[2], priority=1)

    names = [each.ref.name for each in of(*pods(*waiting)).pending()]
    assert names == ["b-3", "b-1", "a-4", "c-6", "b-2", "a-5"]
