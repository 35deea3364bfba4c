"""Rows: what indices and the pod's own text may make a pod wait for."""

from __future__ import annotations

from typing import Final

from tests.integration.asking import LINE, Question, asker, gone, plain, reworded, world
from tests.objects import literal, node, pod, replica

SURGE: Final = replica("train", "77cc", "c7c7c", LINE)
OLD: Final = replica("train", "5d5f", "b7b7b", LINE)

INDICES: Final = (
    Question(
        "an index that is held is waited for, naming the holder",
        ("index-10",),
        "IndexHeld",
        ("0", "{ns}/holder"),
        plain(pod("holder", LINE, literal("0"), annotations={"agentaflow.gpu/index": "0"})),
        asker(),
        gone("holder"),
    ),
    Question(
        "with no free index a surge pod names the old pod and the cures",
        ("index-12", "index-18"),
        "NoFreeIndex",
        ("{ns}/train-5d5f-b7b7b", "maxUnavailable", "OnDelete", "line"),
        plain(OLD),
        SURGE,
        gone("train-5d5f-b7b7b"),
    ),
    Question(
        "with free indices that are all impossible the reason is the lowest one's",
        ("index-13",),
        "NodeNotReady",
        ("node1",),
        world(node("node1", ready=False)),
        replica("train", "77cc", "c7c7c", "0=node1:0\n1=node9:1\n"),
        lambda bench: bench.set_ready("node1", ready=True),
    ),
)

TEXTS: Final = (
    Question(
        "a wrong map that slipped by waits for its correction",
        ("map-6", "text-7"),
        "MapInvalid",
        ("line 2", "1=node9:x"),
        plain(),
        asker("0=node1:0\n1=node9:x\n"),
        reworded(**{"gpu-scheduling-map": LINE}),
    ),
    Question(
        "a wrong request that slipped by waits for its correction",
        ("text-7",),
        "RequestInvalid",
        ("agentaflow.gpu/observer", '"yes"'),
        plain(),
        asker(annotations={"agentaflow.gpu/observer": "yes"}),
        reworded(_observer="true"),
    ),
    Question(
        "an index that is no number waits for its correction",
        ("text-7", "index-1"),
        "IndexUnknown",
        ("agentaflow.gpu/index", '"first"'),
        plain(),
        asker(annotations={"agentaflow.gpu/index": "first"}),
        reworded(_index="0"),
    ),
    Question(
        "an index that the map does not have waits for its correction",
        ("text-7", "index-1"),
        "IndexNotInMap",
        ("4",),
        plain(),
        asker(annotations={"agentaflow.gpu/index": "4"}),
        reworded(_index="0"),
    ),
    Question(
        "a pod of ours without a map is told what to write",
        ("text-10",),
        "NothingRequested",
        ("gpu-scheduling-map",),
        plain(),
        asker(None),
        reworded(**{"gpu-scheduling-map": LINE}),
    ),
)

QUESTIONS: Final = (*INDICES, *TEXTS)
