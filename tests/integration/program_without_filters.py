"""`gpu-scheduler` without node filters: it binds pods to nodes that accept none. For the auditor's test only.

Its verb `replay` has the same fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.filters import node_filters

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod


def accept_any_node(pod: Pod, node: Node) -> None:
    """Accept the pod on any node."""


if __name__ == "__main__":
    for name in ("node_ready", "node_schedulable", "taints_tolerated"):
        setattr(node_filters, name, accept_any_node)  # the fault
    main()
