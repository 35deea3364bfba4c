"""The neutral observer, a process of its own: watches pods and `Scheduled` events and notes when it saw each.

Started with the API server's address, CA file, token and how many binds and events there will be; says `ready`, then
once a second how far it is, and ends when all were seen or its standard input is closed. Last comes one line of JSON.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK: Final = 1 << 18
# The API server's own order of magnitude: nothing here lasts so long.
_LONGEST: Final = 7200
EVENTS: Final = "/apis/events.k8s.io/v1/events"
PODS: Final = "/api/v1/pods"


class Asked(msgspec.Struct):
    """What it is told on the command line, as JSON."""

    port: int
    ca: str
    token: str
    binds: int
    events: int


class Seen(msgspec.Struct):
    """What it has to tell: by `namespace/name`, on the monotonic clock, which all processes of a machine share."""

    bound: dict[str, float] = {}
    events: dict[str, float] = {}
    """When the first `Scheduled` event came."""
    repeated: int = 0
    """`Scheduled` events beyond the first of their pod."""


class Progress(msgspec.Struct):
    """How far it is."""

    binds: int
    events: int


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    name: str = ""
    namespace: str = ""


class _PodSpec(msgspec.Struct):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _PodSpec


class _PodEvent(msgspec.Struct):
    type: str
    object: _Pod


class _Regarding(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Event(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    reason: str = ""
    regarding: _Regarding = msgspec.field(default_factory=_Regarding)


class _EventEvent(msgspec.Struct):
    type: str
    object: _Event


class _Watch:
    """One collection from now on; goes on where it was when the API server ends it, as it does with slow readers."""

    def __init__(self, asked: Asked, path: str) -> None:
        self._path = path
        tls = ssl.create_default_context(cafile=asked.ca)
        self._connection = http.client.HTTPSConnection("127.0.0.1", asked.port, context=tls, timeout=_LONGEST)
        self._headers = {"Authorization": f"Bearer {asked.token}", "Accept": "application/json"}
        listed = msgspec.json.decode(self._ask("limit=1").read())
        self._version = str(listed["metadata"]["resourceVersion"])

    def open(self) -> None:
        """Ask for what comes from the version on that was seen last; OSError when that is refused."""
        query = f"watch=1&resourceVersion={self._version}&timeoutSeconds={_LONGEST}"
        self._response = self._ask(query)
        if self._response.status != http.client.OK:
            raise OSError(f"cannot watch {self._path}: HTTP {self._response.status}")

    def follow(self, take: Callable[[float, bytes], str]) -> None:
        """Hand over each line with when it came; `take` answers the version that it shows."""
        while True:
            for at, line in _lines(self._response):
                self._version = take(at, line)
            self.open()

    def _ask(self, query: str) -> http.client.HTTPResponse:
        self._connection.request("GET", f"{self._path}?{query}", headers=self._headers)
        return self._connection.getresponse()


class Watcher:
    """Two watches, a thread each."""

    def __init__(self, asked: Asked) -> None:
        """Nothing is measured yet."""
        self._asked = asked
        self._pods = msgspec.json.Decoder(_PodEvent)
        self._events = msgspec.json.Decoder(_EventEvent)
        self._told: Counter[str] = Counter()
        self.seen = Seen()

    def begin(self) -> None:
        """Return when both watches are open."""
        for watch, take in ((_Watch(self._asked, PODS), self._pod), (_Watch(self._asked, EVENTS), self._event)):
            watch.open()
            threading.Thread(target=watch.follow, args=(take,), daemon=True).start()

    def done(self) -> bool:
        """Whether everything that was to come has come."""
        return len(self.seen.bound) >= self._asked.binds and len(self.seen.events) >= self._asked.events

    def _pod(self, at: float, line: bytes) -> str:
        pod = self._pods.decode(line).object
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.spec.node and key not in self.seen.bound:
            self.seen.bound[key] = at
        return pod.metadata.version

    def _event(self, at: float, line: bytes) -> str:
        event = self._events.decode(line)
        # client-go's recorder adds to an event that it repeats: only what is new is one more.
        if event.object.reason == "Scheduled" and event.type == "ADDED":
            key = f"{event.object.regarding.namespace}/{event.object.regarding.name}"
            self.seen.repeated += key in self.seen.events
            self.seen.events.setdefault(key, at)
        return event.object.metadata.version


def _lines(response: http.client.HTTPResponse) -> Iterator[tuple[float, bytes]]:
    rest = b""
    while chunk := response.read1(_CHUNK):
        at = time.monotonic()
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield at, line


def main() -> None:
    """Observe until all has come, or nobody wants to know any more."""
    observer = Watcher(msgspec.json.decode(sys.argv[1], type=Asked))
    observer.begin()
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    _say(b"ready")
    told = time.monotonic()
    while not ended.wait(0.05) and not observer.done():
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            _say(msgspec.json.encode(Progress(len(observer.seen.bound), len(observer.seen.events))))
    # One more event than there should be would come now.
    time.sleep(0.5)
    _say(msgspec.json.encode(observer.seen))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
