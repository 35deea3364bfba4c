"""Parse the text of the annotation `gpu-scheduling-map` into a PlacementMap.

LAW: pure text work in linear time. Every text gives a map or one `MapError`. No other module reads the format. A line
is `INDEX=NODE:ID[,ID…]`; blank lines and lines that begin with `#` are skipped.
"""

import re
import sys
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.bounds import MAX_LINE_DEVICES, MAX_VALUE
from gpu_scheduler.core.text import quote

MAX_BYTES: Final = 64 * 1024
"""Longest map. The API allows 256 KiB of annotations on a pod, and other tools need some of it."""

MAX_NUMBER: Final = 2**31 - 1
"""Largest index and GPU number: Kubernetes' ordinals and CUDA's devices are 32-bit signed integers. No text of
hostile length ever reaches int()."""

NUMBER: Final = "number"
"""The kind of a name that is the device's index."""
_MAX_NODE: Final = 253
_SHORT: Final = 256
"""Longest text of a line's GPUs that is cached."""
_BLANKS: Final = " \t\r"
_EXAMPLE: Final = "1=node2:0,1"

_MAX_DIGITS: Final = len(str(MAX_NUMBER))
UUID_DIGITS: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Matches a UUID of a device without its kind, in the one spelling that a map may have."""
_UUID: Final = re.compile(f"(?:GPU|MIG)-{UUID_DIGITS}")
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_NUMBER: Final = f"(?:0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})"
_SPACE: Final = f"[{_BLANKS}]*"
_LINE: Final = re.compile(
    rf"^{_SPACE}(?:({_NUMBER}){_SPACE}={_SPACE}({_SUBDOMAIN}){_SPACE}:([^\n]*)|([^#\n{_BLANKS}][^\n]*))", re.MULTILINE
)
"""Matches each line that is neither blank nor a comment: index, node and GPUs, or the whole of another text. It finds
all lines in C: a map may have 8,000, and is read in one step of the event loop."""

_LINE_RULE: Final = "a line must be INDEX=NODE:ID,ID"
_INDEX_RULE: Final = f"index must be a number without sign or leading zero, at most {MAX_NUMBER}"
_NODE_RULE: Final = (
    "node must be a DNS name: lower-case letters, digits, '-' and '.', a letter or digit at both ends, "
    f"at most {_MAX_NODE} characters"
)
_GPU_RULE: Final = "GPU must be a number, GPU-<uuid> or MIG-<uuid>"
_KIND_RULE: Final = "GPUs of one line must be of one kind: numbers, GPU-<uuid> or MIG-<uuid>"
_SIZE_RULE: Final = f"it must have at most {MAX_BYTES} bytes"
_COUNT_RULE: Final = f"a line must have at most {MAX_LINE_DEVICES} GPUs"
_LENGTH_RULE: Final = f"the GPUs of a line must take at most {MAX_VALUE} characters"
_EMPTY_RULE: Final = "GPUs must be separated by single commas; leave out all of them for no GPU"


class MapError(ValueError):
    """The pod author's text is no map.

    `line` is 1-based, and None if the fault is that of the whole map. `str()` says what is wrong and shows an example.
    """

    def __init__(self, rule: str, line: int | None = None, text: str = "") -> None:
        where = "" if line is None else f", line {line}: {quote(text)}"
        super().__init__(f"cannot read placement map{where}: {rule} (example: {_EXAMPLE})")
        self.line = line


TOO_LARGE: Final = MapError(_SIZE_RULE)
"""The error of a map that is too large: its text was not kept."""


@immutable
class Slot:
    """One line of a map: pod `index` runs on `node` (a name or an alias) and sees `devices` in that order, if any."""

    index: int
    node: str
    devices: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line as a map has it."""
        return f"{self.index}={self.node}:{self.value}"

    @property
    def value(self) -> str:
        """Return the devices in the format of CUDA_VISIBLE_DEVICES; empty means no GPU."""
        return ",".join(self.devices)


class PlacementMap:
    """A parsed map: its lines by index.

    Two maps are equal if they have the same lines: comments, spaces and the order of lines do not count. A map of 64
    KiB may have 8,000 lines. They are kept as text, and each line is made on demand: this takes a fiftieth of the
    memory.
    """

    __slots__ = ("_starts", "_text", "digest", "indices")

    def __init__(self, lines: Mapping[int, str]) -> None:
        """Make a map of `lines`: by its index each line `INDEX=NODE:ID,ID`, without blanks."""
        indices = sorted(lines)
        ordered = [lines[index] for index in indices]
        self._text = "\n".join(ordered)
        self._starts = array("I", accumulate([len(line) + 1 for line in ordered], initial=0))
        self.indices: Sequence[int] = array("i", indices)
        """The indices of all lines, lowest first."""
        self.digest = blake2b(self._text.encode(), digest_size=16).hexdigest()
        """Stands for the map where only equality matters."""

    def __str__(self) -> str:
        """Return the map without comments and blanks, in order of index."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementMap) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Return all lines. Each call makes them anew."""
        return tuple(map(self._slot, range(len(self.indices))))

    @property
    def gpus(self) -> int:
        """Return how many GPUs all lines name together."""
        without = self._text.count(":\n") + self._text.endswith(":")
        return self._text.count(",") + len(self.indices) - without

    @property
    def size(self) -> int:
        """Return the approximate number of bytes that the map takes."""
        return 512 + len(self._text) + 8 * len(self.indices)

    def get(self, index: int) -> Slot | None:
        """Return the line of pod `index`, or None if the map has no such line."""
        position = bisect_left(self.indices, index)
        return self._slot(position) if position < len(self.indices) and self.indices[position] == index else None

    def __getitem__(self, index: int) -> Slot:
        """Return the line of pod `index`, which the map must have."""
        return self._slot(bisect_left(self.indices, index))

    def _slot(self, position: int) -> Slot:
        line = self._text[self._starts[position] : self._starts[position + 1] - 1]
        node, _, ids = line.partition("=")[2].partition(":")
        devices, _ = _devices(ids)
        return Slot(self.indices[position], sys.intern(node), devices)


NO_LINES: Final = PlacementMap({})


def parse_number(text: str) -> int | None:
    """Return the number if `text` is ASCII digits without leading zero, at most 2147483647; None for anything else."""
    # These checks run in C and cost less than a regular expression. A map has thousands of numbers.
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS or (text[0] == "0" and text != "0"):
        return None
    number = int(text)
    return number if number <= MAX_NUMBER else None


def device_kind(text: str) -> str | None:
    """Return how `text` names a device: `number`, `GPU` or `MIG`; None if it names no device."""
    if parse_number(text) is not None:
        return NUMBER
    # Lower case only, as nvidia-smi prints them: one device must have one spelling, or it could be held twice.
    return text[:3] if _UUID.fullmatch(text) else None


def parse_placement_map(text: str) -> PlacementMap:
    """Parse `text`.

    Raise MapError if it is no map. All pods of a workload have the same text: it is usually parsed once.
    """
    known = _RECENT.get(text)
    if known is None:
        known = _parse(text)
        _RECENT.put(text, known)
    return known


class _Recent:
    """A cache of the maps that were used last. With their texts they take at most `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self._room = budget
        self._maps: OrderedDict[str, PlacementMap] = OrderedDict()

    def get(self, text: str) -> PlacementMap | None:
        known = self._maps.get(text)
        if known is not None:
            self._maps.move_to_end(text)
        return known

    def put(self, text: str, parsed: PlacementMap) -> None:
        self._maps[text] = parsed
        self._room -= len(text) + parsed.size
        while self._room < 0:
            text, dropped = self._maps.popitem(last=False)
            self._room += len(text) + dropped.size


_RECENT: Final = _Recent(budget=2**23)
"""Thousands of ordinary maps, or some fifty of the longest."""


def _parse(text: str) -> PlacementMap:
    # Characters are counted first: hostile megabytes are refused without a count of their bytes.
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise MapError(_SIZE_RULE)
    lines: dict[int, str] = {}
    for position, (number, node, ids, other) in enumerate(_LINE.findall(text)):
        if other:
            raise _error(text, position, _fault_of_line(other))
        index = int(number)
        devices, fault = _devices(ids.strip(_BLANKS))
        if index > MAX_NUMBER:
            fault = _INDEX_RULE
        elif len(node) > _MAX_NODE:
            fault = _NODE_RULE
        elif fault is None and index in lines:
            earlier, _ = _located(text, list(lines).index(index))
            fault = f"index {index} must stand once, and line {earlier} has it"
        if fault is not None:
            raise _error(text, position, fault)
        lines[index] = f"{number}={node}:{','.join(devices)}"
    if not lines:
        raise MapError("it must have at least one line INDEX=NODE:ID,ID")
    return PlacementMap(lines)


def _located(text: str, position: int) -> tuple[int, str]:
    """Return the number of the line that `_LINE` finds at this position, counted from 0, and the line."""
    found = next(islice(_LINE.finditer(text), position, None))
    return text.count("\n", 0, found.start()) + 1, found[0].strip(_BLANKS)


def _error(text: str, position: int, rule: str) -> MapError:
    return MapError(rule, *_located(text, position))


def _fault_of_line(text: str) -> str:
    """Return the first rule that a line breaks that is not `INDEX=NODE:` and anything."""
    left, equals, right = text.partition("=")
    if not equals or ":" not in right:
        return _LINE_RULE
    return _INDEX_RULE if parse_number(left.strip(_BLANKS)) is None else _NODE_RULE


def _devices(ids: str) -> tuple[tuple[str, ...], str | None]:
    """Return the devices of a line, and the rule that they break, if any."""
    if parse_number(ids) is not None:
        return (sys.intern(ids),), None
    return _listed(ids) if len(ids) <= _SHORT else _listed.__wrapped__(ids)


@lru_cache(maxsize=4096)
def _listed(ids: str) -> tuple[tuple[str, ...], str | None]:
    """Return what `_devices` does. Equal devices of thousands of lines are stored once."""
    devices = tuple(part.strip(_BLANKS) for part in ids.split(",")) if ids else ()
    return devices, _fault_of(devices)


def _fault_of(devices: tuple[str, ...]) -> str | None:
    """Return the rule that a line's devices break, if any."""
    if len(devices) > MAX_LINE_DEVICES:
        return _COUNT_RULE
    kinds = set(map(device_kind, devices))
    if None in kinds or len(set(devices)) < len(devices):
        return _fault_of_device(devices)
    if len(kinds) > 1:
        return _KIND_RULE
    return _LENGTH_RULE if len(",".join(devices)) > MAX_VALUE else None


def _fault_of_device(devices: tuple[str, ...]) -> str:
    """Return the rule that the first wrong device breaks: it is no device, or stands there before."""
    wrong = next(device for at, device in enumerate(devices) if device_kind(device) is None or device in devices[:at])
    if device_kind(wrong) is not None:
        return f"GPU {wrong} must stand once on a line"
    return _GPU_RULE if wrong else _EMPTY_RULE
