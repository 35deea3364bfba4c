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
from gpu_scheduler.core.pods.placement import Placement, read_assignment
from gpu_scheduler.core.pods.placement_map import NO_LINES
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import Owner, PodRef

MAP = """\
0=node1:0,1
1=node2:2
2=node3:0,1,2
3=node4:3
4=node4:3
"""
AT = "2026-11-21T01:00:00.000000Z"
POLICY = Policy()
ROOM = {"pods": 110, "cpu": 8000, "memory": 2**34}
KEEP = {"agentaflow.gpu/keep-env": "true"}
TRAIN = Owner("StatefulSet", "train")
FIELD_REF = EnvVar(names.VISIBLE_DEVICES, None, names.DEVICES_FIELD)
PCI = EnvVar(names.DEVICE_ORDER, names.PCI_BUS_ID)


WRITTEN = ("generate_name", "owner", "scheduler_name", "labels", "gpu_limits", "unsupported", "excess")
"""What a request is read from, beside annotations and containers."""
SHARED = ("generate_name", "owner", "scheduler_name", "gpu_limits", "excess")
"""What of that the pod keeps."""


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
    ref = others.pop("ref", PodRef(namespace, name, f"uid-of-{namespace}/{name}"))
    containers = others.pop("containers", None)
    written = {"owner": TRAIN, **{key: others.pop(key) for key in WRITTEN if key in others}}
    shared = {key: written[key] for key in SHARED if key in written}
    asking = PodText(ref.namespace, ref.name, bound=others.get("node") is not None, annotations=given, **written)
    if containers is None:
        line = read_request(asking).line
        env = BY_FIELD if line is None or line.slot is None or asking.gpu_limits else required_env(line.slot.value)
        containers = (container(env),)
    asking = replace(asking, environment=environment_of(containers))
    return Pod(
        ref,
        read_request(asking),
        assignment=read_assignment(given),
        environment=asking.environment,
        **shared,
        **others,
    )


def running(name: str, node: str, text: str | None = MAP, **others: Any) -> Pod:
    """A pod that was bound to `node` and runs."""
    return pod(name, text, **{"node": node, "phase": "Running", **others})


def bound(pending: Pod, place: Placement, at: str = AT, phase: str = "Running") -> Pod:
    """The pod as our Binding left it."""
    line = pending.request.line
    if line is not None and place.index is not None:
        line = replace(line, index=place.index, slot=line.slot_of(place.index), map=NO_LINES)
    return replace(
        pending,
        node=place.node,
        phase=phase,
        request=replace(pending.request, line=line),
        assignment=read_assignment({**place.annotations, names.ASSIGNED_AT: at}),
    )


def seeing(pending: Pod, *containers: Container) -> Pod:
    """The pod with these containers."""
    return replace(pending, environment=environment_of(containers))


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
