"""A replica that reaches the API server through the fault proxy alone."""

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
"""Our own pods; those of all others are watched beside."""
IDLE: Final = 2.0
"""Seconds of silence after which a watch counts as dead here."""
CALL_TIMEOUT: Final = 3.0
"""Seconds after which a call counts as unanswered, as shipped."""
# Faults that hit the Lease too, or an API server that comes back on a busy machine, must not cost the lead: with the
# shipped times they sometimes did.
_SETTINGS: Final = {
    "LEASE_DURATION": "60s",
    "RENEW_DEADLINE": "50s",
    "RETRY_PERIOD": "2s",
    "WATCH_IDLE_LIMIT": f"{IDLE}s",
    "POD_INITIAL_BACKOFF": "200ms",
    "POD_MAX_BACKOFF": "1s",
    "DEBUG_ENDPOINTS": "true",
}


def start_afar(
    plane: ControlPlane, proxy: FaultProxy, folder: Path, name: str, module: str = "gpu_scheduler"
) -> Command:
    """Start a replica behind the proxy; who asked for it stops it. `module` may stand in for the program's own."""
    journal = {"DECISION_JOURNAL": str(folder / f"{name}.journal")}
    return start_scheduler(plane, folder, name, proxy.port, module, **_SETTINGS, **journal)


def leader_afar(
    plane: ControlPlane, proxy: FaultProxy, folder: Path, name: str, module: str = "gpu_scheduler"
) -> Command:
    """Start one, and wait until it leads; it need not wait for one that was killed before."""
    plane.kube.delete(LEASE_PATH)
    command = start_afar(plane, proxy, folder, name, module)
    try:
        command.wait_ready()
        eventually("it leads", command.leads, seconds=30)
    except BaseException:
        command.process.stop()
        raise
    return command


def wait_well(command: Command) -> None:
    """Wait until it says that it is ready; fail with what it says instead."""
    try:
        eventually("it is ready", lambda: command.get("/readyz")[0] == 200, seconds=15)
    except AssertionError as error:
        raise AssertionError(command.get("/readyz?verbose")) from error


def known_nodes(command: Command) -> set[str]:
    """Give the nodes that it believes to be there, as its journal has it."""
    assert command.journal is not None
    there = {}
    # What follows the last line's end is being written.
    for line in command.journal.read_bytes().split(b"\n")[:-1]:
        if b'"took":"node"' in line:
            taken = json.loads(line)
            there[taken["value"]["name"]] = not taken["gone"]
    return {name for name, is_there in there.items() if is_there}


def held(command: Command) -> dict[str, list[str]]:
    """Give the devices of each pod that has any, as the ledger has it."""
    holders = json.loads(command.get("/debug/ledger")[1])["holders"]
    return {each["pod"]: list(each["devices"]) for each in holders if each["devices"]}
