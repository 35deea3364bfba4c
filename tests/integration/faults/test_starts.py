"""Faults while a replica starts: a late list must not count as an empty one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import auditing
from tests.integration.faults.proxied_replica import NODES, PODS, start_behind_proxy
from tests.integration.faults.proxy_faults import Act, Answer, Delay, Fault, SmallPages, Truncate
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace

CONTINUED: Final = rf"{PODS}.*continue="
LISTED: Final = {"pods", "nodes", "classes"}
LATE: Final[dict[str, tuple[str, Act]]] = {
    "the last page of pods is late": (CONTINUED, Delay(2)),
    "a page of pods is cut": (CONTINUED, Truncate()),
    "a page of pods has expired": (CONTINUED, Answer(410)),
    "the list of nodes is late": (NODES, Delay(2)),
    "the list of nodes is refused": (NODES, Answer(503, (("Retry-After", "2"),))),
    "the list of storage classes is late": (r"/storageclasses\?", Delay(2)),
}


@pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
def test_nothing_is_decided_before_everything_is_listed(
    plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, tmp_path: Path, fault: tuple[str, Act]
) -> None:
    """The holder of the GPU is on the last page of the list: no pod gets the GPU or a wrong condition before."""
    namespace.node("node1")
    for number in range(8):
        namespace.pod(f"asker{number}-0", f"0=node1:0\n1=node1:{number + 1}\n", "0")
    namespace.make(pod("zz-holder-0", "0=node1:0\n", literal("0"), nodeName="node1"))
    with ExitStack() as faults:
        faults.enter_context(proxy.breaking(Fault("GET", PODS, SmallPages(3), times=None)))
        struck = faults.enter_context(proxy.breaking(Fault("GET", *fault, skip=1 if fault[0] == CONTINUED else 0)))
        command = start_behind_proxy(plane, proxy, tmp_path, "late-0")
        faults.callback(command.process.stop)
        auditor = faults.enter_context(auditing(plane, command, proxy=proxy))
        eventually("it is late", lambda: struck.struck, seconds=20)
        # Read /readyz before the log: the second try of a failed list may have finished in between.
        ready = command.get("/readyz")[0] == 200
        assert _listed(command) >= LISTED or not ready
        eventually("all report GpuHeld", lambda: namespace.count_waiting("GpuHeld") == 8, seconds=30)
        assert namespace.count_bound() == 1
        assert auditor.report() == []
    # Writes may be repeated, because a busy API server answers late. What is decided is written to the log once.
    decided = [(line["pod"], line["reason"]) for line in command.lines() if " waits: " in str(line["event"])]
    assert sorted(decided) == [(f"{namespace.name}/asker{number}-0", "GpuHeld") for number in range(8)]


def _listed(command: Command) -> set[str]:
    return {str(line["resource"]) for line in command.lines() if line.get("event") == "Listed"}
