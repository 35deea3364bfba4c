"""Wires the witness to its process: environment, signals, standard output.

Variables: NODE_NAME and CUDA_VISIBLE_DEVICES, which are told; CHECK_INTERVAL in seconds, default 10;
CHECK_PORT, default 8080.
"""

from __future__ import annotations

import os
import signal
import sys

from gpu_scheduler_check.report import interval_seconds, sighting
from gpu_scheduler_check.witness import Witness, serve


def main() -> int:
    """Report until SIGTERM or SIGINT; return the exit status."""
    try:
        interval = interval_seconds(os.environ.get("CHECK_INTERVAL", "10s"))
        port = int(os.environ.get("CHECK_PORT", "8080"))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    witness = Witness(sighting(os.environ), interval, sys.stdout)
    # The first process of a container has no default handlers: without these it would wait for SIGKILL.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: witness.stop())
    serve(witness, port)
    witness.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
