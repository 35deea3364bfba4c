"""S2: a client that reaches our ports can neither end a process nor delay an admission."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from tests import objects
from tests.attacks.connections import established, written
from tests.attacks.create_latency import Creating
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.integration.command import Command
    from tests.objects import Object

FLOOD: Final = Path(__file__).with_name("flood.py")
MEMORY_LIMIT: Final = 192
"""MiB of the container's memory limit in the role webhook."""
SPARE: Final = 0.25
"""Share of that limit that must stay free."""
DESCRIPTORS: Final = 1024
"""The smallest limit of open files that container runtimes set."""
SILENT: Final = "127.0.0.6"
"""The address of the attack that sends nothing."""
SECONDS: Final = 12
ATTACKS: Final = (
    ("bodies", 15, "127.0.0.2"),
    ("bodies", 15, "127.0.0.3"),
    ("idle", 150, "127.0.0.4"),
    # Not the API server's own address: what it loses to those there, docs/security.md says.
    ("idle", 150, "127.0.0.8"),
    ("headers", 60, "127.0.0.5"),
    ("silent", 600, SILENT),
    ("giants", 4, "127.0.0.7"),
)


@pytest.mark.promise("serve-1", "serve-2", "serve-3")
def test_creates_go_on_while_the_webhook_is_attacked(cluster: InstalledCluster, tenant: Tenant) -> None:
    """Stalled bodies, idle TLS, slow headers and giant reviews at once: no create fails, memory is bounded.

    All connections of the attack are closed, but those that may idle while there are free slots.
    """
    webhook = cluster.webhook.command
    _limit_descriptors(webhook)
    ours, others = (Creating(partial(_create, tenant, name)) for name in ("gpu-scheduler", "default-scheduler"))
    with Watching(webhook).going_on() as watching, ours.going_on(), others.going_on():
        reported = _attack(cluster.webhook.port, *ATTACKS)

    print(f"\nours: {ours}; others': {others}; peak {watching.peak:.0f} MiB; {reported}")  # noqa: T201 - shown by -rP
    assert [answer["message"] for answer in (*ours.failed, *others.failed)] == []
    assert watching.peak < (1 - SPARE) * MEMORY_LIMIT
    # The webhook is not called for pods of other schedulers: their latency shows the load of the machine.
    assert ours.percentile(99) < 1 + 5 * others.percentile(99)
    for each in reported:
        idle = WEBHOOK_LIMITS.served_per_address if each["attack"] == "idle" else 0
        assert each["attack"] == "silent" or each["left"] <= idle, each
        assert each["attack"] == "giants" or each["closed"] > 0, each
    # While its queue is full, a kernel may forget a connection; a client that sends nothing holds it for open.
    eventually("silent connections to be closed", lambda: not _connections(cluster.webhook.port, SILENT), seconds=15)
    assert webhook.process.alive()


@pytest.mark.promise("serve-1")
# Controller, monitor and driver have the scheduler's listener.
@pytest.mark.parametrize("program", ["webhook", "scheduler"])
def test_probes_are_answered_while_a_health_port_is_attacked(cluster: InstalledCluster, program: str) -> None:
    """Otherwise the kubelet would restart the container, and an attacker could end the process."""
    attacked: Command = cluster.webhook.command if program == "webhook" else getattr(cluster, program)
    _limit_descriptors(attacked)
    answers: list[int] = []
    over = threading.Event()

    def probe() -> None:
        while not over.wait(0.5):
            answers.append(attacked.get("/livez")[0])

    probing = threading.Thread(target=probe)
    before = attacked.resident()
    probing.start()
    _attack(
        attacked.port,
        ("plain-headers", 200, "127.0.0.2"),
        ("silent", 200, "127.0.0.1"),
        ("plain-headers", 100, "127.0.0.1"),
        seconds=5,
    )
    during = len(answers)
    over.set()
    probing.join()

    assert during > 0
    assert answers == [200] * len(answers)
    assert attacked.resident() - before < 20


class Watching:
    """Measures the peak of a program's resident memory, in MiB."""

    def __init__(self, command: Command) -> None:
        """`going_on` starts the measurement."""
        self._command = command
        self.peak = 0.0

    @contextmanager
    def going_on(self) -> Iterator[Watching]:
        """Measure until the block ends."""
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(0.05):
                self.peak = max(self.peak, self._command.resident())

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()


def _connections(port: int, source: str) -> list[str]:
    """Return the connections of this address that the kernel has for the server at this port."""
    peers = established(Path("/proc/net/tcp").read_text(), port)
    return [peer for peer in peers if peer.startswith(written(source))]


def _create(tenant: Tenant, scheduler: str) -> tuple[int, Object]:
    return tenant.call("POST", f"{tenant.pods}?dryRun=All", objects.pod("any-0", "0=node1:0\n", scheduler=scheduler))


def _attack(port: int, *attacks: tuple[str, int, str], seconds: float = SECONDS) -> list[Object]:
    """Run all attacks at once; return the JSON that each of them prints."""
    running = []
    for attack, connections, source in attacks:
        words = ("127.0.0.1", str(port), attack, str(connections), str(seconds), source)
        # At a lower priority, because a real attacker uses other processors.
        command = ["nice", "-n", "5", sys.executable, str(FLOOD), *words]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    reported = []
    for process in running:
        output, _ = process.communicate(timeout=limit(seconds + 60))
        assert process.returncode == 0, output
        reported.append(json.loads(output))
    return reported


def _limit_descriptors(command: Command) -> None:
    _, hard = resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
