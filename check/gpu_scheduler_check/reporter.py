"""The loop and the probes: one thread reports, another answers HTTP.

The health probe fails when the reports stop, even if the process still runs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler_check.report import Report

# The probe fails when the last report is this many intervals old.
LATE_INTERVALS: Final = 3


class Reporter:
    """Writes the same report every `interval` seconds.

    `wait` sleeps for the given seconds and returns False, or returns True as soon as the process must stop.
    """

    def __init__(self, report: Report, interval: float, output: TextIO, wait: Callable[[float], bool]) -> None:
        self.report = report
        self.reports = 0
        self._interval = interval
        self._output = output
        self._wait = wait
        self._last = time.monotonic()

    def run(self) -> None:
        """Report at once and then every interval; return when the process must stop."""
        stopped = False
        while not stopped:
            # One write per report, so that a reader of the log never sees half of one.
            self._output.write(self.report.block())
            self._output.flush()
            self.reports += 1
            self._last = time.monotonic()
            stopped = self._wait(self._interval)

    def healthy(self) -> bool:
        """Return whether reports still appear."""
        # Five seconds more, so that the probe does not fail on a busy machine when the interval is very short.
        return time.monotonic() - self._last < LATE_INTERVALS * self._interval + 5


def serve(reporter: Reporter, port: int) -> ThreadingHTTPServer:
    """Answer /health and /metrics on `port` (0 for any free one) from a thread that ends with the process."""

    class Handler(BaseHTTPRequestHandler):
        """GET only; everything else is refused by the base class."""

        def do_GET(self) -> None:
            if self.path == "/health":
                healthy = reporter.healthy()
                status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
                body = {"service": "gpu-scheduler-check", "status": "healthy" if healthy else "silent"}
                self._answer(status, "application/json", json.dumps(body))
            elif self.path == "/metrics":
                text = reporter.report.metrics(reporter.reports)
                self._answer(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", text)
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "try /health or /metrics\n")

        def _answer(self, status: HTTPStatus, content_type: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no request: standard output is for the reports, and probes would fill standard error."""

    class Server(ThreadingHTTPServer):
        """Prints no traceback when a probe closes the connection before its answer: `kubectl logs` would show it."""

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
