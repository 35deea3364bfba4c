"""Starts a replica that reaches the API server only through the fault proxy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.integration.command import LEASE as LEASE_PATH
from tests.integration.command import Command, start_scheduler
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy

BINDING: Final = r"/pods/[^/]+/binding$"
STATUS: Final = r"/pods/[^/]+/status$"
EVENTS: Final = r"/events$"
LEASE: Final = r"/leases/gpu-scheduler$"
NODES: Final = r"^/api/v1/nodes\?"
PODS: Final = r"^/api/v1/pods\?.*spec\.schedulerName(=|%3D)"
"""The list and watch of our own pods. Pods of other schedulers have a watch of their own."""
IDLE: Final = 5.0
"""Seconds without a watch event after which these schedulers reopen a watch, in place of 90. On a busy machine an API
server takes longer than 2 s to open one: with that limit none was ever opened."""
CALL_TIMEOUT: Final = 3.0
"""Seconds after which a scheduler gives up a call: the default."""
# Long times, so that a fault of the Lease, or an API server that restarts on a busy machine, does not end the leader's
# lease. With the shipped times that happened.
_SETTINGS: Final = {
    "LEASE_DURATION": "60s",
    "RENEW_DEADLINE": "50s",
    "RETRY_PERIOD": "2s",
    "WATCH_IDLE_LIMIT": f"{IDLE}s",
    "POD_INITIAL_BACKOFF": "200ms",
    "POD_MAX_BACKOFF": "1s",
    "DEBUG_ENDPOINTS": "true",
}


def start_behind_proxy(
    plane: ControlPlane, proxy: FaultProxy, folder: Path, name: str, module: str = "gpu_scheduler"
) -> Command:
    """Start a replica behind the proxy; the caller stops it. `module` may replace the program's own module."""
    journal = {"DECISION_JOURNAL": str(folder / f"{name}.journal")}
    return start_scheduler(plane, folder, name, proxy.port, module, **_SETTINGS, **journal)


def start_leader_behind_proxy(
    plane: ControlPlane, proxy: FaultProxy, folder: Path, name: str, module: str = "gpu_scheduler"
) -> Command:
    """Start a replica and wait until it leads. The Lease is deleted first, so it need not expire."""
    plane.kube.delete(LEASE_PATH)
    command = start_behind_proxy(plane, proxy, folder, name, module)
    try:
        command.wait_ready()
        eventually("it leads", command.leads, seconds=30)
    except BaseException:
        command.process.stop()
        raise
    return command


def wait_ready_again(command: Command) -> None:
    """Wait until /readyz answers 200; AssertionError with the answer of /readyz?verbose after 15 s."""
    try:
        eventually("it is ready", lambda: command.get("/readyz")[0] == 200, seconds=15)
    except AssertionError as error:
        raise AssertionError(command.get("/readyz?verbose")) from error


def known_nodes(command: Command) -> set[str]:
    """Return the names of the nodes that exist according to the scheduler's journal."""
    assert command.journal is not None
    there = {}
    # The text after the last newline may be incomplete: the scheduler is writing it.
    for line in command.journal.read_bytes().split(b"\n")[:-1]:
        if b'"received":"node"' in line:
            taken = json.loads(line)
            there[taken["value"]["name"]] = not taken["gone"]
    return {name for name, is_there in there.items() if is_there}


def held(command: Command) -> dict[str, list[str]]:
    """Return the devices of each pod that holds any, from the scheduler's ledger."""
    holders = json.loads(command.get("/debug/ledger")[1])["holders"]
    return {each["pod"]: list(each["devices"]) for each in holders if each["devices"]}
