"""Workload claims: the contender places pending pods whose containers get a GPU each by a ResourceClaim.

The clock begins with the first change of a claim. Ours creates the claims itself, so inside the clock. Those of
kube-scheduler's pods are created by a client: for KC inside the clock, for K before.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from bench.claimed_pods import ClaimedPods
from bench.measurement import Run, measure_and_audit
from bench.snapshots import from_snapshot
from bench.watcher import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.contenders.contender import Contender
    from bench.results import Cell, Measured

_REPORTED: Final = 3
"""The maximum number of claims whose faults are reported."""


def measure(
    cell: Cell, contender: Contender, repetition: int, log: Callable[[str], None], *, made_before: bool = False
) -> Measured:
    """Measure one cell once, on a control plane of its own; `log` receives the progress.

    `made_before`: the claims of kube-scheduler's pods are created before the clock starts.
    """
    objects = ClaimedPods(cell.nodes, cell.pods)

    def make(cluster: ClusterUnderTest) -> None:
        cluster.settle(objects)
        cluster.make(objects.device_requests())
        cluster.make(objects.pod_requests(contender.scheduler, pinned=contender.pinned))
        if made_before:
            cluster.make(objects.claim_requests())

    log(f"making {cell.nodes} nodes and {cell.pods} pods")
    with from_snapshot((objects, contender.scheduler, made_before), make, isolation="dra") as cluster:
        try:
            contender.prepare(cluster, objects)
            measured, _ = measure_and_audit(
                Run(cell, repetition, cluster, objects, contender, log, claims=True), contender.go
            )
        finally:
            contender.stop()
        claims = list(map(msgspec.json.decode, cluster.items(CLAIMS)))
    measured.wrong.extend(islice(objects.misallocated(claims, devices=contender.devices), _REPORTED))
    return measured
