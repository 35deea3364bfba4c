"""What a namespace's limit leaves its pods: maps, counts, shared devices, and those that a device plugin gives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import QuotaChanged
from gpu_scheduler.core.decide import Cluster, decide
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.namespace_usage import Held, NamespaceUsage, NodeDevice
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.nodes.inventory import Device, DevicePart, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.core.build import KEEP, bound, ledger, node, nodes, own, pod, running

GPU_A, GPU_B = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1))
MIG_A, MIG_B = (f"MIG-{number}0000000-0000-0000-0000-000000000000" for number in (1, 2))
SLICED: Final = Inventory((Device(0, GPU_A, (MIG_A, MIG_B)), Device(1, GPU_B)))
CARDS: Final = Inventory(tuple(Device(index, None, memory=16384) for index in range(4)))
SHARED: Final = {names.EXCLUSIVE: "false", names.MEMORY: "1024"}
PLUGGED: Final = {"advertised": 4, "allocatable": {"pods": 110, names.GPU_RESOURCE: 4}}


def cluster(text: str, *bound: Pod, known: tuple[Node, ...] = (), policy: Policy | None = None) -> Cluster:
    """These pods on these nodes, or on node1 to node4, under these limits."""
    policy, there = policy or Policy(), nodes(*known)
    limits, faults = parse_limits(text)
    assert faults == ()
    return Cluster(ledger(*bound, policy=policy, known=there), there, Volumes(), policy, limits=limits)


def waits(decision: Decision | None) -> str:
    """Why the pod waits: for quota, and for nothing that is not its namespace's."""
    assert isinstance(decision, Wait), decision
    assert decision.reason is Reason.QUOTA_EXCEEDED
    assert QuotaChanged("default") in decision.cured_by
    return decision.message


def counting(name: str, count: int = 1, given: Mapping[str, str] | None = None, **others: Any) -> Pod:
    """A pod that a strategy places."""
    return pod(name, None, annotations={names.COUNT: str(count), **(given or {})}, owner=None, **others)


def limited(name: str, count: int, text: str, **others: Any) -> Pod:
    """A pod with a limit that a device plugin answers."""
    resource_request = ResourceRequest({names.GPU_RESOURCE: count})
    return pod(name, text, gpu_limits=(("main", count),), resource_request=resource_request, **others)


HELD: Final = running("train-0", "node1")  # 0=node1:0,1
OTHER: Final = Owner("StatefulSet", "other")
ELSEWHERE: Final = "0=node1:2\n1=node2:0,1\n2=node4:\n3=node1:1\n"

FITS = {
    "up to the limit": ("default: devices=3", pod("other-0", ELSEWHERE, owner=OTHER)),
    "with a limit of another namespace": ("team-a: devices=0", pod("other-0", ELSEWHERE, owner=OTHER)),
    "where its own line lifts that of all others": (
        "*: devices=0\ndefault: devices=unlimited",
        pod("other-0", ELSEWHERE, owner=OTHER),
    ),
    "without a device": ("default: devices=0", pod("other-2", ELSEWHERE, owner=OTHER)),
    "as an observer": (
        "default: devices=0",
        pod("other-0", ELSEWHERE, owner=OTHER, annotations={names.OBSERVER: "true"}),
    ),
    "as an observer by count": ("default: devices=0", counting("a", 1, {names.OBSERVER: "true"})),
    "on a device that its namespace holds already": (
        "default: devices=2",
        pod("train-1", "0=node1:0,1\n1=node1:1", annotations={names.SHARING: "any"}),
    ),
}


@pytest.mark.parametrize(("text", "asking"), FITS.values(), ids=FITS)
def test_a_pod_within_its_namespaces_limit_is_placed(text: str, asking: Pod) -> None:
    """Nobody is limited who was not meant; a device that several pods of the namespace share counts once."""
    held = running("train-0", "node1", annotations={names.SHARING: "any"})
    known = tuple(node(f"node{number}", inventory=CARDS) for number in range(1, 5))

    assert isinstance(decide(asking, cluster(text, held, known=known)), Bind)


WAITS = {
    "by its line": ("default: devices=2", pod("other-0", ELSEWHERE, owner=OTHER)),
    "by the line of all others": ("*: devices=2", pod("other-0", ELSEWHERE, owner=OTHER)),
    "by any line": (
        "default: devices=2",
        pod("other-abcde", "0=node1:2\n1=node2:0", owner=Owner("Job", "other"), generate_name="other-"),
    ),
    "by what it keeps": (
        "default: devices=3",
        pod("other-0", ELSEWHERE, owner=OTHER, annotations=KEEP, containers=own("2,3")),
    ),
    "by count": ("default: devices=2", counting("a")),
    "by a shared count": ("default: devices=2", counting("a", 1, SHARED)),
}


@pytest.mark.parametrize(("text", "asking"), WAITS.values(), ids=WAITS)
def test_a_pod_beyond_its_namespaces_limit_waits(text: str, asking: Pod) -> None:
    """However it asks; GPUs are free, and others may have them."""
    known = tuple(node(f"node{number}", inventory=CARDS) for number in range(1, 5))
    under = cluster(text, HELD, known=known)

    waits(decide(asking, under))
    assert isinstance(decide(replace(asking, ref=replace(asking.ref, namespace="team-b")), under), Bind)


def test_what_its_owner_reads() -> None:
    """How many its namespace holds and may hold, and the cure."""
    message = waits(decide(pod("other-1", ELSEWHERE, owner=OTHER), cluster("default: devices=3", HELD)))

    assert message == (
        "QuotaExceeded: cannot give 2 more GPUs to namespace default: its pods hold 2, "
        "and namespace default may hold 3; wait until pods there end (kubectl gpu-scheduler workloads -n default), "
        "or ask an operator to correct "
        "ConfigMap gpu-scheduler-limits (example: default: devices=4)"
    )


def test_a_pod_that_alone_asks_for_more_is_told_so() -> None:
    """No waiting cures that: it is told before who holds the devices, and before what others of its namespace hold."""
    holder = running("b-0", "node2", "0=node2:0", namespace="team-b")
    under = cluster("default: devices=1", HELD, holder)
    asked = waits(decide(pod("other-1", ELSEWHERE, owner=OTHER), under))

    assert asked == (
        "QuotaExceeded: cannot give 2 GPUs to one pod: namespace default may hold 1; "
        "ask for fewer in the pod's template and make the pod anew, or ask an operator to correct "
        "ConfigMap gpu-scheduler-limits "
        "(example: default: devices=2)"
    )
    assert "cannot give 4 GPUs to one pod" in waits(decide(counting("a", 4), under))


def test_quota_is_told_before_who_holds_the_device() -> None:
    """No other device would cure it."""
    holder = running("b-0", "node1", "0=node1:2", namespace="team-b")

    waits(decide(pod("other-0", ELSEWHERE, owner=OTHER), cluster("default: devices=2", HELD, holder)))


def test_what_no_node_has_is_told_before_quota() -> None:
    """No waiting cures it."""
    known = (node("node1", inventory=CARDS),)
    decision = decide(counting("a", 5), cluster("default: devices=6", HELD, known=known))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.GPU_NOT_FOUND


def test_a_namespace_whose_line_cannot_be_read() -> None:
    """Its owner reads whose fault it is."""
    limits, _ = parse_limits("default: devices=x")
    message = waits(decide(pod(), cluster("").limited(limits)))

    assert "the line of namespace default in ConfigMap gpu-scheduler-limits cannot be read" in message
    assert "template" not in message


def test_a_device_that_two_pods_share_counts_once() -> None:
    """As pods 3 and 4 of the map share GPU 3 of node4; it counts until the second is gone."""
    third, fourth, asking = running("train-3", "node4"), running("train-4", "node4"), pod("train-1")
    under = cluster("default: devices=2", third, fourth)
    assert isinstance(decide(asking, under), Bind)
    full = cluster("default: devices=1", third, fourth)
    full.ledger.forget(third.ref.uid)

    waits(decide(asking, full))
    full.ledger.forget(fourth.ref.uid)
    assert isinstance(decide(asking, full), Bind)


def test_two_slices_of_a_card_are_two_devices() -> None:
    """And two names of one card are one device."""
    known = (node("node1", inventory=SLICED),)
    slices = f"0=node1:{MIG_A}\n1=node1:{MIG_B}\n"
    cards = f"0=node1:{GPU_B}\n1=node1:{GPU_A}\n"
    willing = {names.SHARING: "any"}
    held = running("cards-0", "node1", cards, annotations=willing)
    under = cluster("default: devices=2", running("train-0", "node1", slices), held, known=known)

    waits(decide(pod("train-1", slices), under))
    assert isinstance(decide(pod("other-0", "0=node1:1", owner=OTHER, annotations=willing), under), Bind)


def test_what_a_device_plugin_gives_counts() -> None:
    """By number: whichever they are, and for an observer too, because the plugin gives them to nobody else."""
    known = (node("node1", **PLUGGED), node("node2", **PLUGGED))
    text = "0=node1:0,1\n1=node2:0,1\n"
    under = cluster("default: devices=3", limited("train-0", 2, text, node="node1"), known=known)

    waits(decide(limited("train-1", 2, text), under))
    waits(decide(limited("train-1", 2, text, annotations={names.OBSERVER: "true"}), under))
    waits(decide(counting("a", 2, gpu_limits=(("main", 2),)), under))


def test_a_shared_count_takes_a_device_that_its_namespace_holds() -> None:
    """Where the limit leaves it no other, though the strategy would choose an idle one."""
    known = tuple(node(name, inventory=CARDS) for name in ("node1", "node2", "node3"))
    held = bound(counting("a", 1, SHARED), Placement("node2", ("3",), None), "")
    here, there = cluster("default: devices=1", held, known=known), cluster("default: devices=2", held, known=known)
    tight, roomy = decide(counting("b", 1, SHARED), here), decide(counting("b", 1, SHARED), there)

    assert isinstance(tight, Bind)
    assert isinstance(roomy, Bind)
    assert (tight.placement.node, tight.placement.devices) == ("node2", ("3",))
    assert (roomy.placement.node, roomy.placement.devices) != ("node2", ("3",))
    waits(decide(counting("c", 3, SHARED), there))


def test_only_known_cards_are_shared_by_count() -> None:
    """A strategy places nobody where a node's cards are unknown."""
    usage = NamespaceUsage()
    usage.put("default", Held([NodeDevice("node1", "0"), NodeDevice("node2", DevicePart(1))], 2))

    assert usage.cards("default") == {"node2": {1}}
    assert usage.used("default") == 4


def test_a_terminating_pod_still_counts() -> None:
    """It holds its devices until it is gone."""
    leaving = replace(HELD, deleting_since="2026-11-21T01:00:00Z")

    waits(decide(pod("other-0", ELSEWHERE, owner=OTHER), cluster("default: devices=2", leaving)))
    assert isinstance(decide(pod("other-0", ELSEWHERE, owner=OTHER), cluster("default: devices=2")), Bind)


PRIORITY: Final = {names.PRIORITY: "1000000000", names.STRATEGY: "priority"}


def test_a_priority_beyond_the_maximum_is_said_with_the_placement() -> None:
    """Once, where the owner reads where the pod runs; not where priorities count for nothing."""
    known = (node("node1", inventory=CARDS),)
    under = cluster("default: priority=1000", known=known)
    asked = decide(counting("a", 1, PRIORITY), under)
    within = decide(counting("a", 1, {**PRIORITY, names.PRIORITY: "1000"}), under)
    idle = decide(counting("a", 1, {names.PRIORITY: "1000000000"}), under)

    assert isinstance(asked, Bind)
    assert asked.message.endswith("; priority 1000000000 counts as 1000, the maximum of namespace default)")
    assert isinstance(within, Bind)
    assert isinstance(idle, Bind)
    assert "counts as" not in within.message + idle.message


def test_new_limits_keep_who_waits_for_gpus_informed() -> None:
    """What is known of the nodes for those who wait is not forgotten with the old limits."""
    before = Cluster(ledger(), nodes(), Volumes(), Policy(), Strategy.BEST_FIT)
    after = before.limited(parse_limits("*: devices=1")[0])

    assert after.candidates is before.candidates
    assert (after.strategy, after.limits.of("any").devices) == (Strategy.BEST_FIT, 1)
