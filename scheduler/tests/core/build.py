"""Pods and nodes for tests: everything is right by default, so that a test says only what matters to it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decide import Cluster, decide
from gpu_scheduler.core.decision import Decision
from gpu_scheduler.core.filters.environment import BY_FIELD, required_env
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import PlacementRequest, read_request
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import Owner, PodRef

MAP = """\
0=node1:0,1
1=node2:2
2=node3:0,1,2
3=node4:3
4=node4:3
"""
POLICY = Policy()
ROOM = {"pods": 110, "cpu": 8000, "memory": 2**34}
KEEP = {"agentaflow.gpu/keep-env": "true"}
TRAIN = Owner("StatefulSet", "train")
FIELD_REF = EnvVar(names.VISIBLE_DEVICES, None, names.DEVICES_FIELD)
PCI = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)


def visible(value: str) -> EnvVar:
    """A literal CUDA_VISIBLE_DEVICES."""
    return EnvVar(names.VISIBLE_DEVICES, value)


def container(
    env: tuple[EnvVar, ...] | None = None,
    kind: ContainerKind = ContainerKind.CONTAINER,
    position: int = 0,
    name: str = "main",
) -> Container:
    """One container; by default without any environment."""
    return Container(kind, position, name, env)


def pod(
    name: str = "train-0",
    text: str | None = MAP,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    **others: Any,
) -> Pod:
    """A pod as the webhook left it, its container with what its map line says, and uid `uid-of-NAMESPACE/NAME`."""
    given = {**({} if text is None else {names.MAP: text}), **(annotations or {})}
    ref = PodRef(namespace, name, f"uid-of-{namespace}/{name}")
    made = Pod(**{"ref": ref, "owner": TRAIN, "annotations": given, **others})
    if "containers" in others:
        return made
    request = read_request(made)
    slot = request.slot if isinstance(request, PlacementRequest) else None
    env = BY_FIELD if slot is None or made.gpu_limits else required_env(slot.value)
    return replace(made, containers=(container(env),))


def running(name: str, node: str, text: str | None = MAP, **others: Any) -> Pod:
    """A pod that was bound to `node` and runs."""
    return replace(pod(name, text, **others), node=node, phase="Running")


def own(*values: str) -> tuple[Container, ...]:
    """Containers that set their devices themselves, one for each value."""
    return tuple(container((visible(value), PCI), position=number) for number, value in enumerate(values))


def node(name: str = "node1", **others: Any) -> Node:
    """A node with room for everybody."""
    return Node(name, **{"allocatable": ROOM, **others})


def nodes(*known: Node) -> Nodes:
    """These nodes, or node1 to node4."""
    result = Nodes()
    for each in known or (node("node1"), node("node2"), node("node3"), node("node4")):
        result.apply(each)
    return result


def exists(name: str) -> NodeChanged:
    """What wakes who asks for the node at all."""
    return NodeChanged(name, Aspect.IDENTITY)


def ledger(*bound: Pod, policy: Policy = POLICY, known: Nodes | None = None) -> Ledger:
    """A ledger that has seen these pods, and these nodes."""
    result = Ledger(policy)
    for one in known or ():
        result.apply_node(one)
    for each in bound:
        result.apply(each)
    return result


def placed(node: str, devices: str = "", index: int = 0) -> Placement:
    """A placement from the text of its devices."""
    return Placement(node, tuple(devices.split(",")) if devices else (), index)


def decided(
    pending: Pod,
    held: Ledger | None = None,
    known: Nodes | None = None,
    policy: Policy = POLICY,
) -> Decision | None:
    """Decide on a pod, in an empty cluster where nothing else is said."""
    known = known or nodes()
    return decide(pending, Cluster(held or ledger(known=known), known, Volumes(), policy))
