"""Pods that ask for GPUs by number, and nodes whose cards are known, for tests."""

from collections.abc import Mapping
from typing import Any

from gpu_scheduler.core.decide import Cluster, decide
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Inventory
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from tests.core.build import POLICY, bound, node, pod

PREFIX = "agentaflow.gpu/"


def words(**given: object) -> dict[str, str]:
    """Annotations of ours, by the last part of their name."""
    return {f"{PREFIX}{key.replace('_', '-')}": str(value) for key, value in given.items()}


def asking(count: object = 1, name: str = "train", *, others: Mapping[str, Any] | None = None, **given: Any) -> Pod:
    """A pod without a map that asks for so many; `given` are more annotations, `others` its fields."""
    return pod(name, None, annotations=words(count=count, **given), **{"owner": None, **(others or {})})


def having(
    name: str = "node1",
    *memory: int | None,
    model: str = "NVIDIA A100",
    readings: Mapping[int, DeviceReading] | None = None,
    **others: Any,
) -> Node:
    """A node with a card of each of these sizes (four of 40960 MiB where none is given)."""
    cards = tuple(Device(index, None, (), model, size) for index, size in enumerate(memory or (40960,) * 4))
    return node(name, **{"inventory": Inventory(cards), "readings": readings or {}, **others})


class World:
    """A cluster in which decisions come true: what was bound is seen bound."""

    def __init__(self, *known: Node, policy: Policy = POLICY, strategy: Strategy = Strategy.LEAST_UTILIZED) -> None:
        self.nodes = Nodes()
        self.ledger = Ledger(policy)
        self.volumes = Volumes()
        self.cluster = Cluster(self.ledger, self.nodes, self.volumes, policy, strategy)
        self.binds = 0
        self.show(*known)

    def show(self, *known: Node) -> None:
        """The watch shows nodes as they are now."""
        for each in known:
            self.nodes.apply(each)
            self.ledger.apply_node(each)

    def hide(self, name: str) -> None:
        """A node is gone."""
        self.nodes.forget(name)
        self.ledger.forget_node(name)

    def decide(self, given: Pod) -> Decision | None:
        """Ask only."""
        return decide(given, self.cluster)

    def place(self, given: Pod, *, confirmed: bool = True) -> Placement:
        """Decide, and bind; by default the watch has shown it."""
        decision = self.decide(given)
        assert isinstance(decision, Bind), decision
        self.ledger.assume(given, decision.placement)
        self.binds += 1
        if confirmed:
            self.ledger.apply(bound(given, decision.placement, f"2026-11-21T01:00:00.{self.binds:06}Z"))
        return decision.placement

    def where(self, given: Pod) -> str:
        """Place it, and say where as a map does: node1:0,1."""
        placement = self.place(given)
        return f"{placement.node}:{placement.value}"

    def wait(self, given: Pod) -> Wait:
        """It cannot be placed now."""
        decision = self.decide(given)
        assert isinstance(decision, Wait), decision
        return decision

    def end(self, given: Pod) -> None:
        """The pod is gone."""
        self.ledger.forget(given.ref.uid)
