"""A naive second parser of the placement map, as a reference for the parser."""

from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_scheduler.core.pods.placement_map import MapError, PlacementMap, parse_placement_map

DIGITS = "0123456789"
LOWER = "abcdefghijklmnopqrstuvwxyz"
BLANKS = " \t\r"
GPU = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"

Lines = dict[int, tuple[str, list[str]]]


class NoMapError(Exception):
    """The reference reads no map in a text."""


def need(condition: object) -> None:
    if not condition:
        raise NoMapError


def reference(text: str) -> Lines:
    """Return node and devices by index, or raise NoMapError."""
    need(len(text.encode(errors="replace")) <= 65536)
    found: Lines = {}
    for raw in text.split("\n"):
        line = raw.strip(BLANKS)
        if line and line[0] != "#":
            need("=" in line)
            index, rest = line.split("=", 1)
            need(":" in rest)
            node, listed = (part.strip(BLANKS) for part in rest.split(":", 1))
            number = whole(index.strip(BLANKS))
            need(number is not None and number not in found and names_a_node(node))
            devices = [part.strip(BLANKS) for part in listed.split(",")] if listed else []
            need(len(set(devices)) == len(devices) and len({kind(device) for device in devices}) <= 1)
            need(sum(len(device) + 1 for device in devices) <= 4097)
            found[number or 0] = node, devices
    need(found)
    return found


def whole(text: str) -> int | None:
    if not text or any(each not in DIGITS for each in text) or len(text) > 10:
        return None
    return int(text) if str(int(text)) == text and int(text) <= 2147483647 else None


def names_a_node(name: str) -> bool:
    labels = name.split(".")
    return len(name) <= 253 and all(
        label and label[0] != "-" and label[-1] != "-" and all(each in LOWER + DIGITS + "-" for each in label)
        for label in labels
    )


def kind(device: str) -> str:
    if whole(device) is not None:
        return "number"
    parts = device.split("-")
    need(parts[0] in {"GPU", "MIG"} and [len(part) for part in parts[1:]] == [8, 4, 4, 4, 12])
    need(all(each in DIGITS + "abcdef" for each in "".join(parts[1:])))
    return parts[0]


INDICES = st.sampled_from(["0", "1", "2", "2147483647", "2147483648", "01", "-1", "", "x", "\u0661", " 3 "])
NODES = st.sampled_from(["node1", "a.b-c", "n", "", "A", "-a", "a..b", "a" * 253, "a" * 254, "a b", " n\t"])
DEVICES = st.sampled_from(
    ["0", "1", " 2", "00", "", "x", GPU, MIG, GPU[:-1], GPU.upper(), MIG + " ", "0:1", "3#", "a=b"]
)
SPACES, NUMBERS = st.sampled_from(["", " ", "\t "]), st.integers(0, 2**31 - 1)
NEARLY = st.one_of(
    st.builds("{}={}:{}".format, INDICES, NODES, st.lists(DEVICES, max_size=3).map(",".join)),
    st.builds("{0}{1}{0}={0}n{0}:{0}GPU-{2}{0},{0}GPU-{3}{0}".format, SPACES, NUMBERS, st.uuids(), st.uuids()),
    st.builds("{}=n:{}".format, st.integers(0, 3), st.lists(st.integers(0, 3).map(str), max_size=3).map(",".join)),
    st.sampled_from(["", " ", "# 0=a:0", "\t#", "0=a", "0:a", "=", ":", "0=a:0\r", "\ud800"]),
)
TEXTS = st.one_of(
    st.lists(NEARLY, max_size=4).map("\n".join),
    st.text(st.sampled_from("01=:,#-. \t\r\nanA\u0661\u2028\x00"), max_size=40),
    st.text(),
)


@settings(max_examples=400)
@given(TEXTS)
@example("0=a:0" + "#" * 70_000)
@example("#" + "\u00e9" * 32_767 + "\n0=a:0")
def test_the_parser_reads_what_the_reference_reads(text: str) -> None:
    """Both read the same map from a text, or both refuse it; a map that is written can be read again."""
    expected: Lines | None = None
    actual: PlacementMap | None = None
    with suppress(NoMapError):
        expected = reference(text)
    with suppress(MapError):
        actual = parse_placement_map(text)

    assert (expected is None) == (actual is None)
    if expected is not None and actual is not None:
        assert sorted((index, node, tuple(ids)) for index, (node, ids) in expected.items()) == [
            (slot.index, slot.node, slot.devices) for slot in actual.slots
        ]
        written = "\n".join(f"{slot.index}={slot.node}:{slot.value}" for slot in actual.slots)
        assert actual == parse_placement_map(written)
