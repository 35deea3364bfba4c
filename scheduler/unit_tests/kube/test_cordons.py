"""A GPUNode's cordons, as the scheduler and the monitor read them."""

from typing import Any

import msgspec
import pytest

from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.kube.objects.cordons import read_node_cordons

SINCE = "2026-11-25T10:00:00Z"
UNTIL = "2026-11-25T12:00:00Z"
ENTRY = {"device": "0", "reason": "fan noise", "by": "alice", "since": SINCE}
CORDONED = {"type": "Cordoned", "status": "True", "lastTransitionTime": SINCE, "observedGeneration": 2}

READ: dict[str, tuple[dict[str, Any], NodeCordons]] = {
    "a GPUNode without cordons": ({"spec": {"nodeName": "node1"}}, NodeCordons("node1", (), 3)),
    "an empty list": ({"spec": {"nodeName": "node1", "cordoned": []}}, NodeCordons("node1", (), 3)),
    "no spec": ({}, NodeCordons("node1", (), 3)),
    "cordons that are not confirmed": (
        {"spec": {"cordoned": [ENTRY, {**ENTRY, "device": "*", "index": 4, "until": UNTIL}]}, "status": {}},
        NodeCordons(
            "node1",
            (Cordon("0", None, "fan noise", "alice", SINCE), Cordon("*", 4, "fan noise", "alice", SINCE, UNTIL)),
            3,
        ),
    ),
    "a confirmation": (
        {"status": {"conditions": [{"type": "Ready", "status": "True"}, CORDONED]}},
        NodeCordons("node1", (), 3, 2, SINCE),
    ),
    "a confirmation that there is none": (
        {"status": {"conditions": [{**CORDONED, "status": "False"}]}},
        NodeCordons("node1", (), 3, 2),
    ),
    "a condition of somebody else": (
        {"status": {"conditions": [{"type": "Cordoned", "status": "True"}]}},
        NodeCordons("node1", (), 3),
    ),
}


@pytest.mark.parametrize(("given", "found"), READ.values(), ids=READ)
def test_the_cordons_and_their_confirmation_are_read(given: dict[str, Any], found: NodeCordons) -> None:
    """Nothing else of the object is."""
    body = {"metadata": {"name": "node1", "generation": 3}, **given}

    assert read_node_cordons(msgspec.json.encode(body)) == ("node1", found)


def test_what_is_no_gpunode_is_refused() -> None:
    """The reflector keeps its last value then."""
    with pytest.raises(msgspec.ValidationError):
        read_node_cordons(b'{"metadata": {"name": "node1"}, "spec": {"cordoned": [{"device": 0}]}}')
