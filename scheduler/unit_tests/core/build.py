"""Pods and nodes for tests: all fields are valid by default, so that a test names only the fields that it needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_scheduler import names
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Decision
from gpu_scheduler.core.filters.environment import BY_FIELD, required_env
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim, AllocatedClaims
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.container_env import Container, ContainerClaims, ContainerKind, EnvVar
from gpu_scheduler.core.pods.placement import Placement, read_assignment
from gpu_scheduler.core.pods.placement_map import NO_LINES
from gpu_scheduler.core.pods.pod import Pod, ResourceRequest
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import Owner, PodRef
from tests.messages import RECREATE

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
ANEW = f" {RECREATE}"
"""The end of each remedy that edits the text of a pod."""


WRITTEN = (
    "generate_name",
    "owner",
    "scheduler_name",
    "labels",
    "gpu_limits",
    "resource_claims",
    "own_claim",
    "wants_claims",
    "without_grace",
    "unsupported",
    "unknown_keys",
    "excess",
)
"""Fields of a pod from which its request is read, beside annotations and containers."""
SHARED = ("generate_name", "owner", "scheduler_name", "gpu_limits", "resource_claims", "excess")
"""Those of these fields that `Pod` keeps."""


def visible(value: str) -> EnvVar:
    """Return the variable CUDA_VISIBLE_DEVICES with a literal value."""
    return EnvVar(names.VISIBLE_DEVICES, value)


def container(
    env: tuple[EnvVar, ...] | None = None,
    kind: ContainerKind = ContainerKind.CONTAINER,
    position: int = 0,
    name: str = "main",
    claims: ContainerClaims | None = None,
) -> Container:
    """Return one container; by default without any environment."""
    return Container(kind, position, name, env, claims)


def pod(
    name: str = "train-0",
    text: str | None = MAP,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    **others: Any,
) -> Pod:
    """Return a pod as the webhook leaves it: its container has the devices of its map line.

    Its uid is `uid-of-NAMESPACE/NAME`.
    """
    given = {**({} if text is None else {names.MAP: text}), **(annotations or {})}
    ref = others.pop("ref", PodRef(namespace, name, f"uid-of-{namespace}/{name}"))
    containers = others.pop("containers", None)
    written = {"owner": TRAIN, **{key: others.pop(key) for key in WRITTEN if key in others}}
    shared = {key: written[key] for key in SHARED if key in written}
    text_of_pod = PodText(ref.namespace, ref.name, bound=others.get("node") is not None, annotations=given, **written)
    if containers is None:
        line = read_request(text_of_pod).line
        env = BY_FIELD if line is None or line.slot is None or text_of_pod.gpu_limits else required_env(line.slot.value)
        containers = (container(env),)
    text_of_pod = replace(text_of_pod, environment=environment_of(containers))
    return Pod(
        ref,
        read_request(text_of_pod),
        assignment=read_assignment(given),
        environment=text_of_pod.environment,
        **shared,
        **others,
    )


def using(
    *entries: str, env: Any = (FIELD_REF, PCI), kind: ContainerKind = ContainerKind.CONTAINER, **more: Any
) -> Container:
    """Return a container that uses these claims of its pod."""
    return container(env, kind, claims=ContainerClaims(entries, has_resources=True), **more)


def gpu_uuid(node_number: int, index: int) -> str:
    return f"GPU-{node_number}{index}000000-0000-0000-0000-000000000000"


def limit(count: int = 1) -> dict[str, Any]:
    """Return the fields of a pod whose container has a limit of so many GPUs."""
    return {"gpu_limits": (("main", count),), "resource_request": ResourceRequest({names.GPU_RESOURCE: count})}


def isolated(name: str = "train-0", text: str | None = MAP, **others: Any) -> Pod:
    """Return a pod with ResourceClaims as the webhook leaves it: a new name is `gpu-scheduler-new`."""
    pending = {key: value for key, value in others.items() if key != "node"}
    claims = pod(name, text, wants_claims=True, **pending).request.claims or ()
    used = ContainerClaims(CLAIM_ENTRIES[: len(claims)], has_resources=True)
    carried = tuple(each.name or "gpu-scheduler-new" for each in claims)
    containers = (container(BY_FIELD, claims=used),)
    return pod(name, text, **{"resource_claims": carried, "containers": containers, **others})


def running(name: str, node: str, text: str | None = MAP, **others: Any) -> Pod:
    """Return a pod that was bound to `node` and runs."""
    return pod(name, text, **{"node": node, "phase": "Running", **others})


def bound(pending: Pod, place: Placement, at: str = AT, phase: str = "Running") -> Pod:
    """Return the pod as our Binding leaves it."""
    line = pending.request.line
    if line is not None and place.index is not None:
        line = replace(line, index=place.index, slot=line.slot_of(place.index))
        line = line if pending.request.together else replace(line, map=NO_LINES)
    return replace(
        pending,
        node=place.node,
        phase=phase,
        request=replace(pending.request, line=line),
        assignment=read_assignment({**place.annotations, names.ASSIGNED_AT: at}),
    )


def seeing(pending: Pod, *containers: Container) -> Pod:
    return replace(pending, environment=environment_of(containers))


def own(*values: str) -> tuple[Container, ...]:
    """Return one container for each value; each sets its devices itself."""
    return tuple(container((visible(value), PCI), position=number) for number, value in enumerate(values))


def node(name: str = "node1", **others: Any) -> Node:
    """Return a node with room for all pods of a test."""
    return Node(name, **{"allocatable": ROOM, **others})


def nodes(*known: Node) -> Nodes:
    """Return these nodes; by default node1 to node4."""
    result = Nodes()
    for each in known or (node("node1"), node("node2"), node("node3"), node("node4")):
        result.apply(each)
    return result


def exists(name: str) -> NodeChanged:
    """Return the event that requeues each pod that waits for the node to exist."""
    return NodeChanged(name, Aspect.IDENTITY)


def ledger(*bound: Pod, policy: Policy = POLICY, known: Nodes | None = None) -> Ledger:
    """Return a ledger to which these nodes and pods were applied."""
    result = Ledger(policy)
    for one in known or ():
        result.apply_node(one)
    for each in bound:
        result.apply(each)
    return result


def claimed(held: Ledger, known: Nodes, *claims: AllocatedClaim) -> Ledger:
    """Return the ledger with what these claims hold of the GPUs that drivers publish on these nodes."""
    found = AllocatedClaims(pools(known))
    for claim in claims:
        held.apply_claim(claim.uid, found.apply(claim))
    return held


def placed(node: str, devices: str = "", index: int = 0) -> Placement:
    """Return a placement; `devices` is the text of its devices."""
    return Placement(node, tuple(devices.split(",")) if devices else (), index)


def decided(
    pending: Pod,
    held: Ledger | None = None,
    known: Nodes | None = None,
    policy: Policy = POLICY,
    published: Nodes | None = None,
) -> Decision | None:
    """Return the decision on a pod; by default in a cluster without other pods, where drivers publish all GPUs."""
    known = known or nodes()
    return decide(
        pending, Cluster(held or ledger(known=known), known, Volumes(), policy, pools=pools(published or known))
    )


def device_id(node: str, uuid: str) -> DeviceId:
    """Return the id of a GPU that a driver of claims publishes."""
    return DeviceId(names.NVIDIA_DRA_DRIVER, node, f"gpu-{uuid[4:8]}-of-{node}")


def pools(known: Nodes) -> DevicePools:
    """Return what drivers publish on these nodes: every GPU whose UUID is known."""
    found = DevicePools()
    for each in known:
        found.apply(device_slice(each))
    return found


def device_slice(of: Node) -> DeviceSlice:
    """Return the slice by which a driver publishes the GPUs of a node."""
    devices = of.inventory.devices if of.inventory is not None else ()
    uuids = [device.uuid for device in devices if device.uuid is not None]
    published = tuple(PublishedDevice(device_id(of.name, uuid), uuid) for uuid in uuids)
    return DeviceSlice(of.name, of.name, names.NVIDIA_DRA_DRIVER, of.name, 1, 1, published)
