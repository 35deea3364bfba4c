"""Translates a GPUNode into its cordons. Nothing else of it is decoded: the scheduler keeps one for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.kube.objects.agentaflow import CordonObject
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ConditionObject

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Meta(msgspec.Struct, gc=False):
    name: str
    generation: int = 0


class _Spec(msgspec.Struct, gc=False):
    cordoned: list[CordonObject] | None = None


class _Condition(ConditionObject, rename="camel", gc=False):
    observed_generation: int | None = None


class _Status(msgspec.Struct, gc=False):
    conditions: list[_Condition] | None = None


class _GpuNode(msgspec.Struct, gc=False):
    """A GPUNode. Its name is the node's name."""

    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


_gpu_nodes = msgspec.json.Decoder(_GpuNode)


def read_node_cordons(raw: bytes | msgspec.Raw) -> tuple[str, NodeCordons]:
    """Decode a GPUNode into (node, NodeCordons). msgspec.ValidationError if it is no GPUNode."""
    found = decode_object(_gpu_nodes, raw)
    spec, status = found.spec or _Spec(), found.status or _Status()
    stated = next((each for each in status.conditions or () if each.type == names.CONDITION_CORDONED), None)
    node = NodeCordons(
        found.metadata.name,
        cordon_values(spec.cordoned or ()),
        found.metadata.generation,
        0 if stated is None else stated.observed_generation or 0,
        "" if stated is None or stated.status != "True" else stated.last_transition_time or "",
    )
    return node.node, node


def cordon_values(cordoned: Iterable[CordonObject]) -> tuple[Cordon, ...]:
    """Return the cordons of a GPUNode's spec as core values."""
    return tuple(
        Cordon(
            each.device,
            each.index,
            each.reason,
            each.by,
            each.since,
            each.until or "",
        )
        for each in cordoned
    )
