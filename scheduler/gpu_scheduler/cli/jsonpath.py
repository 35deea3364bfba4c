"""Reads and evaluates kubectl's JSONPath templates over plain data.

This is kubectl's dialect, which no library has: a template is text with expressions in braces, `$` may be left out,
`{range PATH}…{end}` repeats its body, and a text in quotes and braces is that text. A template that kubectl does not
read is refused. A null counts as missing: kubectl's objects leave such fields out.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import natural, printable, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Values = list[Any]
    Step = Callable[[Values], Values]

_NAME: Final = re.compile(r"(?:\\.|[^\\\s.,\[\]$@{}()'\"])+")
_INDEX: Final = re.compile(r"-?\d+")
_SLICE: Final = re.compile(r"(-?\d*):(-?\d*)(?::(\d*))?")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_RELAXED: Final = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class JsonPathError(ValueError):
    """The template cannot be read, or does not suit the data; the text says why."""


@immutable
class Path:
    """One expression, such as `.items[*].name`."""

    steps: tuple[Step, ...]

    def find(self, root: object) -> Values:
        """Return the values that the path leads to, without nulls. JsonPathError if an index is out of range."""
        found: Values = [root]
        for step in self.steps:
            found = step(found)
        return [value for value in found if value is not None]


@immutable
class Range:
    """`{range PATH}…{end}`: its body is evaluated for each value of the path."""

    path: Path
    body: list[str | Path | Range]


Template = list["str | Path | Range"]


def read_template(text: str) -> Template:
    """Read a whole template. JsonPathError if it has an error, or no expression."""
    whole: Template = []
    open_bodies = [whole]
    for action, part in _parts(text):
        body = open_bodies[-1]
        if not action:
            body.append(part)
        elif part == "end":
            if len(open_bodies) == 1:
                raise JsonPathError("{end} has no {range …} before it")
            open_bodies.pop()
        elif part.startswith("range "):
            loop = Range(read_path(part.removeprefix("range ").strip()), [])
            body.append(loop)
            open_bodies.append(loop.body)
        else:
            body.append(_unquoted(part) if part[:1] in {'"', "'"} else read_path(part))
    if len(open_bodies) > 1:
        raise JsonPathError("{range …} has no {end}")
    if not any(action for action, _ in _parts(text)):
        raise JsonPathError("it has no expression in braces")
    return whole


def read_relaxed(text: str) -> Path:
    """Read the one path of a column or of `--sort-by`: braces and the first dot may be left out."""
    found = _RELAXED.fullmatch(text)
    if found is None:
        raise JsonPathError("it must be one path")
    return read_path("." + (found[1] or found[2]))


def written(template: Template, root: object) -> str:
    """Return the text of the template for this data. JsonPathError if an index is out of range."""
    parts = []
    for part in template:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Path):
            parts.append(" ".join(map(text_of, part.find(root))))
        else:
            parts += [written(part.body, value) for value in part.path.find(root)]
    return "".join(parts)


def text_of(value: object) -> str:
    """Return a value as one printable line: a text as it is, everything else as JSON."""
    return printable(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def sort_key(values: Values) -> tuple[int, float, str]:
    """Return the key by which an item with these values sorts: missing first, then numbers, then texts."""
    if not values:
        return (0, 0.0, "")
    value = values[0]
    return (1, float(value), "") if isinstance(value, (int, float)) else (2, 0.0, natural(text_of(value)))


def read_path(text: str) -> Path:
    """Read one path. JsonPathError if it has an error."""
    position = 1 if text[:1] in {"$", "@"} else 0
    if text == ".":
        return Path(())
    if not text:
        raise JsonPathError("an expression is empty")
    steps: list[Step] = []
    while position < len(text):
        if text[position] == "[":
            end = _closing(text, position)
            steps.append(_bracket(text[position + 1 : end]))
            position = end + 1
            continue
        descends = text.startswith("..", position)
        start = position + (2 if descends else 1)
        name = _NAME.match(text, start)
        if text[position] != "." or (name is None and text[start : start + 1] != "["):
            raise JsonPathError(f"{quote(text[position:])} is no field: a field begins with a dot")
        if descends and name is not None and name[0] == "*":
            raise JsonPathError('"..*" is no path: ".." is followed by a name')
        steps += [_descend] * descends
        if name is not None:
            key = name[0].replace("\\", "")
            steps.append(_every if name[0] == "*" else _field(key))
            start = name.end()
        elif not descends:
            raise JsonPathError(f"{quote(text[position:])} has no name after its dot")
        position = start
    return Path(tuple(steps))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield text and expressions in turn: (whether it is an expression, its text)."""
    position = 0
    while position < len(text):
        start = text.find("{", position)
        if start < 0:
            start = len(text)
        plain = text[position:start]
        if "}" in plain:
            raise JsonPathError('"}" has no "{" before it')
        if plain:
            yield False, plain
        if start == len(text):
            return
        end = _closing(text, start)
        yield True, text[start + 1 : end].strip()
        position = end + 1


def _closing(text: str, start: int) -> int:
    """Return where the bracket or brace that opens at `start` is closed. Brackets in quotes do not count."""
    opening, closing = text[start], {"[": "]", "{": "}"}[text[start]]
    depth, quoted, position = 0, "", start
    while position < len(text):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = "" if character == quoted else quoted
        elif character in {'"', "'"}:
            quoted = character
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if not depth:
                return position
        position += 1
    raise JsonPathError(f"{quote(text[start:])} has no {quote(closing)}")


def _bracket(content: str) -> Step:
    """Return the step of `[…]`: all, a filter, or a union of keys, indices and slices."""
    if content == "*":
        return _elements
    if content.startswith("?(") and content.endswith(")"):
        return _filter(content[2:-1].strip())
    steps = [_member(part.strip()) for part in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,])+|(?<=,)(?=,|$)|^$", content)]
    return steps[0] if len(steps) == 1 else lambda values: [found for step in steps for found in step(values)]


def _member(text: str) -> Step:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return _field(text[1:-1].replace("\\", ""))
    if _INDEX.fullmatch(text):
        return _element(int(text))
    found = _SLICE.fullmatch(text)
    if found is None or found[3] == "0":
        raise JsonPathError(
            f"[{printable(text)}] is no index: it must be a number, a slice as 0:2, a key as 'name', * or ?(…)"
        )
    start, stop, step = (int(each) if each else None for each in found.groups())
    return lambda values: [each for value in _lists(values) for each in value[start:stop:step]]


def _filter(text: str) -> Step:
    """Return the step of `[?(…)]`: a comparison, or a path that must lead to a value."""
    found = _COMPARISON.fullmatch(text)
    if found is None:
        path = read_path(text)
        return lambda values: [each for value in _lists(values) for each in value if path.find(each)]
    operator = _OPERATORS.get(found[2])
    if operator is None:
        raise JsonPathError(f"{quote(found[2])} is no comparison: it must be one of {', '.join(_OPERATORS)}")
    left, right = _operand(found[1].strip()), _operand(found[3].strip())

    def passes(item: object) -> bool:
        lefts, rights = left(item), right(item)
        if len(lefts) > 1 or len(rights) > 1:
            raise JsonPathError(f"{quote(text)} compares several values with each other")
        return bool(lefts and rights) and operator(*_comparable(lefts[0], rights[0]))

    return lambda values: [each for value in _lists(values) for each in value if passes(each)]


def _operand(text: str) -> Callable[[object], Values]:
    if text[:1] in {"@", "$", "."}:
        return read_path(text).find
    if text[:1] in {'"', "'"}:
        value: object = _unquoted(text)
    elif text in {"true", "false"}:
        value = text == "true"
    elif _NUMBER.fullmatch(text):
        value = json.loads(text)
    else:
        raise JsonPathError(f"{quote(text)} is no value: it must be a path, a number, true, false or a text in quotes")
    return lambda _: [value]


def _comparable(left: object, right: object) -> tuple[object, object]:
    def kind(value: object) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "number" if number else type(value).__name__

    if kind(left) != kind(right):
        raise JsonPathError(f"{text_of(left)} and {text_of(right)} cannot be compared: one is a text, or neither is")
    return left, right


def _unquoted(text: str) -> str:
    mark, inner = text[0], text[1:-1]
    if len(text) == 1 or text[-1] != mark or mark in re.sub(r"\\.", "", inner):
        raise JsonPathError(f"{quote(text)} is no text: it must begin and end with one quote")
    return re.sub(r"\\(.?)", lambda found: _escape(found[1]), inner)


def _escape(character: str) -> str:
    if character not in _ESCAPES:
        raise JsonPathError(f'{quote(chr(92) + character)} is no escape: it must be one of \\n, \\t, \\r, \\\\, \\"')
    return _ESCAPES[character]


def _field(key: str) -> Step:
    return lambda values: [value[key] for value in values if isinstance(value, dict) and key in value]


def _every(values: Values) -> Values:
    """Return all elements of lists and all values of objects."""
    return [each for value in values for each in _children(value)]


def _descend(values: Values) -> Values:
    """Return the values and everything inside of them."""
    return [each for value in values for each in (value, *_descend(list(_children(value))))]


def _children(value: object) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _elements(values: Values) -> Values:
    return [each for value in _lists(values) for each in value]


def _element(index: int) -> Step:
    def step(values: Values) -> Values:
        found = []
        for value in _lists(values):
            if not -len(value) <= index < len(value):
                raise JsonPathError(f"index {index} is out of range: the list has {len(value)}")
            found.append(value[index])
        return found

    return step


def _lists(values: Values) -> Iterator[list[Any]]:
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            kind = {dict: "an object", str: "a text", bool: "true or false"}.get(type(value), "a number")
            raise JsonPathError(f"[…] takes a part of a list, and stands behind {kind}")
