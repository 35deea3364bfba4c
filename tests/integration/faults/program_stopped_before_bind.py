"""`gpu-scheduler` that stops itself with SIGSTOP between the check of the lease and a Binding.

For the tests of split brain only. It stops at the last moment: the lease is checked, and the connection is about to
call the kernel. After SIGCONT it sends the Binding.
"""

from __future__ import annotations

import os
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.kube.http.connection import Connection

healthy = Connection._ask


def ask(self: Connection) -> None:
    """Check the lease; stop before a guarded request is sent."""
    healthy(self)
    if self._guard is not None:
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    Connection._ask = ask  # type: ignore[method-assign]  # the fault
    main()
