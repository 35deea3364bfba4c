"""`gpu-scheduler` that kills itself with SIGKILL when a claim is in the checkpoint and the kubelet has no answer."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from gpu_scheduler.cli.main import main
from gpu_scheduler.driver.checkpoint import Checkpoint

if TYPE_CHECKING:
    from gpu_scheduler.driver.checkpoint import PreparedClaim

healthy = Checkpoint.put


def put(checkpoint: Checkpoint, claim: PreparedClaim) -> None:
    """Store the claim, then kill this process."""
    healthy(checkpoint, claim)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Checkpoint.put = put  # type: ignore[method-assign, assignment]  # the fault
    main()
