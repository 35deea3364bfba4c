"""`gpu-scheduler` that kills itself with SIGKILL at the step that DIES_AT names. For tests of claims only.

`created`: the claim exists without an allocation. `allocated`: it is allocated, and the pod is not bound. `bound`: the
API server has bound the pod, and the scheduler has not processed the answer.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from gpu_scheduler.cli.main import main
from gpu_scheduler.scheduler.binder import ApiBinder
from gpu_scheduler.scheduler.claim_allocator import ApiClaimAllocator

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: dict[str, tuple[type, str]] = {
    "created": (ApiClaimAllocator, "_create"),
    "allocated": (ApiClaimAllocator, "allocate"),
    "bound": (ApiBinder, "bind"),
}


def killed_at(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the step, then kills this process."""

    async def done_and_dead(*arguments: Any) -> Any:
        result = await step(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    return done_and_dead


if __name__ == "__main__":
    kind, name = STEPS[os.environ["DIES_AT"]]
    setattr(kind, name, killed_at(getattr(kind, name)))
    main()
