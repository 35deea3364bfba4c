"""The loop and the probes: one thread reports, another answers HTTP.

Health is the truth about the loop: it turns bad when reports stop, not only when the process does.
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

    from gpu_scheduler_check.report import Sighting

# A report may be late by this many intervals before the probe calls the witness silent.
PATIENCE: Final = 3


class Witness:
    """Writes the same block every `interval` seconds.

    `wait` sleeps for so many seconds, or less where it is told to stop, and then answers True.
    """

    def __init__(self, sighting: Sighting, interval: float, output: TextIO, wait: Callable[[float], bool]) -> None:
        self.sighting = sighting
        self.reports = 0
        self._interval = interval
        self._output = output
        self._wait = wait
        self._last = time.monotonic()

    def run(self) -> None:
        """Report at once and then every interval; return when told to stop."""
        stopped = False
        while not stopped:
            # One write a block, so that a reader of the log never sees half of one.
            self._output.write(self.sighting.block())
            self._output.flush()
            self.reports += 1
            self._last = time.monotonic()
            stopped = self._wait(self._interval)

    def healthy(self) -> bool:
        """Tell whether reports still appear."""
        # Five seconds more, so that a very short interval does not turn a busy machine into a sick witness.
        return time.monotonic() - self._last < PATIENCE * self._interval + 5


def serve(witness: Witness, port: int) -> ThreadingHTTPServer:
    """Answer /health and /metrics on `port` (0 for any free one) from a thread that ends with the process."""

    class Handler(BaseHTTPRequestHandler):
        """GET only; everything else is refused by the base class."""

        def do_GET(self) -> None:
            if self.path == "/health":
                healthy = witness.healthy()
                status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
                body = {"service": "gpu-scheduler-check", "status": "healthy" if healthy else "silent"}
                self._answer(status, "application/json", json.dumps(body))
            elif self.path == "/metrics":
                text = witness.sighting.metrics(witness.reports)
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
            """Stay silent: standard output belongs to the reports, and probes would fill standard error."""

    class Server(ThreadingHTTPServer):
        """Its base class prints a traceback where a probe hangs up before its answer, and `kubectl logs` shows it."""

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
