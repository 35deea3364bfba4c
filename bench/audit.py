"""Audits a cell: compares a fresh list of pods and events with what the contender should have done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.cluster_objects import Assignment
from bench.watcher import EVENTS, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.contenders.contender import Contender

_DEVICES: Final = "agentaflow.gpu/assigned-devices"
_NODE: Final = "agentaflow.gpu/assigned-node"
_REPORTED: Final = 3
"""The maximum number of pods whose faults are reported."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit."""

    bound: int
    events: int
    devices: int
    """Distinct pairs of node and device."""
    wrong: tuple[str, ...]


def audit(cluster: ClusterUnderTest, objects: ClusterObjects, contender: Contender) -> Audited:
    """Compare pods and events of the cluster with the expected ones.

    Each difference is a sentence in `wrong`. Of misplaced pods only the first few are reported.
    """
    pods = [
        msgspec.json.decode(raw)
        for raw in cluster.items(f"{PODS}?fieldSelector=spec.schedulerName={contender.scheduler}")
    ]
    bound = {pod["metadata"]["name"]: given_to(pod) for pod in pods if pod["spec"].get("nodeName")}
    events = Counter(
        event["regarding"]["name"]
        for event in map(msgspec.json.decode, cluster.items(EVENTS))
        if event["reason"] == "Scheduled"
    )
    given = Counter((each.node, device) for each in bound.values() for device in each.devices)
    wrong = []
    if len(bound) != objects.pods:
        wrong.append(f"{len(bound)} of {objects.pods} pods are bound")
    if contender.devices and (len(given) != objects.gpus or given.total() != objects.gpus):
        wrong.append(
            f"{given.total()} GPUs are given, {len(given)} of them distinct, where {objects.gpus} were asked for"
        )
    if contender.events and (len(events) != objects.pods or events.total() != objects.pods):
        wrong.append(f"{events.total()} events tell of {len(events)} pods, where each of {objects.pods} has one")
    wrong.extend(misplaced(bound, objects, devices=contender.devices))
    return Audited(len(bound), events.total(), len(given), tuple(wrong))


def misplaced(bound: Mapping[str, Assignment], objects: ClusterObjects, *, devices: bool) -> list[str]:
    """Return a sentence for each of the first few misplaced pods. `bound` holds assignments by the pods' names."""
    return list(islice(objects.misplaced(bound, devices=devices), _REPORTED))


def given_to(pod: Any) -> Assignment:
    """Return the assignment of a bound pod, from its spec and annotations."""
    reported = pod["metadata"].get("annotations", {})
    devices = reported.get(_DEVICES, "").split(",")
    return Assignment(pod["spec"]["nodeName"], reported.get(_NODE, ""), tuple(filter(None, devices)))
