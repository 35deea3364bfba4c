"""Where a field of a manifest stands in its file, by YAML's own marks. Lines count from 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    Path = Iterable[str | int]


def line_at(node: yaml.Node, path: Path) -> int:
    """Return the line of this field, or of the deepest part of the path that the object has."""
    return _found(node, path)[0]


def has(node: yaml.Node, path: Path) -> bool:
    """Whether the object has this field."""
    return _found(node, path)[1] is not None


def line_within(node: yaml.Node, path: Path, number: int) -> int:
    """Return the line of the file where line `number` of this text stands; the text's own unless it is a literal."""
    line, value = _found(node, path)
    return value.start_mark.line + 1 + number if isinstance(value, yaml.ScalarNode) and value.style == "|" else line


def _found(node: yaml.Node, path: Path) -> tuple[int, yaml.Node | None]:
    """Return the line of the deepest part of the path, and the value if the whole path exists."""
    line = node.start_mark.line + 1
    for part in path:
        step = _child(node, part)
        if step is None:
            return line, None
        line, node = step
    return line, node


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """Return line and value of a key of a mapping, or of an item of a sequence."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line + 1, item
    if not isinstance(node, yaml.MappingNode):
        return None
    # Of several keys, which a merge may give, the last one counts.
    return next(((key.start_mark.line + 1, value) for key, value in reversed(node.value) if key.value == part), None)
