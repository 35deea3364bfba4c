"""The limit of a namespace: for pods with maps and counts, for shared devices, and for devices of a plugin."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import QuotaChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.namespace_usage import Held, NamespaceUsage, NodeDevice
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.nodes.inventory import Device, DevicePart, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says, text_of
from unit_tests.core.build import KEEP, bound, ledger, limit, node, nodes, own, pod, running

INVENTORY: Final = Inventory(tuple(Device(index, None, memory=16384) for index in range(4)))
SHARED: Final = {names.EXCLUSIVE: "false", names.MEMORY: "1024"}
PLUGGED: Final = {"advertised": 4, "allocatable": {"pods": 110, names.GPU_RESOURCE: 4}}


def cluster(text: str, *bound: Pod, known: tuple[Node, ...] = (), policy: Policy | None = None) -> Cluster:
    """Return a cluster with these pods, nodes (by default node1 to node4) and limits."""
    policy, all_nodes = policy or Policy(), nodes(*known)
    limits, faults = parse_limits(text)
    assert faults == ()
    return Cluster(ledger(*bound, policy=policy, known=all_nodes), all_nodes, Volumes(), policy, limits=limits)


def assert_waits(decision: Decision | None) -> str:
    """Check that the pod waits for its namespace's quota; return the message."""
    assert isinstance(decision, Wait), decision
    assert decision.reason is Reason.QUOTA_EXCEEDED
    assert QuotaChanged("default") in decision.cured_by
    return decision.message


def counting(name: str, count: int = 1, given: Mapping[str, str] | None = None, **others: Any) -> Pod:
    """Return a pod with a count, which a strategy places."""
    return pod(name, None, annotations={names.COUNT: str(count), **(given or {})}, owner=None, **others)


def limited(name: str, count: int, text: str, **others: Any) -> Pod:
    """Return a pod with a limit, whose devices a device plugin allocates."""
    return pod(name, text, **limit(count), **others)


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
    """A limit applies to its namespace alone; a device that several of its pods share counts once."""
    held = running("train-0", "node1", annotations={names.SHARING: "any"})
    known = tuple(node(f"node{number}", inventory=INVENTORY) for number in range(1, 5))

    assert isinstance(decide(asking, cluster(text, held, known=known)), Bind)


WAITS = {
    "by its line": ("default: devices=2", pod("other-0", ELSEWHERE, owner=OTHER)),
    "by the line of all others": ("*: devices=2", pod("other-0", ELSEWHERE, owner=OTHER)),
    "by any line": (
        "default: devices=2",
        pod("other-abcde", "0=node1:2\n1=node2:0", owner=Owner("Job", "other"), generate_name="other-"),
    ),
    "by the devices that its container sets": (
        "default: devices=3",
        pod("other-0", ELSEWHERE, owner=OTHER, annotations=KEEP, containers=own("2,3")),
    ),
    "by count": ("default: devices=2", counting("a")),
    "by a shared count": ("default: devices=2", counting("a", 1, SHARED)),
}


@pytest.mark.promise("quota-1", "quota-2")
@pytest.mark.parametrize(("text", "asking"), WAITS.values(), ids=WAITS)
def test_a_pod_beyond_its_namespaces_limit_waits(text: str, asking: Pod) -> None:
    """The GPUs are free: a pod of another namespace is placed."""
    known = tuple(node(f"node{number}", inventory=INVENTORY) for number in range(1, 5))
    under = cluster(text, HELD, known=known)

    assert_waits(decide(asking, under))
    assert isinstance(decide(replace(asking, ref=replace(asking.ref, namespace="team-b")), under), Bind)


def test_the_message_has_the_held_devices_and_the_limit() -> None:
    """The pod's owner reads how many devices the namespace holds and may hold, and the remedy."""
    message = assert_waits(decide(pod("other-1", ELSEWHERE, owner=OTHER), cluster("default: devices=3", HELD)))

    says(message, "QuotaExceeded", "2", "3", "default: devices=4", "kubectl gpu-scheduler workloads -n default")


def test_a_pod_that_requests_more_than_the_limit_has_its_own_message() -> None:
    """Waiting does not help: this is reported before holders of the devices, and before the namespace's other pods."""
    holder = running("b-0", "node2", "0=node2:0", namespace="team-b")
    under = cluster("default: devices=1", HELD, holder)
    asked = assert_waits(decide(pod("other-1", ELSEWHERE, owner=OTHER), under))

    says(asked, "QuotaExceeded", "2 GPUs", "1", "default: devices=2")
    assert "cannot give 4 GPUs to one pod" in assert_waits(decide(counting("a", 4), under))


def test_quota_is_reported_before_a_held_device() -> None:
    """Another device would not help."""
    holder = running("b-0", "node1", "0=node1:2", namespace="team-b")

    assert_waits(decide(pod("other-0", ELSEWHERE, owner=OTHER), cluster("default: devices=2", HELD, holder)))


def test_a_count_that_no_node_has_is_reported_before_quota() -> None:
    """Waiting for quota does not help."""
    known = (node("node1", inventory=INVENTORY),)
    decision = decide(counting("a", 5), cluster("default: devices=6", HELD, known=known))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.GPU_NOT_FOUND


def test_the_message_names_a_line_that_cannot_be_read() -> None:
    """The pod's owner reads that the operator's ConfigMap is at fault, not the pod."""
    limits, _ = parse_limits("default: devices=x")
    message = assert_waits(decide(pod(), cluster("").limited(limits)))

    assert text_of("the line of a namespace cannot be read", namespace="default") in message
    assert "template" not in message


def test_devices_of_a_plugin_count() -> None:
    """They count by number, for an observer too, because the plugin gives them to no other pod."""
    known = (node("node1", **PLUGGED), node("node2", **PLUGGED))
    text = "0=node1:0,1\n1=node2:0,1\n"
    under = cluster("default: devices=3", limited("train-0", 2, text, node="node1"), known=known)

    assert_waits(decide(limited("train-1", 2, text), under))
    assert_waits(decide(limited("train-1", 2, text, annotations={names.OBSERVER: "true"}), under))
    assert_waits(decide(counting("a", 2, gpu_limits=(("main", 2),)), under))


def test_a_shared_count_takes_a_device_that_its_namespace_holds() -> None:
    """It does so where the limit allows no other device, though the strategy prefers an idle one."""
    known = tuple(node(name, inventory=INVENTORY) for name in ("node1", "node2", "node3"))
    held = bound(counting("a", 1, SHARED), Placement("node2", ("3",), None), "")
    here, there = cluster("default: devices=1", held, known=known), cluster("default: devices=2", held, known=known)
    limited_to_one, limited_to_two = decide(counting("b", 1, SHARED), here), decide(counting("b", 1, SHARED), there)

    assert isinstance(limited_to_one, Bind)
    assert isinstance(limited_to_two, Bind)
    assert (limited_to_one.placement.node, limited_to_one.placement.devices) == ("node2", ("3",))
    assert (limited_to_two.placement.node, limited_to_two.placement.devices) != ("node2", ("3",))
    assert_waits(decide(counting("c", 3, SHARED), there))


def test_only_known_devices_are_shared_by_count() -> None:
    """A strategy places no pod on a node whose devices are unknown."""
    usage = NamespaceUsage()
    usage.put("default", Held([NodeDevice("node1", "0"), NodeDevice("node2", DevicePart(1))], 2))

    assert usage.devices_of("default") == {"node2": {1}}
    assert usage.used("default") == 4


PRIORITY: Final = {names.PRIORITY: "1000000000", names.STRATEGY: "priority"}


@pytest.mark.promise("quota-7")
def test_a_priority_beyond_the_maximum_is_in_the_placement_message() -> None:
    """The message of the placement says it; not where the strategy does not use priorities."""
    known = (node("node1", inventory=INVENTORY),)
    under = cluster("default: priority=1000", known=known)
    asked = decide(counting("a", 1, PRIORITY), under)
    within = decide(counting("a", 1, {**PRIORITY, names.PRIORITY: "1000"}), under)
    idle = decide(counting("a", 1, {names.PRIORITY: "1000000000"}), under)

    assert isinstance(asked, Bind)
    assert "; priority 1000000000 counts as 1000, " in asked.message
    assert isinstance(within, Bind)
    assert isinstance(idle, Bind)
    assert "counts as" not in within.message + idle.message


def test_new_limits_keep_the_rankings() -> None:
    """The rankings of the nodes are kept when the limits change."""
    before = Cluster(ledger(), nodes(), Volumes(), Policy(), Strategy.BEST_FIT)
    after = before.limited(parse_limits("*: devices=1")[0])

    assert after.candidates is before.candidates
    assert (after.strategy, after.limits.of("any").devices) == (Strategy.BEST_FIT, 1)
