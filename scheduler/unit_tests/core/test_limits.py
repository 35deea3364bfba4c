"""Limits of nvidia.com/gpu: the scheduler chooses the node, the device plugin the devices if the node has one."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Assignment
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from tests.messages import says
from unit_tests.core.build import ROOM, container, decided, ledger, node, nodes, pod, running

GPU = "nvidia.com/gpu"
OBSERVER = {"agentaflow.gpu/observer": "true"}
OTHER = Owner("StatefulSet", "other")
UUID = "GPU-00000000-0000-0000-0000-000000000000"


def limited(number: int, *containers: str) -> dict[str, Any]:
    """Return the fields of a pod with a limit of so many devices in each container, as the webhook leaves them."""
    limits = tuple((name, number) for name in containers or ("main",))
    resource_request = ResourceRequest({GPU: number * len(limits)})
    return {"gpu_limits": limits, "resource_request": resource_request, "containers": (container(BY_FIELD),)}


def node_with_plugin(name: str = "node1", number: int = 4, *, allocatable: int | None = None) -> Node:
    """Return a node whose device plugin advertises so many devices."""
    left = number if allocatable is None else allocatable
    return node(name, advertised=number, inventory=counted(number), allocatable={**ROOM, GPU: left})


PLUGIN = node_with_plugin()
BARE = node("node1")
KNOWN = node("node1", inventory=Inventory((Device(0, UUID), Device(1), Device(2), Device(3))))

BOUND = {
    "the plugin chooses as many devices as the line names": (pod("a-0", "0=node1:2,3", **limited(2)), PLUGIN, "0,1"),
    "the plugin chooses where the line names no devices": (pod("a-0", "0=node1:", **limited(3)), PLUGIN, "0,1,2"),
    "all devices of the node": (pod("a-0", "0=node1:", **limited(4)), PLUGIN, "0,1,2,3"),
    "the plugin does not read the numbers of the line": (pod("a-0", "0=node1:9", **limited(1)), PLUGIN, "0"),
    "without a plugin the limit is only a count": (pod("a-0", "0=node1:2,3", **limited(2)), BARE, "2,3"),
    "with a known inventory the limit is only a count": (pod("a-0", "0=node1:0,1", **limited(2)), KNOWN, "0,1"),
    "a limit beside a line without devices, without a plugin": (pod("a-0", "0=node1:", **limited(1)), BARE, ""),
    "without a limit the pod gets the devices of the line, also beside a plugin": (
        pod("a-0", "0=node1:2,3"),
        PLUGIN,
        "2,3",
    ),
    "an observer with a limit": (pod("a-0", "0=node1:2", annotations=OBSERVER, **limited(1)), PLUGIN, "0"),
}


@pytest.mark.promise("limit-1")
@pytest.mark.parametrize(("pending", "known_node", "devices"), BOUND.values(), ids=BOUND)
def test_a_pod_with_a_limit_sees_devices(pending: Pod, known_node: Node, devices: str) -> None:
    """The numbers count from 0 where a plugin chooses the devices, else they are those of the line."""
    decision = decided(pending, known=nodes(known_node))

    assert isinstance(decision, Bind)
    assert decision.placement.value == devices


def test_the_binding_has_no_uuids_of_a_plugin_device() -> None:
    """The plugin chooses the devices, so their UUIDs are unknown, also with an inventory that has all UUIDs."""
    known = Inventory((Device(0, UUID),))
    known_node = replace(node_with_plugin(number=1), inventory=known)
    decision = decided(pod("a-0", "0=node1:0", **limited(1)), known=nodes(known_node))

    assert isinstance(decision, Bind)
    assert "agentaflow.gpu/assigned-uuids" not in decision.placement.annotations


NAMED = running("named-0", "node1", "0=node1:0", owner=OTHER)
LIMITED = running("plugged-0", "node1", "0=node1:", owner=OTHER, **limited(1))
OBSERVING = running("watching-0", "node1", "0=node1:0", owner=OTHER, annotations=OBSERVER)
EMPTY = running("empty-0", "node1", "0=node1:", owner=OTHER)
WITH, WITHOUT = pod("a-0", "0=node1:2", **limited(1)), pod("a-0", "0=node1:2")

HOLDERS = {
    "a limit waits for a pod that holds a device by name": (WITH, NAMED, "default/named-0 by name, and"),
    "a limit does not wait for another limit": (WITH, LIMITED, None),
    "a limit does not wait for an observer": (WITH, OBSERVING, None),
    "a limit does not wait for a pod without GPUs": (WITH, EMPTY, None),
    "a device by name waits for a pod with a limit": (WITHOUT, LIMITED, "default/plugged-0"),
    "a device by name does not wait for another device by name": (WITHOUT, NAMED, None),
    "an observer waits for no pod": (pod("a-0", "0=node1:2", annotations=OBSERVER), LIMITED, None),
    "a pod without GPUs waits for no pod": (pod("a-0", "0=node1:"), LIMITED, None),
}


@pytest.mark.promise("limit-4")
@pytest.mark.parametrize(("pending", "holder", "waits_for"), HOLDERS.values(), ids=HOLDERS)
def test_names_and_limits_exclude_each_other_beside_a_plugin(pending: Pod, holder: Pod, waits_for: str | None) -> None:
    """The scheduler cannot know which device the plugin chose; the message names the holder, whose end requeues it."""
    known = nodes(PLUGIN)
    held = ledger(holder, known=known)
    decision = decided(pending, held, known)

    if waits_for is None:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_HELD
        assert f"GPUs of node1 are held by {waits_for} " in decision.message
        assert held.forget(holder.ref.uid) & decision.cured_by


def test_names_and_limits_are_alike_without_a_plugin() -> None:
    """Both pods hold devices by name."""
    assert isinstance(decided(WITH, ledger(NAMED)), Bind)
    assert isinstance(decided(WITHOUT, ledger(LIMITED)), Bind)


@pytest.mark.promise("limit-5")
def test_a_limit_holds_the_devices_of_its_line_without_a_plugin() -> None:
    """The limit is only a count."""
    holder = running("other-0", "node1", "0=node1:2", owner=OTHER, **limited(1))
    named = replace(holder, assignment=Assignment(("2",)))
    decision = decided(WITHOUT, ledger(named))

    assert isinstance(decision, Wait)
    assert "GPU 2 of node1 is held by default/other-0" in decision.message


def test_foreign_pods_use_devices_of_a_plugin() -> None:
    """A foreign pod has no hold in the ledger, but its plugin devices are used; the message names the pod."""
    known = nodes(PLUGIN)
    held = ledger(known=known)
    foreign = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({GPU: 1}))
    held.apply_foreign_pod(foreign)
    decision = decided(WITHOUT, held, known)

    assert isinstance(decision, Wait)
    says(decision.message, "GpuHeld", "node1", "other/web")
    assert held.forget_foreign_pod(foreign) & decision.cured_by
    assert isinstance(decided(WITHOUT, held, known), Bind)


LEFT = {
    "one device too many": (3, 4, 2, None, ("3 nvidia.com/gpu", "node1", "2 of 4")),
    "exactly the devices that are left": (2, 4, 2, None, None),
    "devices that the plugin no longer has": (1, 4, 2, 1, ("1 nvidia.com/gpu", "node1", "2 of 1")),
    "a plugin that restarts": (1, 0, 0, 0, ("1 nvidia.com/gpu", "node1", "0 of 0")),
}


@pytest.mark.promise("limit-2")
@pytest.mark.parametrize(("asked", "number", "used", "allocatable", "named"), LEFT.values(), ids=LEFT)
def test_a_plugin_has_a_limited_number_of_devices(
    asked: int, number: int, used: int, allocatable: int | None, named: tuple[str, ...] | None
) -> None:
    """Devices of foreign pods count; the message has the numbers, and freed devices requeue the pod."""
    known = nodes(node_with_plugin("node1", number, allocatable=allocatable))
    held = ledger(known=known)
    foreign = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({GPU: used} if used else {}))
    held.apply_foreign_pod(foreign)
    decision = decided(pod("a-0", "0=node1:", **limited(asked)), held, known)

    if named is None:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        says(decision.message, "NotEnoughGpus", *named)
        restarted = node_with_plugin("node1", 8)
        assert (held.forget_foreign_pod(foreign) | known.apply(restarted)) & decision.cured_by


def test_an_assumed_pod_uses_devices_of_a_plugin() -> None:
    """The devices are used before the watch shows the bind: the next pod that does not fit waits."""
    known = nodes(PLUGIN)
    held = ledger(known=known)
    for number in range(2):
        first = pod(f"a-{number}", "0=node1:\n1=node1:\n2=node1:", **limited(2))
        decision = decided(first, held, known)
        assert isinstance(decision, Bind)
        held.assume(first, decision.placement)
    decision = decided(pod("a-2", "0=node1:\n1=node1:\n2=node1:", **limited(2)), held, known)

    assert isinstance(decision, Wait)
    says(decision.message, "NotEnoughGpus", "2", "nvidia.com/gpu", "node1", "4")
    assert [held.devices.unnamed(holder) for holder in held] == [2, 2]


NODES_WITHOUT_PLUGIN = {
    "another node has a plugin, and this node has no inventory: its plugin may still start": (BARE, False),
    "another node has a plugin, and this node has an inventory": (KNOWN, True),
}


@pytest.mark.parametrize(("known_node", "bound"), NODES_WITHOUT_PLUGIN.values(), ids=NODES_WITHOUT_PLUGIN)
def test_a_limit_on_a_node_without_a_plugin_is_a_count(known_node: Node, bound: bool) -> None:  # noqa: FBT001
    """If any node has a device plugin, a limit is only a count on nodes that have an inventory."""
    known = nodes(known_node, node_with_plugin("node2"))
    decision = decided(WITH, known=known)

    if bound:
        assert isinstance(decision, Bind)
        assert decision.placement.value == "2"
    else:
        assert isinstance(decision, Wait)
        says(decision.message, "NotEnoughGpus", "1", "nvidia.com/gpu", "node1", "0")
        assert known.forget("node2") & decision.cured_by
        assert known.apply(PLUGIN) & decision.cured_by


def test_the_bind_gate_requires_our_annotation_beside_a_limit() -> None:
    """A literal would give the container the wrong devices: the container must read the value of the decision."""
    literal = replace(WITH, environment=WITHOUT.environment)
    decision = decided(literal, known=nodes(PLUGIN))

    assert isinstance(decision, Refuse)
    assert decision.reason is Reason.ENV_CONFLICT


def test_a_pod_with_a_limit_takes_a_line_with_as_many_devices() -> None:
    """A line with another number of devices does not fit the pod."""
    decision = decided(pod("web", "0=node1:0\n1=node1:1,2", **limited(2)), known=nodes(PLUGIN))

    assert isinstance(decision, Bind)
    assert (decision.placement.index, decision.placement.value) == (1, "0,1")
