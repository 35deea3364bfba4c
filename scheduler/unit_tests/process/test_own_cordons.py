"""The cordons of one node."""

from __future__ import annotations

from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.process.own_cordons import OwnCordons

FOREVER = Cordon("0")
UNTIL_NOON = Cordon("1", until="2026-11-21T12:00:00Z")
NOON = 1_795_262_400.0
"""That moment, in seconds since the epoch."""


def test_a_cordon_ends_by_the_clock_or_by_hand() -> None:
    """A cordon of another node is none of this one. The GPUNode may go, and its cordons with it."""
    wall = [NOON - 1]
    own = OwnCordons("node1", lambda: wall[0])
    assert own.in_force() == ()
    own.applied(NodeCordons("node1", (FOREVER, UNTIL_NOON)))
    own.applied(NodeCordons("node2", (Cordon("2"),)))
    assert own.in_force() == (FOREVER, UNTIL_NOON)
    wall[0] = NOON
    assert own.in_force() == (FOREVER,)
    own.applied(NodeCordons("node1", ()))
    assert own.in_force() == ()
    own.applied(NodeCordons("node1", (FOREVER,)))
    own.forgotten(NodeCordons("node1", (FOREVER,)))
    assert own.in_force() == ()
