"""The monitor as a process of its own, in a cluster of one scripted API server over TLS."""

from __future__ import annotations

import asyncio
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests import objects
from tests.messages import text_of
from tests.waiting import limit
from unit_tests.kube.server import until
from unit_tests.nvml.library import environment, write
from unit_tests.programs import stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# It waits for a process.
pytestmark = pytest.mark.clock("real")

MEBIBYTE = 1024
MOST_RESIDENT = 60 * MEBIBYTE

# The service account's folder is a fixed path, to which a test may not write.
START = (
    "import sys; from pathlib import Path; from gpu_scheduler.kube.config import in_cluster; "
    "in_cluster.SERVICE_ACCOUNT = Path(sys.argv.pop(1)); from gpu_scheduler.cli.main import main; main()"
)
INVENTORY = "node1: [{count: 8, model: A100-40GB, memoryTotalMiB: 40960}]\n"
POD = stored(objects.pod("a", None, objects.literal("1"), nodeName="node1"), "uid-a", {"phase": "Running"})


@dataclass
class Cluster:
    """The requests that the API server received, and the folder of a service account for it."""

    account: Path
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def renewals(self) -> int:
        return sum("/leases/" in path for _, path in self.asked)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        if request.path == "/api/v1/pods":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [POD] * 50})
        return web.json_response({"metadata": {"name": "node1", "uid": "uid-1"}})


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    (folder / "token").write_text("a token")
    made = Cluster(folder)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    made.url = str(server.port)
    try:
        yield made
    finally:
        await server.close()


def start(made: Cluster, library: Path, lines: Path, **others: str) -> subprocess.Popen[bytes]:
    """Start a monitor without coverage, whose memory would count."""
    env = {name: value for name, value in environment(library, lines).items() if not name.startswith("COVERAGE_")}
    env |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": made.url, "NODE_NAME": "node1"}
    env |= {"MONITOR_INTERVAL": "200ms", "HTTP_PORT": "0", "BIND_ADDRESS": "127.0.0.1", **others}
    with log_of(made).open("wb") as log:
        return subprocess.Popen((sys.executable, "-c", START, made.account, "monitor"), env=env, stderr=log)


def log_of(made: Cluster) -> Path:
    return made.account / "log"


def last_line(made: Cluster) -> str:
    """Return the last line that the monitor logged. It logs each change of what is wrong."""
    return ["", *log_of(made).read_text().splitlines()][-1]


def resident_memory(process: subprocess.Popen[bytes]) -> int:
    """Return the KiB that the process has in memory."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM; the process ends without an error, whatever its driver does."""
    process.send_signal(signal.SIGTERM)
    try:
        assert await asyncio.to_thread(process.wait, limit(5)) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("source", ["nvml", "simulated"])
async def test_a_monitor_is_small(library: Path, tmp_path: Path, source: str) -> None:
    """At most 60 MB are resident after a while, with any source."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(INVENTORY)
    async with cluster(tmp_path) as made:
        process = start(made, library, tmp_path / "lines", MONITOR_SOURCE=source, SIMULATED_INVENTORY=str(inventory))
        try:
            await until(lambda: process.poll() is not None or made.renewals() > 20, 60)
            assert process.poll() is None
            assert resident_memory(process) < MOST_RESIDENT
        finally:
            await stop(process)


HANGS = text_of("monitor: the driver hangs").partition(" for ")[0]


async def test_a_hanging_driver_stops_the_renewals_and_not_the_process(library: Path, tmp_path: Path) -> None:
    """The Lease expires while the driver hangs, and is renewed when it is back. A stop does not wait for the driver."""
    lines = tmp_path / "lines"
    write(lines, "")
    async with cluster(tmp_path) as made:
        process = start(made, library, lines)
        try:
            await until(lambda: made.renewals() > 1, 60)
            write(lines, "nvmlDeviceGetCount 0 -1\n")
            await until((tmp_path / "lines.hangs").exists, 10)
            before = made.renewals()
            await until(lambda: HANGS in last_line(made), 10)
            write(lines, "nvmlDeviceGetCount 0 9\n")
            await until(lambda: "Driver Not Loaded" in last_line(made), 10)
            assert made.renewals() == before
            write(lines, "")
            await until(lambda: made.renewals() > before, 10)
            write(lines, "nvmlDeviceGetCount 0 -1\n")
            await until(lambda: HANGS in last_line(made), 10)
        finally:
            await stop(process)
