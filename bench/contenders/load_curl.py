"""Load generator on libcurl and epoll, which needs half the CPU of aiohttp.

Usage: python -m bench.contenders.load_curl ORDERS
"""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pycurl  # type: ignore[import-untyped]  # the package has no type hints

from bench.contenders import prepared_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEVER: Final = -1
"""libcurl's timer value when it waits only for its sockets."""
_EVENTS: Final = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


class _Post(NamedTuple):
    url: bytes
    body: bytes
    event: _Post | None
    is_bind: bool


class _Slot:
    """A slot for one request in flight at a time."""

    def __init__(self, header: prepared_requests.Header) -> None:
        """Prepare the first request, which opens the connection."""
        self.handle = pycurl.Curl()
        self.post = _Post((header.server + prepared_requests.VERSION_PATH).encode(), b"", None, is_bind=False)
        self._begun = False
        options = {
            pycurl.URL: self.post.url,
            pycurl.CAINFO: header.ca,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTPHEADER: [f"{name}: {text}" for name, text in prepared_requests.headers(header).items()],
            # No proxy, whatever the environment sets.
            pycurl.PROXY: "",
            # Discards every byte.
            pycurl.WRITEFUNCTION: len,
            pycurl.PREREQFUNCTION: self._begin,
        }
        for option, value in options.items():
            self.handle.setopt(option, value)

    def take(self, post: _Post) -> None:
        """Set the next request."""
        self.post, self._begun = post, False
        self.handle.setopt(pycurl.URL, post.url)
        self.handle.setopt(pycurl.POSTFIELDS, post.body)

    def _begin(self, *_connection: object) -> int:
        """Refuse to send a request again: libcurl would when a kept connection breaks before the answer."""
        if self._begun:
            return int(pycurl.PREREQFUNC_ABORT)
        self._begun = True
        return int(pycurl.PREREQFUNC_OK)


class _Client:
    """All slots, each with an open connection."""

    def __init__(self, header: prepared_requests.Header) -> None:
        """Open the connections; ConnectionError when one cannot be opened."""
        self._server = header.server
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._timer = _NEVER
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, header.in_flight)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._places = {place.handle: place for place in (_Slot(header) for _ in range(header.in_flight))}
        self._running = 0
        for place in self._places.values():
            self._start(place)
        for _, status in self._answered():
            prepared_requests.check(header, status)

    def send(self, binds: Iterator[_Post], count: prepared_requests.Count) -> None:
        """Send all binds and the events after them; ConnectionError when a connection breaks."""
        # The slots come first: otherwise zip would consume one bind too many.
        for place, first in zip(self._places.values(), binds, strict=False):
            place.take(first)
            self._start(place)
        for place, status in self._answered():
            following = None
            if not place.post.is_bind:
                count.event(status)
            elif count.bind(status):
                following = place.post.event
            following = following or next(binds, None)
            if following is not None:
                place.take(following)
                self._start(place)

    def _start(self, place: _Slot) -> None:
        self._running += 1
        self._multi.add_handle(place.handle)

    def _answered(self) -> Iterator[tuple[_Slot, int]]:
        """Yield each slot and the status of its answer, until no request is in flight."""
        while self._running:
            self._run_once()
            _, answered, broken = self._multi.info_read()
            for _, _, reason in broken:
                raise prepared_requests.broken(self._server, reason)
            for handle in answered:
                self._multi.remove_handle(handle)
                self._running -= 1
                yield self._places[handle], handle.getinfo(pycurl.RESPONSE_CODE)

    def _run_once(self) -> None:
        """Wait until libcurl has something to do, and let it run."""
        found = self._epoll.poll(None if self._timer == _NEVER else self._timer / 1000)
        for number, events in found:
            readable = pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0
            writable = pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
            self._multi.socket_action(number, readable | writable)
        if self._timer == 0 or not found:
            self._timer = _NEVER
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _watch(self, setting: int, number: int, *_unused: object) -> None:
        """Register, change or remove the socket in epoll, as libcurl asks."""
        if setting == pycurl.POLL_REMOVE:
            self._watched.discard(number)
            self._epoll.unregister(number)
        elif number in self._watched:
            self._epoll.modify(number, _EVENTS[setting])
        else:
            self._watched.add(number)
            self._epoll.register(number, _EVENTS[setting])

    def _set_timer(self, milliseconds: int) -> None:
        self._timer = milliseconds


def _posts(header: prepared_requests.Header, given: Iterable[prepared_requests.PreparedPod]) -> Iterator[_Post]:
    for order in given:
        event = None if order.event is None else _post(header, order.event, None, is_bind=False)
        yield _post(header, order.bind, event, is_bind=True)


def _post(
    header: prepared_requests.Header, request: prepared_requests.Request, event: _Post | None, *, is_bind: bool
) -> _Post:
    return _Post((header.server + request.path).encode(), request.body.encode(), event, is_bind)


def main(path: str) -> None:
    """Send the requests of this file and print the report; ConnectionError when a connection breaks."""
    header, given = prepared_requests.read(Path(path))
    binds = list(_posts(header, given))
    generator = _Client(header)
    prepared_requests.wait_for_go()
    count = prepared_requests.Count()
    generator.send(iter(binds), count)
    count.report(header)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (OSError, EOFError, ValueError) as error:
        sys.exit(str(error))
