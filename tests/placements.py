"""Eight workloads on four nodes of four GPUs, and their expected placements by strategy; for core and cluster tests.

All GPUs are idle, healthy and free at first. The workloads are created in the order of their names. Strategy `priority`
places those with the highest priority first.
"""

from __future__ import annotations

from dataclasses import dataclass

DEVICES = 4
"""Number of GPUs of each node."""

NODES = {
    "node1": ("NVIDIA A100-SXM4-40GB", 40960),
    "node2": ("NVIDIA A100-SXM4-80GB", 81920),
    "node3": ("Tesla V100-SXM2-16GB", 16384),
    "node4": ("NVIDIA L4", 24576),
}
"""Model and MiB of each node's GPUs."""


@dataclass(frozen=True)
class Workload:
    """The request of one pod; `memory` is MiB for each GPU, 0 for none."""

    count: int
    memory: int
    priority: int
    exclusive: bool = True

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of its pod."""
        memory = {"agentaflow.gpu/memory": str(self.memory)} if self.memory else {}
        return {
            "agentaflow.gpu/count": str(self.count),
            "agentaflow.gpu/priority": str(self.priority),
            "agentaflow.gpu/exclusive": "true" if self.exclusive else "false",
            **memory,
        }


WORKLOADS = {
    "w1": Workload(1, 10000, priority=1),
    "w2": Workload(1, 8000, priority=5, exclusive=False),
    "w3": Workload(2, 20000, priority=3),
    "w4": Workload(1, 8000, priority=5, exclusive=False),
    "w5": Workload(1, 60000, priority=10),
    "w6": Workload(3, 0, priority=2),
    "w7": Workload(1, 6000, priority=7, exclusive=False),
    "w8": Workload(1, 30000, priority=9),
}

PLACEMENTS = {
    "least_utilized": {
        "w1": "node1:0",
        "w2": "node2:0",
        "w3": "node4:0,1",
        "w4": "node3:0",
        "w5": "node2:1",
        "w6": "node1:1,2,3",
        "w7": "node3:1",
        "w8": "node2:2",
    },
    "best_fit": {
        "w1": "node3:0",
        "w2": "node3:1",
        "w3": "node4:0,1",
        "w4": "node3:1",
        "w5": "node2:0",
        "w6": "node1:0,1,2",
        "w7": "node3:2",
        "w8": "node1:3",
    },
    "priority": {
        "w1": "node1:2",
        "w2": "node2:3",
        "w3": "node1:0,1",
        "w4": "node2:2",
        "w5": "node2:0",
        "w6": "node4:0,1,2",
        "w7": "node2:2",
        "w8": "node2:1",
    },
    "round_robin": {
        "w1": "node1:0",
        "w2": "node1:1",
        "w3": "node1:2,3",
        "w4": "node2:0",
        "w5": "node2:1",
        "w6": "node3:0,1,2",
        "w7": "node3:3",
        "w8": "node2:2",
    },
}
"""The placement by strategy and workload: NODE:GPUS, as in a placement map."""
