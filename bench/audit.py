"""What an API server holds after a cell, by a fresh list, beside what the contender was asked to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.observer import EVENTS, PODS

if TYPE_CHECKING:
    from bench.contenders.contender import Contender
    from bench.plant import Plant
    from bench.town import Town

_DEVICES: Final = "agentaflow.gpu/assigned-devices"
_NODE: Final = "agentaflow.gpu/assigned-node"


@dataclass(frozen=True, slots=True)
class Audited:
    """What was found."""

    bound: int
    events: int
    devices: int
    """Distinct pairs of node and device."""
    wrong: tuple[str, ...]


def audit(plant: Plant, town: Town, contender: Contender) -> Audited:
    """Compare what is there with what was asked for; each difference is a sentence."""
    pods = [
        msgspec.json.decode(raw)
        for raw in plant.items(f"{PODS}?fieldSelector=spec.schedulerName={contender.scheduler}")
    ]
    bound = {pod["metadata"]["name"]: pod for pod in pods if pod["spec"].get("nodeName")}
    events = Counter(
        event["regarding"]["name"]
        for event in map(msgspec.json.decode, plant.items(EVENTS))
        if event["reason"] == "Scheduled"
    )
    given = Counter(
        (pod["spec"]["nodeName"], device)
        for pod in bound.values()
        for device in pod["metadata"]["annotations"].get(_DEVICES, "").split(",")
        if device
    )
    wrong = []
    if len(bound) != town.pods:
        wrong.append(f"{len(bound)} of {town.pods} pods are bound")
    if contender.devices and (len(given) != town.pods or given.total() != town.pods):
        wrong.append(f"{given.total()} GPUs are given, {len(given)} of them distinct, for {town.pods} pods")
    if contender.events and (len(events) != town.pods or events.total() != town.pods):
        wrong.append(f"{events.total()} events tell of {len(events)} pods, where each of {town.pods} has one")
    wrong.extend(misplaced(bound, town, devices=contender.devices))
    return Audited(len(bound), events.total(), len(given), tuple(wrong))


def misplaced(bound: dict[str, Any], town: Town, *, devices: bool) -> list[str]:
    """Pods, by name, that are elsewhere than their map says; three are told."""
    found = []
    for member in town.members():
        pod = bound.get(member.name)
        if pod is None:
            continue
        node, card = town.place(member)
        told = pod["metadata"]["annotations"]
        if pod["spec"]["nodeName"] != node or (devices and (told.get(_NODE), told.get(_DEVICES)) != (node, str(card))):
            found.append(f"{member.name} belongs on GPU {card} of {node}")
    return found[:3]
