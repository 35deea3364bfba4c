from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler_check.report import Report
from gpu_scheduler_check.reporter import Reporter, serve
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
BLOCK = ["Node Name: node3\n", "CUDA_VISIBLE_DEVICES: 0,1,2\n", "---\n"]


@pytest.fixture
def reporter() -> Reporter:
    """Return a reporter that reports into memory."""
    return Reporter(Report("node3", "0,1,2"), 0.01, io.StringIO(), lambda _: True)


@pytest.fixture
def port(reporter: Reporter) -> Iterator[int]:
    server = serve(reporter, 0)
    yield server.server_port
    server.shutdown()
    server.server_close()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit(5))
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_reports_until_stopped() -> None:
    """A report appears at the start and then every interval, and none after the stop."""
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    output = io.StringIO()
    reporter = Reporter(Report("node3", "0,1,2"), 10, output, wait)
    reporter.run()

    assert (reporter.reports, waits) == (3, [10, 10, 10])
    assert output.getvalue().splitlines(keepends=True) == BLOCK * 3


def test_health_fails_when_reports_stop(reporter: Reporter, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe answers healthy while reports appear, and 503 after they have stopped."""
    assert get(port, "/health") == (200, json.dumps({"service": "gpu-scheduler-check", "status": "healthy"}))

    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    status, text = get(port, "/health")

    assert status == 503
    assert json.loads(text)["status"] == "silent"


def test_metrics_and_unknown_paths(port: int) -> None:
    """Prometheus finds node and devices as labels; any other path is a 404 that names the two that exist."""
    assert 'gpu_scheduler_check_info{node="node3",cuda_visible_devices="0,1,2"} 1' in get(port, "/metrics")[1]
    assert get(port, "/") == (404, "try /health or /metrics\n")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(**variables: str) -> subprocess.Popen[str]:
    """Start the check workload as the image does, its output on a pipe."""
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    return subprocess.Popen(
        (sys.executable, "-m", "gpu_scheduler_check"),
        cwd=ROOT,
        env={**environment, "CHECK_PORT": free_port(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_process_reports_unbuffered_and_stops_at_once() -> None:
    """Lines reach a pipe as they are written; SIGTERM ends the process at once, long before the next report."""
    with start(NODE_NAME="node3", CUDA_VISIBLE_DEVICES="0,1,2", CHECK_INTERVAL="3600") as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in BLOCK] == BLOCK
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=limit(5)) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    ("error", "printed"), [(BrokenPipeError, False), (ConnectionResetError, False), (ValueError, True)]
)
def test_a_probe_that_closes_its_connection_prints_nothing(
    capsys: pytest.CaptureFixture[str], error: type[Exception], *, printed: bool
) -> None:
    """`kubectl logs` shows standard error too. A busy kubelet closes connections early; other errors are printed."""

    def fail() -> None:
        raise error("gone")

    reporter = Reporter(Report("node3", "0"), 10, io.StringIO(), lambda _: True)
    with serve(reporter, 0) as server, socket.socket() as request:
        try:
            fail()
        except error:
            server.handle_error(request, ("127.0.0.1", 1))
        server.shutdown()

    assert ("gone" in capsys.readouterr().err) is printed


def test_process_stops_at_any_moment() -> None:
    """SIGTERM ends the process between two waits as well as within one."""
    for _ in range(10):
        with start(NODE_NAME="node3", CHECK_INTERVAL="0.001s") as process:
            assert process.stdout
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=limit(5))

            assert process.returncode == 0


def test_process_refuses_a_bad_interval() -> None:
    """A bad CHECK_INTERVAL stops the start with one sentence and no traceback."""
    with start(CHECK_INTERVAL="soon") as process:
        output, errors = process.communicate(timeout=limit(10))

    assert process.returncode == 2
    assert output == ""
    assert errors == 'cannot use CHECK_INTERVAL "soon": must be 0 to 86400 seconds, not 0 (example: 10s)\n'
