"""The auditor's own list and watch over plain HTTP."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tests.auditor.history import Event
from tests.auditor.objects import seen

if TYPE_CHECKING:
    from tests.auditor.objects import Seen
    from tests.integration.control_plane import ControlPlane

GONE = 410


class _List(msgspec.Struct):
    metadata: dict[str, object]
    items: list[msgspec.Raw]


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0


class _Bookmark(msgspec.Struct):
    metadata: dict[str, object]


class Watching:
    """Lists and watches one kind of object, in a thread of its own, and keeps every event."""

    def __init__(self, plane: ControlPlane, kind: str) -> None:
        """List the objects, and start the thread that watches them."""
        self._kube = plane.kube
        self._path = f"/api/v1/{kind}"
        self._kind = kind
        self.events: list[Event] = []
        self._live: dict[str, Seen] = {}
        self._version = 0
        self._stopping = False
        self._connection: http.client.HTTPSConnection | None = None
        self._list()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"auditor of {kind}")
        self._thread.start()

    def caught_up(self) -> bool:
        """Return whether the watch has received every version and every deletion that a fresh list shows."""
        assert self._thread.is_alive(), f"the auditor's watch of {self._kind} has ended"
        version, items = self._listed()
        live = dict(self._live)
        listed = {each.api_object.metadata.uid: each.api_object.version for each in items}
        received = all(uid in live and live[uid].api_object.version >= at for uid, at in listed.items())
        return received and all(uid in listed or each.api_object.version > version for uid, each in live.items())

    def close(self) -> None:
        """Stop the watch and its thread."""
        self._stopping = True
        while self._thread.is_alive():
            connection = self._connection
            if connection is not None and connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            self._thread.join(0.1)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._watch()
            except (OSError, http.client.HTTPException, msgspec.DecodeError):
                # The watcher's own pause, while the API server is down.
                time.sleep(0.1)

    def _listed(self) -> tuple[int, list[Seen]]:
        found = msgspec.json.decode(self._kube.raw("GET", self._path)[1], type=_List)
        return int(str(found.metadata["resourceVersion"])), [seen(raw) for raw in found.items]

    def _list(self) -> None:
        """List again: add an event for each changed object, and a deletion for each missing one."""
        version, items = self._listed()
        listed = {each.api_object.metadata.uid for each in items}
        for uid in self._live.keys() - listed:
            self._take(self._live[uid], version, deleted=True)
        for each in sorted(items, key=lambda each: each.api_object.version):
            known = self._live.get(each.api_object.metadata.uid)
            if known is None or known.api_object.version != each.api_object.version:
                self._take(each, each.api_object.version, deleted=False)
        self._version = version

    def _watch(self) -> None:
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
        with self._kube.stream(f"{self._path}?{query}") as (self._connection, answer):
            if answer.status == GONE:
                self._list()
                return
            while line := answer.readline():
                self._take_line(msgspec.json.decode(line, type=_Line))

    def _take_line(self, line: _Line) -> None:
        if line.type == "ERROR":
            if msgspec.json.decode(line.object, type=_Status).code == GONE:
                self._list()
            raise ConnectionError("the watch has ended")
        if line.type == "BOOKMARK":
            self._version = int(str(msgspec.json.decode(line.object, type=_Bookmark).metadata["resourceVersion"]))
            return
        shown = seen(line.object)
        self._version = shown.api_object.version
        self._take(shown, shown.api_object.version, deleted=line.type == "DELETED")

    def _take(self, shown: Seen, version: int, *, deleted: bool) -> None:
        uid = shown.api_object.metadata.uid
        self.events.append(Event(time.monotonic(), version, self._kind, deleted, shown))
        if deleted:
            self._live.pop(uid, None)
        else:
            self._live[uid] = shown
