"""Pods that request a number of GPUs, nodes whose devices are known, and the state of a cluster, for tests."""

from collections.abc import Mapping
from typing import Any

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Inventory
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from unit_tests.core.build import POLICY, bound, node, pod

PREFIX = "agentaflow.gpu/"


def words(**given: object) -> dict[str, str]:
    """Return our annotations; a key is the last part of an annotation's name."""
    return {f"{PREFIX}{key.replace('_', '-')}": str(value) for key, value in given.items()}


def asking(count: object = 1, name: str = "train", *, others: Mapping[str, Any] | None = None, **given: Any) -> Pod:
    """Return a pod without a map that requests `count` GPUs; `given` are more annotations, `others` its fields."""
    return pod(name, None, annotations=words(count=count, **given), **{"owner": None, **(others or {})})


def having(
    name: str = "node1",
    *memory: int | None,
    model: str = "NVIDIA A100",
    readings: Mapping[int, DeviceReading] | None = None,
    **others: Any,
) -> Node:
    """Return a node with one device for each size in MiB; by default four devices of 40960 MiB."""
    devices = tuple(Device(index, None, (), model, size) for index, size in enumerate(memory or (40960,) * 4))
    return node(name, **{"inventory": Inventory(devices), "readings": readings or {}, **others})


class ClusterState:
    """The nodes and the ledger of a cluster; each pod that is placed here is assumed and confirmed."""

    def __init__(self, *known: Node, policy: Policy = POLICY, strategy: Strategy = Strategy.LEAST_UTILIZED) -> None:
        self.nodes = Nodes()
        self.ledger = Ledger(policy)
        self.volumes = Volumes()
        self.cluster = Cluster(self.ledger, self.nodes, self.volumes, policy, strategy)
        self.binds = 0
        self.apply_nodes(*known)

    def apply_nodes(self, *known: Node) -> None:
        for each in known:
            self.nodes.apply(each)
            self.ledger.apply_node(each)

    def forget_node(self, name: str) -> None:
        self.nodes.forget(name)
        self.ledger.forget_node(name)

    def decide(self, given: Pod) -> Decision | None:
        """Decide on the pod without a change of the ledger."""
        return decide(given, self.cluster)

    def place(self, given: Pod, *, confirmed: bool = True) -> Placement:
        """Decide and assume the pod; by default the watch confirms it at once."""
        decision = self.decide(given)
        assert isinstance(decision, Bind), decision
        self.ledger.assume(given, decision.placement)
        self.binds += 1
        if confirmed:
            self.ledger.apply(bound(given, decision.placement, f"2026-11-21T01:00:00.{self.binds:06}Z"))
        return decision.placement

    def where(self, given: Pod) -> str:
        """Place the pod and return its placement as a map writes it: node1:0,1."""
        placement = self.place(given)
        return f"{placement.node}:{placement.value}"

    def wait(self, given: Pod) -> Wait:
        """Return the decision on a pod that cannot be placed now."""
        decision = self.decide(given)
        assert isinstance(decision, Wait), decision
        return decision

    def end(self, given: Pod) -> None:
        """Forget a pod that was deleted."""
        self.ledger.forget(given.ref.uid)
