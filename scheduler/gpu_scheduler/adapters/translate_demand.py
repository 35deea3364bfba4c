"""What a pod takes of its node, from its containers: requests as kube-scheduler adds them up, and ports of the host.

Thousands of pods are alike, so each distinct text is read once and equal demands are one value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import decode_part
from gpu_scheduler.adapters.quantities import QuantityError, thousandths, whole
from gpu_scheduler.core.demand import ANY_ADDRESS, NOTHING, Demand, HostPort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_resources = msgspec.json.Decoder(objects.ResourceRequirements | None)
_overheads = msgspec.json.Decoder(dict[str, object] | None)
_ports = msgspec.json.Decoder(list[objects.ContainerPort] | None)

_LONGEST: Final = 4096
"""Longest text that is remembered."""
_MOST: Final = 64
"""Most resources that are remembered together."""


class Wants(NamedTuple):
    """The resources of one container, or of a pod as a whole."""

    requests: Mapping[str, int]
    gpu_limit: int


class _Texts(NamedTuple):
    """What a container says of its demand, as it is written."""

    resources: bytes
    ports: bytes
    sidecar: bool


def demand_of(spec: objects.PodSpec | objects.ResidentSpec) -> Demand:
    """What the pod takes in all; its init containers run before the others, so the larger of the two counts."""
    texts = (
        tuple(map(_texts, spec.containers or ())),
        tuple(map(_texts, spec.init_containers or ())),
        bytes(spec.resources),
        bytes(spec.overhead),
    )
    length = sum(len(each.resources) + len(each.ports) for each in chain(*texts[:2])) + len(texts[2]) + len(texts[3])
    return _demand(*texts) if length <= _LONGEST else _demand.__wrapped__(*texts)


def wants_of(resources: msgspec.Raw) -> Wants:
    """Read a `resources` field; one that cannot be read wants nothing."""
    return _wanted(bytes(resources))


def shared_amounts(quantities: Mapping[str, object] | None) -> Mapping[str, int]:
    """The same, one value for all who have as much."""
    found = amounts(quantities)
    return _same_amounts(tuple(found.items())) if len(found) <= _MOST else found


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Quantities as whole numbers; one that cannot be read is left out."""
    found: dict[str, int] = {}
    for resource, quantity in (quantities or {}).items():
        try:
            found[resource] = (thousandths if resource == "cpu" else whole)(str(quantity))
        except QuantityError:
            continue
    return found


def _wanted(resources: bytes) -> Wants:
    return _wants(resources) if len(resources) <= _LONGEST else _wants.__wrapped__(resources)


def _start_up(before: Sequence[_Texts]) -> tuple[dict[str, int], dict[str, int]]:
    """All that the sidecars take, and the most that is taken while the init containers run one after the other."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in before:
        running = dict(sidecars)
        _add(running, _wanted(container.resources).requests)
        if container.sidecar:
            sidecars = running
        for resource, amount in running.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    return sidecars, peak


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _texts(container: objects.Consumer) -> _Texts:
    return _Texts(bytes(container.resources), bytes(container.ports), container.restart_policy == "Always")


@lru_cache(maxsize=4096)
def _demand(containers: tuple[_Texts, ...], before: tuple[_Texts, ...], resources: bytes, overhead: bytes) -> Demand:
    total: dict[str, int] = {}
    for container in containers:
        _add(total, _wanted(container.resources).requests)
    sidecars, peak = _start_up(before)
    _add(total, sidecars)
    for resource, amount in peak.items():
        total[resource] = max(total.get(resource, 0), amount)
    total |= _wanted(resources).requests
    _add(total, amounts(decode_part(_overheads, overhead)))
    ports = frozenset[HostPort]().union(
        *(_host_ports(each.ports) for each in containers),
        *(_host_ports(each.ports) for each in before if each.sidecar),
    )
    return _shared(frozenset(item for item in total.items() if item[1]), ports)


@lru_cache(maxsize=4096)
def _wants(data: bytes) -> Wants:
    resources = decode_part(_resources, data) or objects.ResourceRequirements()
    return Wants(amounts(resources.requests), amounts(resources.limits).get(names.GPU_RESOURCE, 0))


def _host_ports(ports: bytes) -> frozenset[HostPort]:
    return frozenset(
        HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port)
        for port in decode_part(_ports, ports) or ()
        if port.host_port
    )


@lru_cache(maxsize=64)
def _same_amounts(found: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    return dict(found)


@lru_cache(maxsize=4096)
def _shared(requests: frozenset[tuple[str, int]], ports: frozenset[HostPort]) -> Demand:
    return Demand(dict(sorted(requests)), ports) if requests or ports else NOTHING
