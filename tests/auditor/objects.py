"""The fields of pods and nodes that the auditor reads, as the API server sends them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from tests.oracle import reader

OURS: Final = "gpu-scheduler"
GIVEN: Final = "agentaflow.gpu/assigned-devices"
BY: Final = "agentaflow.gpu/assigned-by"
CARDS: Final = "nvidia.com/gpu"
_UNITS: Final = {
    **{
        unit: Decimal(1000) ** power
        for unit, power in zip(("n", "u", "m", "k", "M", "G", "T"), (-3, -2, -1, 1, 2, 3, 4), strict=True)
    },
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Source(msgspec.Struct, rename="camel"):
    field_ref: dict[str, str] = {}


class Variable(msgspec.Struct, rename="camel"):
    name: str
    value: str = ""
    value_from: Source | None = None


class Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class Container(msgspec.Struct, rename="camel"):
    name: str
    env: list[Variable] = []
    resources: Resources = msgspec.field(default_factory=Resources)
    ports: list[object] = []
    restart_policy: str = ""


class Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, str] = {}
    scheduling_gates: list[object] = []
    tolerations: list[dict[str, object]] = []
    node_selector: dict[str, str] = {}
    affinity: object = None
    volumes: list[dict[str, object]] = []
    resource_claims: list[object] = []
    topology_spread_constraints: list[object] = []
    # Of a node:
    unschedulable: bool = False
    taints: list[dict[str, str]] = []


class Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Status(msgspec.Struct):
    phase: str = ""
    conditions: list[Condition] = []
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Thing(msgspec.Struct):
    """A pod or a node."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def path(self) -> str:
        """Its name as people write it."""
        return f"{self.metadata.namespace}/{self.metadata.name}".lstrip("/")

    @property
    def version(self) -> int:
        """Of two versions the later is the greater."""
        return int(self.metadata.resource_version)

    @property
    def ours(self) -> bool:
        """Whether the pod is the scheduler's to place."""
        return self.spec.scheduler_name == OURS

    @property
    def placed(self) -> bool:
        """Whether a Binding of the scheduler placed the pod: it says by whom."""
        return self.ours and bool(self.spec.node_name) and BY in self.metadata.annotations

    @property
    def finished(self) -> bool:
        """Whether the pod has stopped for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def ready(self) -> bool:
        """Whether the node's kubelet says so."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    def given(self, name: str) -> str | None:
        """One of our annotations, by the last part of its name."""
        return self.metadata.annotations.get(f"{reader.PREFIX}{name}")


class Slice(msgspec.Struct):
    uuid: str


class Card(msgspec.Struct, rename="camel"):
    index: int
    uuid: str = ""
    health: str = ""
    mig_devices: list[Slice] = []


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as the API server showed it, in both readings."""

    thing: Thing
    read: reader.Thing


_thing = msgspec.json.Decoder(Thing)
_read = msgspec.json.Decoder(reader.Thing)
_cards = msgspec.json.Decoder(list[Card])


def seen(raw: bytes | msgspec.Raw) -> Seen:
    """Read one object."""
    return Seen(_thing.decode(raw), _read.decode(raw))


def amount(quantity: str) -> Decimal:
    """Read one of Kubernetes' quantities."""
    for unit in (quantity[-2:], quantity[-1:]):
        if unit in _UNITS:
            return Decimal(quantity.removesuffix(unit)) * _UNITS[unit]
    return Decimal(quantity)


def requests(pod: Thing) -> dict[str, Decimal]:
    """Tell what the pod takes of its node, itself included."""
    total: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, container.resources.requests)
            _raise(peak, total)
        else:
            step = dict(total)
            _add(step, container.resources.requests)
            _raise(peak, step)
    for container in pod.spec.containers:
        _add(total, container.resources.requests)
    _raise(total, peak)
    _add(total, pod.spec.overhead)
    _add(total, {"pods": "1"})
    return total


def inventory(node: Thing) -> dict[str, tuple[int, str]] | None:
    """Tell of each ID that the node's GPUs answer to which card it is, and which slice; None where nobody knows."""
    cards = _listed(node)
    if cards is None or len({card.index for card in cards}) < len(cards):
        return None
    ids = {str(card.index): (card.index, "") for card in cards}
    ids |= {card.uuid: (card.index, "") for card in cards if card.uuid}
    return ids | {one.uuid: (card.index, one.uuid) for card in cards for one in card.mig_devices}


def all_healthy(node: Thing) -> bool:
    """Whether the node's monitor, where there is one, finds nothing wrong."""
    cards = _listed(node)
    return node.given("devices") is None or (cards is not None and {card.health for card in cards} <= {"", "healthy"})


def _listed(node: Thing) -> list[Card] | None:
    """The cards that its monitor lists, else those that a device plugin counts."""
    text = node.given("devices")
    if text is None:
        count = int(node.status.capacity.get(CARDS, "0"))
        return [Card(index) for index in range(count)] if count else None
    try:
        return _cards.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _add(total: dict[str, Decimal], more: dict[str, str]) -> None:
    for name, quantity in more.items():
        total[name] = total.get(name, Decimal(0)) + amount(quantity)


def _raise(total: dict[str, Decimal], least: dict[str, Decimal]) -> None:
    for name, quantity in least.items():
        total[name] = max(total.get(name, Decimal(0)), quantity)
