from collections.abc import Callable
from contextlib import suppress

import pytest

from gpu_scheduler.core.pods.placement_map import MAX_BYTES, MapError, Slot, parse_placement_map
from gpu_scheduler.core.text import quote
from tests.messages import text_of
from unit_tests.core.build import MAP
from unit_tests.steps import Cost, counted, repeated

GPU = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
OTHER_GPU = "GPU-00000000-0000-0000-0000-000000000000"
MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"
MANY = ",".join(map(str, range(1, 128)))
"""127 numbers."""
LONG_NAME = ".".join(["a" * 63] * 3 + ["a" * 61])


def parsed(text: str) -> list[tuple[int, str, str]]:
    return [(slot.index, slot.node, slot.value) for slot in parse_placement_map(text).slots]


READ = {
    "the five lines of the requirements": (
        MAP,
        [(0, "node1", "0,1"), (1, "node2", "2"), (2, "node3", "0,1,2"), (3, "node4", "3"), (4, "node4", "3")],
    ),
    "one line without a line end": ("0=node1:0", [(0, "node1", "0")]),
    "an empty list means this node and no GPU": ("5=node1:", [(5, "node1", "")]),
    "devices keep the order written, because CUDA enumerates in that order": ("0=n:3,1,2", [(0, "n", "3,1,2")]),
    "slots are sorted by index, whatever the order of the lines": ("2=b:0\n0=a:0", [(0, "a", "0"), (2, "b", "0")]),
    "indices may have gaps": ("7=a:0\n3=b:0", [(3, "b", "0"), (7, "a", "0")]),
    "blank lines are skipped": ("\n \t\n0=a:0\n\n", [(0, "a", "0")]),
    "lines that begin with # are skipped, indented ones too": ("# who\n  # what\n0=a:0", [(0, "a", "0")]),
    "spaces and tabs around all parts are ignored": (" 0 = a\t: 0 ,\t1 ", [(0, "a", "0,1")]),
    "Windows line ends are ignored": ("0=a:0\r\n1=b:1\r\n", [(0, "a", "0"), (1, "b", "1")]),
    "an empty list may be spaces": ("0=a: \t", [(0, "a", "")]),
    "a node name may have dots and dashes": ("0=gpu-1.example.com:0", [(0, "gpu-1.example.com", "0")]),
    "a node name may begin with a digit": ("0=0a:0", [(0, "0a", "0")]),
    "a node name may have 253 characters": (f"0={LONG_NAME}:0", [(0, LONG_NAME, "0")]),
    "GPU UUIDs are devices": (f"0=a:{GPU},{OTHER_GPU}", [(0, "a", f"{GPU},{OTHER_GPU}")]),
    "MIG UUIDs are devices": (f"0=a:{MIG}", [(0, "a", MIG)]),
    "two lines may use two kinds of device": (f"0=a:{GPU}\n1=a:1", [(0, "a", GPU), (1, "a", "1")]),
    "two lines may name the same device, and share it": ("0=a:0\n1=a:0", [(0, "a", "0"), (1, "a", "0")]),
    "a line may have 128 GPUs": (f"0=a:0,{MANY}", [(0, "a", f"0,{MANY}")]),
    "spaces between them do not count": (f"0=a: 0 , {MANY}", [(0, "a", f"0,{MANY}")]),
    "the text may have 64 KiB": (f"0=a:0\n{'#' * (MAX_BYTES - 6)}", [(0, "a", "0")]),
    "numbers go up to 2147483647": ("2147483647=a:2147483647", [(2147483647, "a", "2147483647")]),
}


@pytest.mark.promise("map-3", "map-4", "map-8", "map-9")
@pytest.mark.parametrize(("text", "slots"), READ.values(), ids=READ)
def test_read(text: str, slots: list[tuple[int, str, str]]) -> None:
    """A text that the format allows is read."""
    assert slots == parsed(text)


NUMBER = text_of("rule: an index of a map")
LINE_RULE = text_of("rule: a line of a map")
NODE = text_of("rule: a node of a map")
ID = text_of("rule: a GPU of a map")
EMPTY = text_of("rule: commas of a line")
COUNT = text_of("rule: the number of GPUs of a line")
LENGTH = text_of("rule: the length of a line")
HUNDRED = ",".join(f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(100))
KINDS = text_of("rule: GPUs of one kind")
INDEX_ONCE = "rule: an index once"
GPU_ONCE = "rule: a GPU once"

REFUSED = {
    "a duplicate index, naming the first": ("0=a:0\n0=b:1", 2, text_of(INDEX_ONCE, index=0, line=1)),
    "a duplicate index, counting skipped lines": (
        "#\n\n7=a:0\n#\n7=b:1",
        5,
        text_of(INDEX_ONCE, index=7, line=3),
    ),
    "a repeated GPU": ("0=a:1,0,1", 1, text_of(GPU_ONCE, gpu=1)),
    "a repeated UUID": (f"0=a:{GPU},{GPU}", 1, text_of(GPU_ONCE, gpu=GPU)),
    "nothing between two commas": ("0=a:0,,1", 1, EMPTY),
    "a comma at the end": ("0=a:0,", 1, EMPTY),
    "a comma at the beginning": ("0=a:,0", 1, EMPTY),
    "only a comma": ("0=a:,", 1, EMPTY),
    "an empty index": ("=a:0", 1, NUMBER),
    "an empty node": ("0=:0", 1, NODE),
    "a line without =": ("node1:0", 1, LINE_RULE),
    "a line without a colon": ("0=node1", 1, LINE_RULE),
    "an index that is a word": ("one=a:0", 1, NUMBER),
    "an index with a sign": ("+1=a:0", 1, NUMBER),
    "a negative index": ("-1=a:0", 1, NUMBER),
    "an index with an underscore": ("1_0=a:0", 1, NUMBER),
    "an index with a leading zero": ("01=a:0", 1, NUMBER),
    "an index in other digits than ASCII": ("\u0661=a:0", 1, NUMBER),
    "an index over 2147483647": ("2147483648=a:0", 1, NUMBER),
    "a GPU that is a word": ("0=a:x", 1, ID),
    "a GPU with a sign": ("0=a:-1", 1, ID),
    "a GPU with an underscore": ("0=a:1_0", 1, ID),
    "a GPU with a leading zero, which would be a second name for it": ("0=a:00", 1, ID),
    "a GPU in other digits than ASCII": ("0=a:\uff11", 1, ID),
    "a GPU that begins in ASCII and ends in other digits": ("0=a:1\uff11", 1, ID),
    "a GPU over 2147483647": ("0=a:2147483648", 1, ID),
    "a UUID in capitals, which would be a second name for it": (f"0=a:{GPU.upper()}", 1, ID),
    "a UUID that is cut short": (f"0=a:{GPU[:-1]}", 1, ID),
    "two numbers with a space between": ("0=a:0 1", 1, ID),
    "a comment after a line's content": ("0=a:0 # mine", 1, ID),
    "a second colon": ("0=a:0:1", 1, ID),
    "a number and a UUID on one line": (f"0=a:0,{GPU}", 1, KINDS),
    "a GPU and a MIG UUID on one line": (f"0=a:{GPU},{MIG}", 1, KINDS),
    "129 GPUs": (f"0=a:0,128,{MANY}", 1, COUNT),
    "99 UUIDs fit, 100 do not": (f"0=a:{HUNDRED[:-41]}\n1=a:{HUNDRED}", 2, LENGTH),
    "a node with capitals": ("0=Node1:0", 1, NODE),
    "a node with an underscore": ("0=node_1:0", 1, NODE),
    "a node that begins with a dash": ("0=-a:0", 1, NODE),
    "a node that ends with a dot": ("0=a.:0", 1, NODE),
    "a node with two dots in a row": ("0=a..b:0", 1, NODE),
    "a node of 254 characters": (f"0={LONG_NAME}a:0", 1, NODE),
    "a node with a space inside": ("0=a b:0", 1, NODE),
    "a carriage return alone, which ends no line": ("0=a:0\r1=b:1", 1, ID),
    "a no-break space beside the index": ("0\u00a0=node1:2", 1, NUMBER),
    "a no-break space before the line": ("\u00a00=node1:2", 1, NUMBER),
    "a no-break space before the node": ("0=\u00a0node1:2", 1, NODE),
    "a no-break space before a GPU": ("0=node1:1,\u00a02", 1, ID),
    "a hostile line, which is quoted short": (f"0=a:{'x' * 60_000}", 1, ID),
    "the first fault is reported": ("x=a:0\ny=b:0", 1, NUMBER),
}


@pytest.mark.promise("map-6", "map-3", "map-5", "map-8", "map-12")
@pytest.mark.parametrize(("text", "line", "rule"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, line: int, rule: str) -> None:
    """A fault is refused with its line, which is quoted, the broken rule and a valid example."""
    with pytest.raises(MapError) as caught:
        parse_placement_map(text)

    message = str(caught.value)
    assert caught.value.line == line
    quoted = quote(text.split("\n")[line - 1].strip(" \t\r"))
    assert message == text_of("a line of a map breaks a rule", line=line, quoted=quoted, rule=rule)


A_LINE = text_of("rule: a map has a line")
SIZE = text_of("rule: the size of a map")
WHOLE = {
    "an empty text": ("", A_LINE),
    "only comments and blanks": ("# nothing\n\n \n", A_LINE),
    "a byte too much": ("#" * (MAX_BYTES + 1), SIZE),
    "too many bytes in few characters": ("#" + "\u00e9" * (MAX_BYTES // 2), SIZE),
}


@pytest.mark.promise("map-7")
@pytest.mark.parametrize(("text", "rule"), WHOLE.values(), ids=WHOLE)
def test_the_whole_map_is_refused(text: str, rule: str) -> None:
    """A fault of the whole map has no line."""
    with pytest.raises(MapError) as caught:
        parse_placement_map(text)

    assert (None, text_of("a map breaks a rule", rule=rule)) == (caught.value.line, str(caught.value))


def test_maps_with_the_same_lines_are_equal() -> None:
    """Comments, spaces, order of lines and line numbers make no other map, and so no other workload."""
    one = parse_placement_map("0=a:0\n1=b:1")
    other = parse_placement_map("# the same\n 1 = b : 1\r\n\n0=a:0")

    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("text", ["0=a:0\n1=b:2", "0=a:0", "0=a:0\n1=c:1", "0=a:0\n2=b:1"])
def test_maps_with_other_lines_differ(text: str) -> None:
    """Any difference in index, node or devices makes another workload."""
    assert parse_placement_map("0=a:0\n1=b:1") != parse_placement_map(text)


def test_get_finds_a_line_by_index() -> None:
    """A pod's line is found by its index, never by its position."""
    placement_map = parse_placement_map("5=a:0\n3=b:1")

    assert Slot(5, "a", ("0",)) == placement_map.get(5)
    assert None is placement_map.get(0)


def test_a_map_seen_lately_is_not_parsed_again() -> None:
    """A thousand pods of one template need one parse."""
    assert parse_placement_map("0=again:0") is parse_placement_map("0=again:0")


def test_lines_share_equal_devices() -> None:
    """Thousands of lines name the same few GPUs: they share one tuple. A long list is read too."""
    one, other = parse_placement_map("0=node1:0,1\n1=node2:0,1").slots
    many = tuple(map(str, range(128)))

    assert one.devices is other.devices
    assert parse_placement_map(f"0=node1:{','.join(many)}").slots[0].devices == many


def test_the_cache_of_maps_has_a_bound() -> None:
    """However many maps there are, memory stays within a budget: the least recently used map is forgotten first."""
    first, used = parse_placement_map("0=first:0"), parse_placement_map("0=used:0")
    lines = "\n".join(f"{number}=a:" for number in range(8000))

    def fill() -> None:
        for number in range(50):
            parse_placement_map(f"{lines}\n9999=a:{number}")
            assert used is parse_placement_map("0=used:0")

    repeated(fill)
    assert first is not parse_placement_map("0=first:0")
    assert first == parse_placement_map("0=first:0")


SLOW = {
    "one endless line of nodes": lambda size: "0=" + "a-" * (size // 2),
    "one endless list of GPUs, too long for a line": lambda size: "0=a:" + ",".join(map(str, range(size // 6))),
    "many lines": lambda size: "\n".join(f"{number}=a:0" for number in range(size // 12)),
    "only equal signs": lambda size: "=" * size,
    "only line ends": lambda size: "\n" * size,
    "only digits": lambda size: "1" * size,
}


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW)
def test_the_cost_is_linear(make: Callable[[int], str]) -> None:
    """Eight times the text costs at most about eight times as much; a quadratic parser would cost sixty-four times."""
    small, large = cost(make(8_000)), cost(make(64_000))

    assert large.lines <= 8.5 * small.lines
    assert large.memory <= 12 * small.memory


def cost(text: str) -> Cost:
    """Return the cost of parsing the text, which may be no map."""

    def parse() -> None:
        with suppress(MapError):
            parse_placement_map(text)

    return counted(parse)
