"""What a pod takes of its node, from its containers: requests as kube-scheduler adds them up, and ports of the host.

Thousands of pods are alike, so each distinct text is read once and equal demands are one value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import decode_part
from gpu_scheduler.adapters.quantities import QuantityError, thousandths, whole
from gpu_scheduler.core.demand import ANY_ADDRESS, NOTHING, Demand, HostPort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_resources = msgspec.json.Decoder(objects.ResourceRequirements | None)
_overheads = msgspec.json.Decoder(dict[str, object] | None)
_ports = msgspec.json.Decoder(list[objects.ContainerPort] | None)

_LONGEST: Final = 4096
"""Longest text that is remembered."""


class Wants(NamedTuple):
    """The resources of one container, or of a pod as a whole."""

    requests: Mapping[str, int]
    gpu_limit: int


def demand_of(spec: objects.PodSpec | objects.ResidentSpec) -> Demand:
    """What the pod takes in all; its init containers run before the others, so the larger of the two counts."""
    containers, before = spec.containers or (), spec.init_containers or ()
    total: dict[str, int] = {}
    for container in containers:
        _add(total, wants_of(container.resources).requests)
    sidecars, peak = _start_up(before)
    _add(total, sidecars)
    for resource, amount in peak.items():
        total[resource] = max(total.get(resource, 0), amount)
    total |= wants_of(spec.resources).requests
    _add(total, _overhead(spec.overhead))
    ports = frozenset[HostPort]().union(
        *map(_host_ports, containers), *(_host_ports(each) for each in before if _is_sidecar(each))
    )
    return _shared(frozenset(item for item in total.items() if item[1]), ports)


def wants_of(resources: msgspec.Raw) -> Wants:
    """Read a `resources` field; one that cannot be read wants nothing."""
    data = bytes(resources)
    return _wants(data) if len(data) <= _LONGEST else _wants.__wrapped__(data)


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Quantities as whole numbers; one that cannot be read is left out."""
    found: dict[str, int] = {}
    for resource, quantity in (quantities or {}).items():
        try:
            found[resource] = (thousandths if resource == "cpu" else whole)(str(quantity))
        except QuantityError:
            continue
    return found


def _start_up(before: Sequence[objects.Consumer]) -> tuple[dict[str, int], dict[str, int]]:
    """All that the sidecars take, and the most that is taken while the init containers run one after the other."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in before:
        requests = wants_of(container.resources).requests
        running = dict(sidecars)
        _add(running, requests)
        if _is_sidecar(container):
            sidecars = running
        for resource, amount in running.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    return sidecars, peak


def _is_sidecar(container: objects.Consumer) -> bool:
    return container.restart_policy == "Always"


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _host_ports(container: objects.Consumer) -> Iterable[HostPort]:
    data = bytes(container.ports)
    return _host_ports_in(data) if len(data) <= _LONGEST else _host_ports_in.__wrapped__(data)


def _overhead(raw: msgspec.Raw) -> Mapping[str, int]:
    return amounts(decode_part(_overheads, bytes(raw)))


@lru_cache(maxsize=4096)
def _wants(data: bytes) -> Wants:
    resources = decode_part(_resources, data) or objects.ResourceRequirements()
    return Wants(amounts(resources.requests), amounts(resources.limits).get(names.GPU_RESOURCE, 0))


@lru_cache(maxsize=4096)
def _host_ports_in(data: bytes) -> frozenset[HostPort]:
    return frozenset(
        HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port)
        for port in decode_part(_ports, data) or ()
        if port.host_port
    )


@lru_cache(maxsize=4096)
def _shared(requests: frozenset[tuple[str, int]], ports: frozenset[HostPort]) -> Demand:
    return Demand(dict(sorted(requests)), ports) if requests or ports else NOTHING
