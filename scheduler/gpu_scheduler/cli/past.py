"""Reads what is written about past decisions: events, pods, and the logs of the scheduler's replicas.

LAW: reads only, with the caller's rights, in bounded time and size. What may not be read is named.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.cli.timeline import Entry, PodEvent, from_event, from_log, from_pod
from gpu_scheduler.kube.http.client import NoResponseError, segment
from gpu_scheduler.kube.lists import UnlistedError, list_all
from gpu_scheduler.kube.objects.decoding import UNREADABLE, decode_object
from gpu_scheduler.kube.objects.meta import ReadStruct, read_name
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.resource import RefusedError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from gpu_scheduler.kube.http.client import ApiClient

    Part = tuple[list[Entry], list[str]]

LOG_LINES: Final = 10_000
"""Lines that are read of the log of each replica, the last ones."""
LOG_BYTES: Final = 2**24
"""Most bytes of them. A line of a decision has about 300."""
LOG_TIMEOUT: Final = 10.0
REPLICAS: Final = f"app.kubernetes.io/name={names.SCHEDULER_NAME},app.kubernetes.io/component=scheduler"


class _Subject(ReadStruct):
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _Series(ReadStruct):
    count: int | None = None
    last_observed_time: str | None = None


class _EventMeta(ReadStruct):
    creation_timestamp: str | None = None


class _Event(ReadStruct):
    """An event of the core API, which has those that were written through events.k8s.io too."""

    metadata: _EventMeta
    involved_object: _Subject
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    series: _Series | None = None
    reporting_instance: str | None = None


_events = msgspec.json.Decoder(_Event)
_pods = msgspec.json.Decoder(PodObject)


async def read_past(  # noqa: PLR0913 - what is asked for
    api: ApiClient,
    scheduler_name: str,
    *,
    system_namespace: str,
    namespace: str | None,
    pod: str | None,
    seconds: int | None,
) -> Part:
    """Return what is written about the pods of one namespace (None for all), or about one pod; and what is unreadable.

    `seconds` limits the age of the log lines that are read; None sets no limit.
    """
    events, pods, (logs, unread) = await asyncio.gather(
        _part(_of_events(api, scheduler_name, namespace, pod), f"list events {_scope(namespace)}"),
        _part(_of_pods(api, scheduler_name, namespace, pod), f"list pods {_scope(namespace)}"),
        _of_logs(api, system_namespace, seconds),
    )
    shown = [entry for entry in logs if namespace in {None, entry.namespace} and (pod is None or pod == entry.pod)]
    return [*events[0], *pods[0], *shown], [*events[1], *pods[1], *unread]


async def _part(reading: Coroutine[None, None, list[Entry]], right: str) -> Part:
    """Return what is read; nothing, and the missing right as a sentence, if the caller may not read it."""
    try:
        return await reading, []
    except UnlistedError as error:
        return [], [missing_right(error, right)]


async def _of_events(api: ApiClient, scheduler_name: str, namespace: str | None, pod: str | None) -> list[Entry]:
    selector = f"involvedObject.kind=Pod,reportingComponent={scheduler_name}"
    if pod is not None:
        selector += f",involvedObject.name={pod}"
    found = await list_all(api, "events", _path(namespace, "events"), _read_event, selector=selector)
    return [entry for entry in map(from_event, found) if entry is not None]


async def _of_pods(api: ApiClient, scheduler_name: str, namespace: str | None, pod: str | None) -> list[Entry]:
    selector = f"spec.schedulerName={scheduler_name}" + (f",metadata.name={pod}" if pod is not None else "")
    found = await list_all(api, "pods", _path(namespace, "pods"), _read_pod, selector=selector)
    return [entry for each in found for entry in from_pod(each)]


async def _of_logs(api: ApiClient, system_namespace: str, seconds: int | None) -> Part:
    """Return what the logs of all replicas say. A log that cannot be read now is named, as is a missing right."""
    path = _path(system_namespace, "pods")
    try:
        replicas = await list_all(api, f"the pods of namespace {system_namespace}", path, read_name, labels=REPLICAS)
    except UnlistedError as error:
        return [], [missing_right(error, f"list pods -n {system_namespace}")]
    logs = await asyncio.gather(*(_log(api, system_namespace, name, seconds) for name in replicas))
    return [entry for entries, _ in logs for entry in entries], [why for _, why in logs if why]


async def _log(api: ApiClient, namespace: str, replica: str, seconds: int | None) -> tuple[list[Entry], str]:
    query = {"tailLines": str(LOG_LINES), "limitBytes": str(LOG_BYTES)}
    if seconds is not None:
        query["sinceSeconds"] = str(seconds)
    path = f"{_path(namespace, 'pods')}/{segment(replica)}/log"
    try:
        answer = await api.call("GET", path, query=query, timeout=LOG_TIMEOUT, most=2 * LOG_BYTES)
    except NoResponseError as error:
        return [], f"cannot read the log of {replica}: {error}; try again later"
    if answer.ok:
        return list(_entries(bytes(answer.body), replica)), ""
    refused = UnlistedError(f"the log of {replica}", RefusedError(answer), "read")
    if refused.forbidden:
        return [], missing_right(refused, f"get pods --subresource=log -n {namespace}")
    return [], f"{refused}; try again later"


def _entries(log: bytes, replica: str) -> Iterator[Entry]:
    """Yield what the lines of a log say. Lines that are no JSON, or were cut, say nothing."""
    for text in log.splitlines():
        try:
            line = msgspec.json.decode(text)
        except UNREADABLE:
            continue
        entry = from_log(line, replica) if isinstance(line, dict) else None
        if entry is not None:
            yield entry


def _read_event(raw: msgspec.Raw) -> PodEvent:
    event = decode_object(_events, raw)
    subject, series = event.involved_object, event.series or _Series()
    return PodEvent(
        namespace=subject.namespace or "",
        pod=subject.name or "",
        uid=subject.uid or "",
        reason=event.reason or "",
        note=event.message or "",
        times=(event.event_time, event.first_timestamp, event.metadata.creation_timestamp),
        last=(series.last_observed_time, event.last_timestamp),
        count=max(series.count or event.count or 1, 1),
        by=event.reporting_instance or "",
    )


def _read_pod(raw: msgspec.Raw) -> PodObject:
    return decode_object(_pods, raw)


def _path(namespace: str | None, resource: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/{resource}" if namespace else f"/api/v1/{resource}"


def _scope(namespace: str | None) -> str:
    return f"-n {namespace}" if namespace else "-A"
