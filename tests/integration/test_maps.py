"""Valid and invalid maps, each on a real pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.feasibility_case import asker
from tests.objects import gpu, literal, mig

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from tests.integration.command import Command
    from tests.integration.namespace import Namespace


READ = (
    ("map-3", "comments and empty lines", "# a title\n\n  # indented\n0=node1:1\n\n", "1"),
    ("map-4", "spaces and CRLF", " 0 = node1 : 1 , 2 \r\n\t1=node2:0\r\n", "1,2"),
    ("map-2", "devices in another order", "0=node1:2,0,1\n", "2,0,1"),
    ("map-8", "UUIDs of GPUs", f"0=node1:{gpu(3)},{gpu(1)}\n", f"{gpu(3)},{gpu(1)}"),
    ("map-8", "a UUID of a MIG device", f"0=node1:{mig(3)}\n", mig(3)),
    ("map-9", "no GPU", "0=node1:\n", ""),
    ("map-7", "the longest map", "0=node1:0\n" + "#" * (65_536 - 10), "0"),
)
REFUSED = (
    ("map-3", "a comment after an entry", "0=node1:0 # mine\n", "line 1"),
    ("map-5", "a sign", "0=node1:+1\n", "line 1"),
    ("map-5", "an underscore", "0=node1:1_0\n", "line 1"),
    ("map-5", "a leading zero", "0=node1:01\n", "line 1"),
    ("map-5", "an Arabic digit", "0=node1:\N{ARABIC-INDIC DIGIT THREE}\n", "line 1"),
    ("map-5", "a superscript", "0=node1:\N{SUPERSCRIPT TWO}\n", "line 1"),
    ("map-6", "an index twice", "0=node1:0\n0=node1:1\n", "line 2"),
    ("map-6", "a device twice on a line", "0=node1:1,1\n", "line 1"),
    ("map-6", "an empty device", "0=node1:0,\n", "line 1"),
    ("map-6", "an invalid node name", "0=Node_1:0\n", "line 1"),
    ("map-8", "a number and a UUID on a line", f"0=node1:0,{gpu(0)}\n", "line 1"),
    ("map-8", "a truncated UUID", "0=node1:GPU-1234\n", "line 1"),
    ("map-7", "a map one byte too long", "0=node1:0\n" + "#" * (65_537 - 10), "65536 bytes"),
)


def rows(table: tuple[tuple[str, ...], ...]) -> list[ParameterSet]:
    """Return the rows as parameters with their id and their promise."""
    return [pytest.param(*rest, id=name, marks=pytest.mark.promise(promise)) for promise, name, *rest in table]


@pytest.mark.parametrize(("text", "devices"), rows(READ))
def test_a_map_is_read(namespace: Namespace, scheduler: Command, text: str, devices: str) -> None:
    """The pod is placed on the node of its line, with the devices in the order of the line."""
    namespace.node("node1")
    namespace.make(asker(text, literal(devices)))

    placed = namespace.placed("asker-0")

    assert (placed.node, placed.devices, placed.index) == ("node1", devices, 0)


@pytest.mark.parametrize(("text", "message_parts"), rows(REFUSED))
def test_a_map_is_refused(namespace: Namespace, scheduler: Command, text: str, message_parts: str) -> None:
    """The message names the line and gives a valid example. The valid lines of the map are not used."""
    namespace.node("node1")
    namespace.make(asker(text))

    message = namespace.wait_message("asker-0", "MapInvalid: ")

    assert message_parts in message
    assert "(example: 1=node2:0,1)" in message


@pytest.mark.promise("map-10")
def test_a_real_name_comes_before_an_alias(namespace: Namespace, scheduler: Command) -> None:
    """One node has the name node1, another has it as alias. The map refers to the first."""
    namespace.node("node2", alias="node1")
    namespace.node("node1")
    namespace.make(asker())

    assert namespace.placed("asker-0").node == "node1"
