"""`gpu-scheduler` with a fault built in: it binds to nodes that take nobody. For the auditor's test only.

With a journal as its only argument, it decides again by that, with the same fault.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.filters import node_filters
from tests import replaying

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod


def careless(pod: Pod, node: Node) -> None:
    """Find nothing wrong with any node."""


if __name__ == "__main__":
    node_filters.node_usable = node_filters.taints_tolerated = careless  # the fault
    if sys.argv[1] == "run":
        main()
    else:
        replaying.main(sys.argv[1])
