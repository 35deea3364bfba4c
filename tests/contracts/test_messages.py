"""Each message of the table is what the scheduler writes in its situation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.core.claim_allocation import gpus_asked
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decision import Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.filters.gpu_filters import gpu_in_service
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim, AllocatedClaims
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.device_pools import DevicePools
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.core.reasons import Reason, Unschedulable
from tests import messages
from tests.contracts.dry_namespace import AT, NAME, DryNamespace
from tests.integration.test_feasibility import CASES
from tests.objects import gpu
from tests.pages.reasons import CLAIM
from unit_tests.core.build import (
    KEEP,
    POLICY,
    ROOM,
    claimed,
    container,
    decided,
    device_id,
    isolated,
    ledger,
    nodes,
    pod,
)
from unit_tests.scheduler.test_claim_allocator import failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.pods.pod import Pod
    from tests.integration.feasibility_case import Case

WHILE_BINDING: Final = {
    "a pod waits after its kubelet has rejected the last pods of its workload",
    "a claim that waits for its first consumer gets the node, and the pod waits for its volume",
}
"""Rows whose message is not that of a decision: the tests on an API server alone have them."""
WITH_GPU: Final = Node("node1", inventory=Inventory((Device(0, gpu(0)),)), allocatable=ROOM)
KNOWN: Final = nodes(WITH_GPU)


def _table(name: str) -> str:
    return messages.text_of(name, ns=NAME, since=AT, claim=CLAIM)


def _cause(message: str) -> str:
    """Return what an allocation failed by: the message, without what stands before and behind that."""
    return message.split(": ", 2)[2].rpartition("; ")[0]


def _decided(*arguments: Any, **more: Any) -> str:
    decision = decided(*arguments, **more)
    assert isinstance(decision, Wait | Refuse)
    return decision.message


def _isolated(**more: Any) -> Pod:
    return isolated("train-0", "0=node1:0", namespace=NAME, **more)


def _cordoned() -> str:
    cordons = (Cordon(gpu(0), 0, "Xid 79, ticket 4711", "alice", AT),)
    found = gpu_in_service(["0"], replace(WITH_GPU, cordons=cordons), plugin_chooses=False)
    assert found is not None
    return found.message


def _held() -> str:
    claim = AllocatedClaim(NAME, "training", "1", (device_id("node1", gpu(0)),))
    return _decided(pod("train-0", "0=node1:0", namespace=NAME), claimed(ledger(known=KNOWN), KNOWN, claim), KNOWN)


def _keeping() -> str:
    found = pod("train-0", "0=node1:0", namespace=NAME, wants_claims=True, annotations=KEEP).request.fault
    assert found is not None
    return found.message


def _of_own_claim(*claims: AllocatedClaim) -> str:
    used = container(BY_FIELD, claims=ContainerClaims(("gpu",), has_resources=True))
    bringing = pod("train-0", None, namespace=NAME, containers=(used,), own_claim=OwnClaim("gpu", "mine"))
    allocated = AllocatedClaims(DevicePools())
    for claim in claims:
        allocated.apply(claim)
    known = nodes()
    cluster = Cluster(ledger(known=known), known, Volumes(), READING, claims=allocated)
    found = gpus_asked(bringing, cluster)
    assert isinstance(found, Unschedulable)
    return found.message


UNCOUNTED: Final = nodes(Node("node1", allocatable=ROOM))
READING: Final = replace(POLICY, reads_claims=True)
UNREAD: Final = AllocatedClaim(NAME, "mine", "1", unread="spec.devices.constraints is not read")
QUOTA: Final = f'HTTP 403: resourceclaims.resource.k8s.io "{CLAIM}" is forbidden: exceeded quota'
WITHOUT_A_ROW: Final[dict[str, Callable[[], str]]] = {
    "a pod brings a ResourceClaim that is not that of its line": lambda: _decided(
        _isolated(resource_claims=("gpu-scheduler-mine",)), ledger(known=KNOWN), KNOWN
    ),
    "a pod with ResourceClaims cannot keep a value": _keeping,
    "a ResourceClaim of a pod's own has a field that is not read": lambda: _of_own_claim(UNREAD),
    "a ResourceClaim needs the UUID of a GPU": lambda: _decided(_isolated(), ledger(known=UNCOUNTED), UNCOUNTED),
    "a ResourceClaim of a pod's own does not exist": _of_own_claim,
    "no driver publishes a GPU for a ResourceClaim": lambda: _decided(
        _isolated(), ledger(known=KNOWN), KNOWN, READING, published=nodes(Node("node2"))
    ),
    "a ResourceQuota forbids a ResourceClaim": lambda: failed(QUOTA, Reason.QUOTA_EXCEEDED).message,
    "a GPU is cordoned": _cordoned,
    "a GPU is held by a ResourceClaim of another scheduler's pod": _held,
    "a ResourceClaim cannot be used": lambda: failed(_cause(_table("a ResourceClaim cannot be used"))).message,
}
"""Messages about objects that the control plane of the rows does not have."""


@pytest.mark.promise("text-3", "text-17")
@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES if each.name not in WHILE_BINDING])
def test_a_row_has_the_message_that_is_decided(case: Case) -> None:
    """Word for word."""
    namespace = DryNamespace()
    case.set_up(namespace)
    namespace.make(case.asker)

    assert namespace.condition(case.who).get("message") == _table(case.entry)


@pytest.mark.promise("text-17")
@pytest.mark.parametrize("name", WITHOUT_A_ROW)
def test_a_message_without_a_row_is_that_of_the_code(name: str) -> None:
    """Word for word."""
    assert WITHOUT_A_ROW[name]() == _table(name)
