"""The rules about all objects together: which of their pods would wait for each other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpu_scheduler import names
from gpu_scheduler.cli.lint.findings import Severity, finding
from gpu_scheduler.core.ledger.conflicts import may_share
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_scheduler.cli.lint.findings import Finding
    from gpu_scheduler.cli.lint.objects import CheckedObject
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Sharing
    from gpu_scheduler.core.refs import WorkloadKey


class _Claim(NamedTuple):
    """What a pod of an object would hold by one line of its map."""

    checked: CheckedObject
    hold: Hold
    needed: bool
    """Whether the object has as many pods as it needs this line for; otherwise the line is a spare one."""

    @property
    def line(self) -> int:
        """The line of the file that names the devices."""
        found = None if self.hold.workload is None else self.checked.map_of(self.hold.workload)
        return self.checked.line_of_slot(found[0], self.hold.index or 0) if found is not None else self.checked.line()

    def __str__(self) -> str:
        return f"{self.checked} ({self.checked.manifest.source}:{self.line})"


def indices_of_two_pods(objects: Iterable[CheckedObject]) -> Iterator[Finding]:
    """Yield that two pods of one workload say the same index: the second waits while the first lives."""
    first: dict[tuple[WorkloadKey, int], tuple[CheckedObject, Pod]] = {}
    reported: set[tuple[int, int]] = set()
    for checked in objects:
        for pod in checked.admitted():
            line = pod.request.line
            if line is None or line.index is None:
                continue
            holder, other = first.setdefault((line.workload, line.index), (checked, pod))
            pair = (id(holder), id(checked))
            # The same object in two files is one object of the cluster.
            if other.ref == pod.ref or pair in reported:
                continue
            reported.add(pair)
            yield finding(
                checked,
                checked.line_of_annotation(names.INDEX) or checked.line(),
                Severity.ERROR if holder.lasting and checked.lasting else Severity.WARNING,
                Reason.INDEX_HELD,
                f"cannot give index {line.index} of a map to {other.ref} and to {pod.ref}: the second waits while the "
                f"first lives; leave out annotation {names.INDEX}, so that each pod takes a line of its own, or give "
                "each a name that ends in a number of its own (example: train-1)",
            )


def devices_of_two_workloads(objects: Iterable[CheckedObject], sharing: Sharing) -> Iterator[Finding]:
    """Yield that lines of two workloads name one device of one node, unless their pods may share it."""
    # Of the claims of a device, those alike in what sharing depends on are represented by the first.
    claims: dict[tuple[str, str], dict[tuple[WorkloadKey | None, bool], _Claim]] = defaultdict(dict)
    for checked in objects:
        reported: set[WorkloadKey | None] = set()
        for claim in _claims(checked):
            for device in claim.hold.devices:
                known = claims[claim.hold.node, device]
                for other in known.values():
                    workload = other.hold.workload
                    # The same object in two files is one object of the cluster, perhaps with another map.
                    same = workload == claim.hold.workload or other.checked.identity == checked.identity
                    if not same and workload not in reported and not may_share(claim.hold, other.hold, sharing):
                        reported.add(workload)
                        yield _shared(claim, other, device)
                known.setdefault((claim.hold.workload, claim.hold.sharing_any), claim)


def _shared(claim: _Claim, other: _Claim, device: str) -> Finding:
    certain = claim.needed and other.needed and claim.checked.lasting and other.checked.lasting
    return finding(
        claim.checked,
        claim.line,
        Severity.ERROR if certain else Severity.WARNING,
        Reason.GPU_HELD,
        f"cannot give GPU {device} of {claim.hold.node} to two workloads: {other} names it too, and the second waits "
        f'while the first runs; name another GPU, or let both share it (example: {names.SHARING}: "any" on both)',
    )


def _claims(checked: CheckedObject) -> Iterator[_Claim]:
    """List what the pods of an object would hold, one claim for each line of its maps that a pod may take."""
    pods: dict[WorkloadKey, list[Pod]] = defaultdict(list)
    for pod in checked.admitted():
        # For a pod with a limit, a device plugin may choose the devices: then the numbers of its line name none.
        if pod.request.line is not None and not pod.gpu_limits and not pod.request.observer:
            pods[pod.request.line.workload].append(pod)
    for workload, some in pods.items():
        found = checked.map_of(workload)
        fixed = {line.index: pod for pod in some if (line := pod.request.line) is not None}
        free = fixed.pop(None, None)
        left = sum(pod.request.line is not None and pod.request.line.index is None for pod in some)
        for slot in found[1].slots if found is not None else ():
            taker = fixed.get(slot.index, free)
            if taker is not None:
                needed = slot.index in fixed or left > 0
                left -= slot.index not in fixed
                yield _Claim(checked, assumed_hold(taker, Placement(slot.node, slot.devices, slot.index)), needed)
