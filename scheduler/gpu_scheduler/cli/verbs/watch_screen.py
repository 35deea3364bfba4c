"""The live screen of `watch`: facts of the cluster above, and a part of the tables below that the user scrolls."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import termios
import tty
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.columns import nodes_listing, workloads_listing
from gpu_scheduler.cli.fitting import width_of, wrapped
from gpu_scheduler.cli.output import colours, tabled
from gpu_scheduler.cli.verbs.watch_state import NODE
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import number_of, printable
from gpu_scheduler.names import EVENT_CONFLICT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpu_scheduler.cli.output import PrintedTable
    from gpu_scheduler.cli.verbs.watch_state import ClusterFacts, Key

View = dict[str, Any]

_FULL_SCREEN, _USUAL_SCREEN = "\033[?1049h\033[?25l", "\033[?1049l\033[?25h"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"
_BOLD, _REVERSE, _RED, _RESET = "\033[1m", "\033[7m", "\033[31m", "\033[0m"
_COLOUR: Final = re.compile(r"\033\[\d+m")
_KEY: Final = re.compile(rb"\033[\[O]\d*[A-Z~]|.", re.DOTALL)
_KEYS: Final = {
    **dict.fromkeys((b"k", b"\033[A", b"\033OA"), "up"),
    **dict.fromkeys((b"j", b"\033[B", b"\033OB", b"\r", b"\n"), "down"),
    **dict.fromkeys((b"b", b"\033[5~"), "page up"),
    **dict.fromkeys((b"f", b" ", b"\033[6~"), "page down"),
    **dict.fromkeys((b"g", b"\033[H", b"\033OH", b"\033[1~"), "first"),
    **dict.fromkeys((b"G", b"\033[F", b"\033OF", b"\033[4~"), "last"),
    **dict.fromkeys((b"q", b"Q"), "end"),
}
_MOST_CONFLICTS: Final = 3


@immutable
class Content:
    """The lines of the screen: those that stay, and those that scroll."""

    head: Sequence[str]
    body: Sequence[str]


class Screen:
    """What is shown, and which part of it."""

    def __init__(self, *, wide: bool, coloured: bool, size: Callable[[], tuple[int, int]], stop: asyncio.Event) -> None:
        """`size` returns columns and lines of the terminal; `stop` is set when the user ends the watch."""
        self._wide, self._coloured, self._size, self._stop = wide, coloured, size, stop
        self._view: Mapping[Key, View] = {}
        self._facts: ClusterFacts | None = None
        self._offset = 0
        self._shown: tuple[tuple[int, int], Content] | None = None
        """The content for a size of the terminal. A key must not wait for thousands of rows."""

    def show(self, view: Mapping[Key, View], facts: ClusterFacts) -> None:
        """Draw what is there now."""
        self._view, self._facts, self._shown = view, facts, None
        self.draw()

    def press(self, typed: bytes) -> None:
        """Scroll, or end the watch, by the keys that were typed."""
        words = [_KEYS.get(key) for key in _KEY.findall(typed)]
        if "end" in words:
            self._stop.set()
        _, height = self._size()
        content = self._content()
        page = max(1, height - len(content.head) - 1)
        for word in filter(None, words):
            self._offset = moved(self._offset, word, page, len(content.body) - page)
        self.draw()

    def draw(self) -> None:
        """Draw the screen again."""
        width, height = self._size()
        content = self._content()
        self._offset = moved(self._offset, "", 1, len(content.body) - max(1, height - len(content.head) - 1))
        lines = frame(content, self._offset, width, height, coloured=self._coloured)
        sys.stdout.write(_HOME + "\n".join(f"{line}{_REST_OF_LINE}" for line in lines) + _REST_OF_SCREEN)
        sys.stdout.flush()

    def last(self) -> str:
        """Return the visible part as plain lines, which stay on the terminal after the end."""
        width, height = self._size()
        content = self._content()
        shown = [*content.head, *content.body[self._offset :]][: height - 1]
        return "".join(f"{_COLOUR.sub('', line)[:width].rstrip()}\n" for line in shown)

    def _content(self) -> Content:
        if self._facts is None:
            return Content((), ())
        size, now = self._size(), datetime.now(UTC)
        if self._shown is None or self._shown[0] != size:
            content = content_of(self._view, self._facts, now, width=size[0], wide=self._wide, coloured=self._coloured)
            self._shown = size, content
        return self._shown[1]


@contextmanager
def live_screen(stop: asyncio.Event, *, wide: bool) -> Iterator[Screen]:
    """Yield the screen, which follows the keys and the size of the terminal. The last view remains on the terminal."""

    def size() -> tuple[int, int]:
        columns, lines = shutil.get_terminal_size()
        return columns, lines

    screen = Screen(wide=wide, coloured=colours(sys.stdout.isatty(), os.environ), size=size, stop=stop)
    sys.stdout.write(_FULL_SCREEN)
    try:
        with _keys(screen.press):
            yield screen
    finally:
        sys.stdout.write(f"{_USUAL_SCREEN}{screen.last()}")
        sys.stdout.flush()


@contextmanager
def _keys(press: Callable[[bytes], None]) -> Iterator[None]:
    """Call `press` with each key, without waiting for the end of a line; nothing if standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, lambda: press(os.read(keyboard, 1024)))
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def moved(offset: int, word: str, page: int, most: int) -> int:
    """Return the first visible line after a key; at least 0, and at most `most`."""
    steps = {"up": -1, "down": 1, "page up": -page, "page down": page, "first": -offset, "last": most - offset}
    return max(0, min(offset + steps.get(word, 0), most))


def frame(content: Content, offset: int, width: int, height: int, *, coloured: bool) -> list[str]:
    """Return the lines of a screen of this size: the head, a part of the body, and the keys."""
    head = list(content.head)[: max(0, height - 2)]
    room = max(0, height - len(head) - 1)
    part = list(content.body[offset : offset + room])
    part += [""] * (room - len(part))
    total = len(content.body)
    place = f"lines {min(offset + 1, total)}-{min(offset + room, total)} of {total}"
    keys = f"{place}   j k, arrows, PgUp PgDn, g G: scroll   q: end"[:width]
    return [*head, *part, f"{_REVERSE}{keys}{_RESET}" if coloured else keys]


def content_of(  # noqa: PLR0913 - how it is shown
    view: Mapping[Key, View], facts: ClusterFacts, now: datetime, *, width: int, wide: bool, coloured: bool
) -> Content:
    """Return the whole content: facts, workloads with those that wait first, nodes."""
    nodes = [each for (kind, _, _), each in view.items() if kind == NODE]
    workloads = [each for (kind, _, _), each in view.items() if kind != NODE]
    workloads.sort(key=lambda each: each["phase"] != "Pending")
    pods, gpus = workloads_listing(workloads, namespaces=True, now=now), nodes_listing(nodes, now)
    tables = (pods.wide, gpus.wide) if wide else (pods.table, gpus.table)
    body = [line for table in tables for line in [*_table(table, width, coloured=coloured), ""] if table.rows]
    head = [line for text in _head(nodes, workloads, facts, now) for line in wrapped(text, width)]
    if coloured:
        head = [f"{_RED if line.startswith(EVENT_CONFLICT) else _BOLD}{line}{_RESET}" for line in head]
    return Content([*head, ""], body)


def _head(nodes: list[View], workloads: list[View], facts: ClusterFacts, now: datetime) -> Iterator[str]:
    total, held, free = (sum(node["gpus"][key] or 0 for node in nodes) for key in ("total", "held", "available"))
    waiting = sum(each["phase"] == "Pending" for each in workloads)
    yield (
        f"{now:%H:%M:%S}  {number_of(total, 'GPU')} known, {held} held, {free} free; "
        f"{number_of(len(workloads), 'workload')}, {waiting} pending"
    )
    yield printable(f"Leader {facts.leader}; strategy {facts.strategy}")
    for each in facts.conflicts[:_MOST_CONFLICTS]:
        yield printable(f"{EVENT_CONFLICT}: {each}")
    if len(facts.conflicts) > _MOST_CONFLICTS:
        yield f"{EVENT_CONFLICT}: {len(facts.conflicts) - _MOST_CONFLICTS} more (gpu-scheduler status)"


def _table(printed: PrintedTable, width: int, *, coloured: bool) -> Iterator[str]:
    """Yield the lines of a table. A line that is too wide even so continues in the next one, without colours."""
    for line in tabled(printed, coloured=coloured, width=width).splitlines():
        plain = _COLOUR.sub("", line)
        if width_of(plain) <= width:
            yield line
        else:
            yield from wrapped(plain, width)
