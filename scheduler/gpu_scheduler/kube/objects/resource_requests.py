"""A pod's resource request, from its containers: requests as kube-scheduler adds them up, and host ports.

Thousands of pods are alike, so each distinct text is decoded once and equal requests share one value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import MAX_PART, MAX_PORTS, MAX_RESOURCES, Excess
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, EVERY_PORT, NOTHING, HostPort, ResourceRequest
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.pod_objects import (
    Consumer,
    ContainerPort,
    Counted,
    ForeignPodSpec,
    LongRequirements,
    PodSpec,
    ResourceRequirements,
)
from gpu_scheduler.kube.objects.quantities import QuantityError, thousandths, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_resources = msgspec.json.Decoder(ResourceRequirements | None)
_long = msgspec.json.Decoder(LongRequirements | None)
_overheads = msgspec.json.Decoder(dict[str, object] | None)
_ports = msgspec.json.Decoder(list[ContainerPort] | None)

_LONGEST: Final = 1024
"""Most bytes of text for which the result is cached."""
_MOST: Final = 1024
"""Most cached results of one function."""
_FEW: Final = 16
"""Most containers of a pod, and most resources and most ports of a request, for which the result is cached."""
_COUNTED: Final = ("cpu", "memory", "ephemeral-storage", names.GPU_RESOURCE)
"""Resources that are checked before all others, in this order, and that are kept if there are too many."""
_EVERY: Final = frozenset({EVERY_PORT})


class ContainerRequest(NamedTuple):
    """The resources of one container, or of a pod as a whole."""

    requests: Mapping[str, int]
    gpu_limit: int
    too_many: bool = False
    """There were more resources than MAX_RESOURCES, or their text was too long; some may be missing."""


class _Texts(NamedTuple):
    """A container's resources and ports, undecoded."""

    resources: bytes
    ports: bytes
    sidecar: bool


def resource_request_of(spec: PodSpec | ForeignPodSpec) -> tuple[ResourceRequest, Excess | None]:
    """Return the whole pod's request. Init containers run before the others, so the larger of the two counts.

    If there are too many resources, the first are kept: CPU, memory and GPUs before all others. Too many ports count as
    all ports. Both give an Excess.
    """
    texts = (
        tuple([_texts(each) for each in spec.containers or ()]),
        tuple([_texts(each) for each in spec.init_containers or ()]),
        bytes(spec.resources),
        bytes(spec.overhead),
    )
    count = len(texts[0]) + len(texts[1])
    length = sum([len(each.resources) + len(each.ports) for each in chain(*texts[:2])]) + len(texts[2]) + len(texts[3])
    return _resource_request(*texts) if length <= _LONGEST and count <= _FEW else _resource_request.__wrapped__(*texts)


def gpu_limit_of(resources: msgspec.Raw) -> int:
    """Return the GPU limit in a `resources` field; 0 if the field cannot be decoded."""
    return _wanted(bytes(resources)).gpu_limit


def shared_amounts(quantities: Mapping[str, object] | None) -> Mapping[str, int]:
    """Like `amounts`, but equal results share one value. The caller must not modify it."""
    found = amounts(quantities)
    return _same_amounts(tuple(found.items())) if len(found) <= MAX_RESOURCES else found


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Return quantities as whole numbers; leave out those that cannot be read."""
    found: dict[str, int] = {}
    for resource, quantity in (quantities or {}).items():
        try:
            found[resource] = (thousandths if resource == "cpu" else whole)(str(quantity))
        except QuantityError:
            continue
    return found


def _wanted(resources: bytes) -> ContainerRequest:
    return _wants(resources) if len(resources) <= _LONGEST else _wants.__wrapped__(resources)


def _start_up(before: Iterable[tuple[Mapping[str, int], bool]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sum of all sidecars, and the largest sum while the init containers run one after the other."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for requests, sidecar in before:
        running = dict(sidecars)
        _add(running, requests)
        if sidecar:
            # Bounded, because every container that follows copies all of them.
            sidecars = _first(running)
        for resource, amount in running.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    return sidecars, peak


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _first(found: dict[str, int]) -> dict[str, int]:
    """Return at most MAX_RESOURCES resources, the most important first."""
    if len(found) <= MAX_RESOURCES:
        return found
    return {resource: found[resource] for resource in sorted(found, key=_importance)[:MAX_RESOURCES]}


def _importance(resource: str) -> tuple[int, str]:
    return _COUNTED.index(resource) if resource in _COUNTED else len(_COUNTED), resource


def _texts(container: Consumer) -> _Texts:
    return _Texts(bytes(container.resources), bytes(container.ports), container.restart_policy == "Always")


@lru_cache(maxsize=_MOST)
def _resource_request(
    containers: tuple[_Texts, ...], before: tuple[_Texts, ...], resources: bytes, overhead: bytes
) -> tuple[ResourceRequest, Excess | None]:
    wants = [_wanted(each.resources) for each in chain(containers, before)]
    total: dict[str, int] = {}
    for each in wants[: len(containers)]:
        _add(total, each.requests)
    in_turn = zip(wants[len(containers) :], before, strict=True)
    sidecars, peak = _start_up((each.requests, texts.sidecar) for each, texts in in_turn)
    _add(total, sidecars)
    for resource, amount in peak.items():
        total[resource] = max(total.get(resource, 0), amount)
    of_the_pod = _wanted(resources)
    total |= of_the_pod.requests
    _add(total, amounts(decode_part(_overheads, overhead[:MAX_PART])))
    ports = _ports_of(chain(containers, (each for each in before if each.sidecar)))
    kept = _first(total)
    excess: Excess | None = None
    if len(total) > len(kept) or any(each.too_many for each in (*wants, of_the_pod)):
        most = max(len(total), MAX_RESOURCES + 1)
        excess = Excess("the resources of the pod", most, MAX_RESOURCES, "resources")
    elif ports == _EVERY:
        excess = Excess("the host ports of the pod", MAX_PORTS + 1, MAX_PORTS, "ports or more")
    found = frozenset(item for item in kept.items() if item[1])
    few = len(found) <= _FEW and len(ports) <= _FEW
    return (_shared if few else _shared.__wrapped__)(found, ports), excess


@lru_cache(maxsize=_MOST)
def _wants(data: bytes) -> ContainerRequest:
    if len(data) > MAX_PART:
        # There may be thousands of resources that no node reports by itself.
        long = decode_part(_long, data) or LongRequirements()
        return ContainerRequest(
            _counted(long.requests), _counted(long.limits).get(names.GPU_RESOURCE, 0), too_many=True
        )
    resources = decode_part(_resources, data) or ResourceRequirements()
    requests = amounts(resources.requests)
    limit = amounts({names.GPU_RESOURCE: (resources.limits or {}).get(names.GPU_RESOURCE, "0")})
    return ContainerRequest(_first(requests), limit.get(names.GPU_RESOURCE, 0), too_many=len(requests) > MAX_RESOURCES)


def _counted(given: Counted | None) -> dict[str, int]:
    if given is None:
        return {}
    quantities = {
        "cpu": given.cpu,
        "memory": given.memory,
        "ephemeral-storage": given.ephemeral_storage,
        names.GPU_RESOURCE: given.gpu,
    }
    return amounts({resource: quantity for resource, quantity in quantities.items() if quantity is not msgspec.UNSET})


def _ports_of(containers: Iterable[_Texts]) -> frozenset[HostPort]:
    found: set[HostPort] = set()
    for container in containers:
        if len(container.ports) > MAX_PART and b'"hostPort"' in container.ports:
            return _EVERY
        found.update(_host_ports(container.ports[:MAX_PART]))
        if len(found) > MAX_PORTS:
            return _EVERY
    return frozenset(found)


def _host_ports(ports: bytes) -> Iterable[HostPort]:
    return (
        HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port)
        for port in decode_part(_ports, ports) or ()
        if port.host_port
    )


@lru_cache(maxsize=64)
def _same_amounts(found: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    return dict(found)


@lru_cache(maxsize=_MOST)
def _shared(requests: frozenset[tuple[str, int]], ports: frozenset[HostPort]) -> ResourceRequest:
    if not requests and not ports:
        return NOTHING
    return ResourceRequest(dict(sorted(requests, key=lambda each: _importance(each[0]))), ports)
