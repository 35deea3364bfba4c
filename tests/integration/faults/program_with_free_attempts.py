"""`gpu-scheduler` whose attempts cost nothing, as in the simulator's virtual time.

A pod is charged for the processor time of its last attempt: until that is paid, others go first. How much it is depends
on the machine.
"""

from __future__ import annotations

import math

from gpu_scheduler.cli.main import main
from gpu_scheduler.core import scheduling_queue

if __name__ == "__main__":
    scheduling_queue.SHARE = math.inf  # type: ignore[misc]  # a pod may take all of its time
    main()
