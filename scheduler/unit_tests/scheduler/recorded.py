"""Files of inputs and decisions for tests of the replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from hypothesis import strategies as st

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot
from gpu_scheduler.core.pods.pod import Pod, ScheduledCondition
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.journal import encoded, first_line, received_line, verdict
from gpu_scheduler.scheduler.ports import InputKind
from unit_tests.core.build import node, pod, running

if TYPE_CHECKING:
    from collections.abc import Iterable

HELD = ScheduledCondition("False", "Unschedulable", "GpuHeld: GPU 0 of node1 is held by default/first-0; wait")
ONE_GPU = "0=node1:0\n"
Input = tuple[InputKind, Any]


def waiting(name: str, text: str | None = ONE_GPU, condition: ScheduledCondition | None = HELD, **others: Any) -> Pod:
    """Return a pending pod with this condition; by default it waits for the GPU of `HOLDER`."""
    written = {"owner": Owner("StatefulSet", "second"), "created": "2026-01-01T00:00:02Z", **others}
    return replace(pod(name, text, **written), scheduled_condition=condition)


HOLDER = running("first-0", "node1", ONE_GPU)
CLUSTER: tuple[Input, ...] = (
    (InputKind.NODE, node("node1")),
    (InputKind.LIMITS, parse_limits("default: devices=4")[0]),
    (InputKind.POD, HOLDER),
    (InputKind.POD, waiting("second-0")),
)
"""A node whose GPU has a holder, and a pod that waits for it."""


def snapshot_of(*inputs: Input, **first: Any) -> list[bytes]:
    """Return the lines of a snapshot; `first` replaces fields of its first line."""
    begin = {"snapshot": len(inputs), **first_line(Policy()), "unread": (), **first}
    return [encoded(begin), *(encoded(received_line(kind, value)) for kind, value in inputs)]


def journal_of(*inputs: Input) -> list[bytes]:
    """Return the lines of a journal: each input, after each pod its decision."""
    dry_run, lines = DryRun(Policy()), [encoded({"began": "gpu-scheduler", **first_line(Policy())})]
    for kind, value in inputs:
        dry_run.apply(kind, value)
        lines.append(encoded(received_line(kind, value)))
        if kind is InputKind.POD:
            decision = decide(value, dry_run.cluster)
            dry_run.decide(value.ref.uid)
            lines.append(encoded({"decided": str(value.ref), "uid": value.ref.uid, **verdict(decision)}))
    return lines


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


_names = st.from_regex(r"[a-z0-9](?:[-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
_devices = st.lists(st.integers(0, 15).map(str), unique=True, max_size=4).map(tuple)


def _map_of(slots: Iterable[Slot]) -> PlacementMap:
    return PlacementMap({slot.index: str(slot) for slot in slots})


def register() -> None:
    """Let Hypothesis make placement maps, and mappings that are dictionaries."""
    slots = st.lists(
        st.builds(Slot, st.integers(0, 2**31 - 1), _names, _devices), unique_by=lambda slot: slot.index, max_size=4
    )
    st.register_type_strategy(PlacementMap, slots.map(_map_of))
    st.register_type_strategy(Mapping, lambda kind: st.dictionaries(*map(st.from_type, get_args(kind)), max_size=3))
