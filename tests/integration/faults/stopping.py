"""`gpu-scheduler` with a fault built in: it stops, as by SIGSTOP, between the check whether it may bind and its bind.

For the tests of split brain only. At the last moment: its connection has asked and is about to call the kernel. It
goes on at SIGCONT and sends.
"""

from __future__ import annotations

import os
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.kube.http.connection import Connection

healthy = Connection._ask


def ask(self: Connection) -> None:
    """Ask, and stop before what was guarded is sent."""
    healthy(self)
    if self._guard is not None:
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    Connection._ask = ask  # type: ignore[method-assign]  # the fault
    main()
