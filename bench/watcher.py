"""The observer, a process of its own: watches pods and `Scheduled` events and records when it received each.

The argument is `WatchRequest` as JSON: the API server's port, CA file and token, and the expected binds and events. It
prints `ready`, then its progress once a second. It ends when it has received all, or when its standard input is closed.
The last line of its output is `Seen` as JSON.
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
# Seconds. The API server uses limits of this order; no measurement takes longer.
_LONGEST: Final = 7200
EVENTS: Final = "/apis/events.k8s.io/v1/events"
PODS: Final = "/api/v1/pods"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"


class WatchRequest(msgspec.Struct):
    """The argument on the command line, as JSON."""

    port: int
    ca: str
    token: str
    binds: int
    events: int
    claims: bool = False
    """Whether to watch ResourceClaims, until one changes."""
    namespace: str = ""
    """The only namespace whose pods and events are watched; empty for all."""


class Seen(msgspec.Struct):
    """The result: times by `namespace/name`, on the monotonic clock, which all processes of a machine share."""

    bound: dict[str, float] = {}
    appeared: dict[str, float] = {}
    """When the pod was received for the first time, bound or not."""
    events: dict[str, float] = {}
    """When the pod's first `Scheduled` event was received."""
    repeated: int = 0
    """`Scheduled` events of a pod after its first one."""
    elections: int = 0
    """Events of Leases."""
    first_claim: float | None = None
    """When a claim was created or changed for the first time; None if claims are not watched."""


class Progress(msgspec.Struct):
    """How many binds and events the observer has received."""

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
    """A watch of one collection from now on. When the API server ends it, as for slow readers, it is opened again."""

    def __init__(self, asked: WatchRequest, path: str) -> None:
        api, _, kind = path.rpartition("/")
        self._path = f"{api}/namespaces/{asked.namespace}/{kind}" if asked.namespace else path
        tls = ssl.create_default_context(cafile=asked.ca)
        self._connection = http.client.HTTPSConnection("127.0.0.1", asked.port, context=tls, timeout=_LONGEST)
        self._headers = {"Authorization": f"Bearer {asked.token}", "Accept": "application/json"}
        listed = msgspec.json.decode(self._ask("limit=1").read())
        self._version = str(listed["metadata"]["resourceVersion"])

    def open(self) -> None:
        """Open the watch from the last received version on; OSError when the API server refuses it."""
        query = f"watch=1&resourceVersion={self._version}&timeoutSeconds={_LONGEST}"
        self._response = self._ask(query)
        if self._response.status != http.client.OK:
            raise OSError(f"cannot watch {self._path}: HTTP {self._response.status}")

    def follow(self, take: Callable[[float, bytes], str]) -> None:
        """Call `take` with each line and its time; `take` returns the line's resourceVersion."""
        while True:
            for at, line in _lines(self._response):
                self._version = take(at, line)
            self.open()

    def first(self) -> float:
        """Wait for one line, end the watch, and return the line's time."""
        at, _ = next(_lines(self._response))
        self._connection.close()
        return at

    def _ask(self, query: str) -> http.client.HTTPResponse:
        self._connection.request("GET", f"{self._path}?{query}", headers=self._headers)
        return self._connection.getresponse()


class Watcher:
    """Watches, each in a thread."""

    def __init__(self, asked: WatchRequest) -> None:
        """Prepare; `begin` opens the watches."""
        self._asked = asked
        self._pods = msgspec.json.Decoder(_PodEvent)
        self._events = msgspec.json.Decoder(_EventEvent)
        self._reported: Counter[str] = Counter()
        self.seen = Seen()

    def begin(self) -> None:
        """Return when the watches are open."""
        for watch, take in ((_Watch(self._asked, PODS), self._pod), (_Watch(self._asked, EVENTS), self._event)):
            watch.open()
            threading.Thread(target=watch.follow, args=(take,), daemon=True).start()

        if self._asked.claims:
            claims = _Watch(self._asked, CLAIMS)
            claims.open()
            threading.Thread(target=self._first_claim, args=(claims,), daemon=True).start()

    def done(self) -> bool:
        """Whether all expected binds and events were received."""
        return len(self.seen.bound) >= self._asked.binds and len(self.seen.events) >= self._asked.events

    def _first_claim(self, claims: _Watch) -> None:
        self.seen.first_claim = claims.first()

    def _pod(self, at: float, line: bytes) -> str:
        pod = self._pods.decode(line).object
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.seen.appeared.setdefault(key, at)
        if pod.spec.node and key not in self.seen.bound:
            self.seen.bound[key] = at
        return pod.metadata.version

    def _event(self, at: float, line: bytes) -> str:
        event = self._events.decode(line)
        # client-go's recorder modifies an event that it repeats: only ADDED is a new one.
        if event.object.reason == "Scheduled" and event.type == "ADDED":
            key = f"{event.object.regarding.namespace}/{event.object.regarding.name}"
            self.seen.repeated += key in self.seen.events
            self.seen.events.setdefault(key, at)
        self.seen.elections += event.object.reason == "LeaderElection" and event.type == "ADDED"
        return event.object.metadata.version


def _lines(response: http.client.HTTPResponse) -> Iterator[tuple[float, bytes]]:
    rest = b""
    while chunk := response.read1(_CHUNK):
        at = time.monotonic()
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield at, line


def main() -> None:
    """Observe until all is received, or the caller closes standard input."""
    observer = Watcher(msgspec.json.decode(sys.argv[1], type=WatchRequest))
    observer.begin()
    ended = threading.Event()

    def receive() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=receive, daemon=True).start()
    _say(b"ready")
    reported = time.monotonic()
    while not ended.wait(0.05) and not observer.done():
        if time.monotonic() - reported >= 1:
            reported = time.monotonic()
            _say(msgspec.json.encode(Progress(len(observer.seen.bound), len(observer.seen.events))))
    # Wait for an event beyond the expected ones, which would be a fault.
    time.sleep(0.5)
    _say(msgspec.json.encode(observer.seen))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
