"""Events as Kubernetes' own components write them, through events.k8s.io/v1."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.http.client import NoResponseError, segment, status_message
from gpu_scheduler.kube.timestamps import micro_time_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gpu_scheduler.kube.http.client import ApiClient

MAX_ANSWER_BYTES: Final = 2**16

log = logging.getLogger(__name__)


NORMAL: Final = "Normal"
WARNING: Final = "Warning"
"""Kubernetes' two types of event."""


class EventText(Protocol):
    """What an event says."""

    @property
    def type(self) -> str:
        """NORMAL or WARNING."""

    @property
    def reason(self) -> str:
        """Why, in one word."""

    @property
    def action(self) -> str:
        """What was done or tried, in one word."""

    @property
    def note(self) -> str:
        """The sentence, of at most 1,024 bytes."""


@immutable
class ObjectRef:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@immutable
class Event(EventText):
    """An event's text."""

    type: str
    reason: str
    action: str
    note: str


def events_path(namespace: str) -> str:
    """Return the path at which events of a namespace are created."""
    return f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"


def event_name(regarding: str) -> str:
    """Return the name of a new event, as client-go names them: the object's name, then a number that never repeats."""
    return f"{regarding[:200]}.{time.time_ns():x}"


def event_object(  # noqa: PLR0913, PLR0917 - an event has these parts
    regarding: ObjectRef, event: EventText, name: str, at: datetime, controller: str, instance: str
) -> dict[str, object]:
    """Return the event as JSON. `controller` and `instance` are the program and the replica that report it."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": regarding.namespace},
        "eventTime": micro_time_of(at),
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        },
    }


class Events:
    """Creates events, each in one try: an event is news, and nothing depends on it."""

    def __init__(self, api: ApiClient, *, controller: str, instance: str, wall: Callable[[], datetime]) -> None:
        """`controller` and `instance` are the program and the replica that report the events."""
        self._api = api
        self._controller = controller
        self._instance = instance
        self._wall = wall

    async def create(self, regarding: ObjectRef, event: EventText) -> None:
        """Create the event. A failure is logged and raises nothing."""
        name = event_name(regarding.name)
        body = event_object(regarding, event, name, self._wall(), self._controller, self._instance)
        try:
            answer = await self._api.call(
                "POST", events_path(regarding.namespace), body=msgspec.json.encode(body), most=MAX_ANSWER_BYTES
            )
        except NoResponseError as error:
            why = str(error)
        else:
            if answer.ok:
                return
            why = status_message(answer)
        log.warning("An event could not be written", extra={"reason": event.reason, "error": why})
