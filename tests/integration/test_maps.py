"""What a map's text may look like, and what it may not: each row on a real pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.asking import asker
from tests.objects import gpu, literal, mig

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from tests.integration.bench import Bench
    from tests.integration.command import Command


READ = (
    ("map-3", "lines of nothing", "# a title\n\n  # indented\n0=node1:1\n\n", "1"),
    ("map-4", "spaces and CRLF", " 0 = node1 : 1 , 2 \r\n\t1=node2:0\r\n", "1,2"),
    ("map-2", "devices out of order", "0=node1:2,0,1\n", "2,0,1"),
    ("map-8", "UUIDs of GPUs", f"0=node1:{gpu(3)},{gpu(1)}\n", f"{gpu(3)},{gpu(1)}"),
    ("map-8", "a UUID of a slice", f"0=node1:{mig(3)}\n", mig(3)),
    ("map-9", "no GPU at all", "0=node1:\n", ""),
    ("map-7", "as long as it may be", "0=node1:0\n" + "#" * (65_536 - 10), "0"),
)
REFUSED = (
    ("map-3", "a comment behind content", "0=node1:0 # mine\n", "line 1"),
    ("map-5", "a sign", "0=node1:+1\n", "line 1"),
    ("map-5", "an underscore", "0=node1:1_0\n", "line 1"),
    ("map-5", "a leading zero", "0=node1:01\n", "line 1"),
    ("map-5", "a digit of another script", "0=node1:\N{ARABIC-INDIC DIGIT THREE}\n", "line 1"),
    ("map-5", "a superscript", "0=node1:\N{SUPERSCRIPT TWO}\n", "line 1"),
    ("map-6", "an index twice", "0=node1:0\n0=node1:1\n", "line 2"),
    ("map-6", "an ID twice on a line", "0=node1:1,1\n", "line 1"),
    ("map-6", "an empty part", "0=node1:0,\n", "line 1"),
    ("map-6", "no node's name", "0=Node_1:0\n", "line 1"),
    ("map-8", "two kinds of ID on a line", f"0=node1:0,{gpu(0)}\n", "line 1"),
    ("map-8", "half a UUID", "0=node1:GPU-1234\n", "line 1"),
    ("map-7", "a byte too long", "0=node1:0\n" + "#" * (65_537 - 10), "65536 bytes"),
)


def rows(table: tuple[tuple[str, ...], ...]) -> list[ParameterSet]:
    """Give each row its name and its promise."""
    return [pytest.param(*rest, id=name, marks=pytest.mark.promise(promise)) for promise, name, *rest in table]


@pytest.mark.parametrize(("text", "devices"), rows(READ))
def test_a_map_is_read(bench: Bench, scheduler: Command, text: str, devices: str) -> None:
    """The pod lands where its line says and sees the line's devices, in the line's order."""
    bench.node("node1")
    bench.make(asker(text, literal(devices)))

    placed = bench.placed("asker-0")

    assert (placed.node, placed.devices, placed.index) == ("node1", devices, 0)


@pytest.mark.parametrize(("text", "tells"), rows(REFUSED))
def test_a_map_is_refused(bench: Bench, scheduler: Command, text: str, tells: str) -> None:
    """By its line, with an example that works; not half read, whatever the other lines say."""
    bench.node("node1")
    bench.make(asker(text))

    message = bench.wait_message("asker-0", "MapInvalid: ")

    assert tells in message
    assert "(example: 1=node2:0,1)" in message


@pytest.mark.promise("map-10")
def test_a_real_name_comes_before_an_alias(bench: Bench, scheduler: Command) -> None:
    """One node is called node1, another carries it as alias: the map means the first."""
    bench.node("node2", alias="node1")
    bench.node("node1")
    bench.make(asker())

    assert bench.placed("asker-0").node == "node1"
