"""docs/chart-values.md: the values of both charts, from their values.yaml and values.schema.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.contracts.roles import ROOT
from tests.pages.parts import Page, code, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CHARTS: Final = ("gpu-scheduler", "gpu-scheduler-check")
_INDENT: Final = 2
_LONGEST: Final = 60


def pages() -> Iterator[Page]:
    """Yield the page, with a table for each chart."""
    head = ("value", "type", "default", "meaning")
    parts = {f"values of {chart}": tuple(table(head, _rows(chart))) for chart in _CHARTS}
    yield Page(ROOT / "docs/chart-values.md", parts)


def _rows(chart: str) -> Iterator[tuple[str, str, str, str]]:
    text = (ROOT / "charts" / chart / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((ROOT / "charts" / chart / "values.schema.json").read_text(encoding="utf-8"))
    meanings = comments(text)
    for path, value in leaves(yaml.safe_load(text), schema):
        yield code(".".join(path)), _type(_of(schema, path)), _default(value), meanings[path]


def leaves(values: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and default of each value. A map with keys of the user's choice is one value."""
    for key, value in values.items():
        inner = schema["properties"][key]
        if value and isinstance(value, dict) and "properties" in inner:
            yield from (((key, *path), each) for path, each in leaves(value, inner))
        else:
            yield (key,), value


def comments(text: str) -> dict[tuple[str, ...], str]:
    """Return path → the comment right above it, of each key in block style."""
    found: dict[tuple[str, ...], str] = {}
    path: tuple[str, ...] = ()
    comment: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.removeprefix("#").strip())
            continue
        key, colon, _ = words.partition(":")
        if colon:
            path = (*path[: (len(line) - len(words)) // _INDENT], key)
            found[path] = " ".join(comment)
        comment = []
    return found


def _of(schema: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for key in path:
        schema = schema["properties"][key]
    return schema


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(code(str(each)) for each in schema["enum"])
    kinds = schema["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _default(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    if "\n" in text or len(text) > _LONGEST:
        return "see values.yaml"
    return code(text) or "empty"
