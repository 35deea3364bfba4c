"""Wires the reporter to its process: environment, signals, standard output.

Variables: NODE_NAME and CUDA_VISIBLE_DEVICES, which are reported; CHECK_INTERVAL in seconds, default 10;
CHECK_PORT, default 8080.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from gpu_scheduler_check.report import interval_seconds, read_report
from gpu_scheduler_check.reporter import Reporter, serve

STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def _stop_within(seconds: float) -> bool:
    """Wait for a signal to stop; return whether one came."""
    return signal.sigtimedwait(STOP, seconds) is not None


def main() -> int:
    """Report until SIGTERM or SIGINT; return the exit status."""
    try:
        interval = interval_seconds(os.environ.get("CHECK_INTERVAL", "10s"))
        port = int(os.environ.get("CHECK_PORT", "8080"))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    # Blocked and waited for, not handled: a handler that sets an Event can deadlock with the wait that it interrupts.
    # Blocked before any thread starts, so that all threads inherit the mask. PID 1 of a container gets only the signals
    # that it blocks or handles.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    reporter = Reporter(read_report(os.environ), interval, sys.stdout, _stop_within)
    serve(reporter, port)
    reporter.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
