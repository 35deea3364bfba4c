"""What fits a node and its devices, and the table of messages: each reason, and each part of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.reasons import RANKING, Reason
from tests.integration import (
    feasibility_counts,
    feasibility_devices,
    feasibility_indices,
    feasibility_nodes,
    feasibility_texts,
)
from tests.integration.feasibility_case import asker
from tests.objects import device, gpu, inventory, literal

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.feasibility_case import Case
    from tests.integration.namespace import Namespace

CASES: Final = (
    *feasibility_nodes.CASES,
    *feasibility_devices.CASES,
    *feasibility_indices.CASES,
    *feasibility_texts.CASES,
    *feasibility_counts.CASES,
)


@pytest.mark.promise("text-3")
@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
def test_each_remedy_of_a_message_is_carried_out(case: Case) -> None:
    """The parts of a row are all that its message says after what is wrong; what is a command runs as it stands."""
    assert case.has_every_part()
    assert all(remedy.action is None for remedy in case.remedies if "kubectl " in remedy.text)


@pytest.mark.promise("text-9")
def test_each_reason_has_a_message_with_remedies() -> None:
    """Every reason and rank of the closed list has a row."""
    # A cordon needs the kind GPUNode, which this control plane does not have: test_cordons.py has it.
    elsewhere = {(Reason.GPU_CORDONED, False)}
    assert {case.ranked_reason for case in CASES} == set(RANKING) - elsewhere


@pytest.mark.promise("map-2")
def test_known_uuids_are_written_in_the_order_of_the_devices(namespace: Namespace, scheduler: Command) -> None:
    """The first UUID of `assigned-uuids` is that of CUDA's device 0."""
    namespace.node("node1", annotations=inventory(device(0), device(1), device(2)))
    namespace.make(asker("0=node1:2,0\n", literal("2,0")))

    pod = namespace.wait_bound("asker-0", "node1")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == "2,0"
    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-uuids"] == f"{gpu(2)},{gpu(0)}"
