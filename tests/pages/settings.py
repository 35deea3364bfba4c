"""The tables of docs/settings.md, from the classes of the settings. A setting's meaning is the text below its field.

Which input sets it is read from the roles' templates.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import durationpy

from gpu_scheduler import settings
from tests.contracts.roles import ROOT
from tests.pages.parts import Page, code, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field

    Settings = type[settings.CommonSettings]

CLASSES: Final[dict[str, Settings]] = {
    "all programs": settings.CommonSettings,
    "run and controller": settings.LeaderSettings,
    "run": settings.RunSettings,
    "webhook": settings.WebhookSettings,
    "monitor": settings.MonitorSettings,
    "driver": settings.DriverSettings,
    "renew and issue": settings.RenewerSettings,
    "issue": settings.IssuerSettings,
}
_ROLES: Final = {
    "all programs": ("scheduler", "webhook", "controller", "monitor", "driver", "certificates"),
    "run and controller": ("scheduler", "controller"),
    "run": ("scheduler",),
    "webhook": ("webhook",),
    "monitor": ("monitor",),
    "driver": ("driver",),
    "renew and issue": ("certificates",),
    "issue": ("certificates",),
}
"""The roles whose templates set the variables of a class."""
_SET: Final = re.compile(r"\bname: (\w+), value: \"?\{\{ (\w+) \}\}")
_TYPES: Final = {"str": "text", "int": "whole number", "float": "Go duration", "bool": "true or false"}
_RULE: Final = "must be "


def rows(kind: Settings) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Yield variable, type, default, rule, meaning and example of each setting that the class adds to its base."""
    of_base = {each.name for base in kind.__bases__ if base is not object for each in fields(base)}
    meanings = _meanings(kind)
    for each in fields(kind):
        if each.name not in of_base:
            # What follows the colon is the meaning, for an error that quotes the rule alone.
            rule = each.metadata["rule"].removeprefix(_RULE).partition(": ")[0]
            variable = code(each.name.upper())
            yield variable, _type(each), _default(each), rule, meanings[each.name], code(each.metadata["example"])


def inputs(title: str) -> dict[str, list[str]]:
    """Return variable → the inputs of roles that set it for the programs of the class."""
    found: dict[str, list[str]] = {}
    for role in _ROLES[title]:
        for template in sorted((ROOT / "roles" / role / "templates").glob("*.j2")):
            for variable, name in _SET.findall(template.read_text(encoding="utf-8")):
                found.setdefault(variable, []).append(name)
    return found


def pages() -> Iterator[Page]:
    """Yield the page, with a table for each class."""
    head = ("variable", "type", "default", "rule", "meaning", "example", "set by")
    parts = {f"settings of {title}": tuple(table(head, _with_inputs(title))) for title in CLASSES}
    yield Page(ROOT / "docs/settings.md", parts)


def _with_inputs(title: str) -> Iterator[tuple[str, ...]]:
    of_roles = inputs(title)
    for variable, *others in rows(CLASSES[title]):
        yield variable, *others, ", ".join(map(code, of_roles.get(variable.strip("`"), ())))


def _meanings(kind: Settings) -> dict[str, str]:
    """Return field → the text below it. KeyError later where a field has none."""
    (made,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(made.body, made.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _type(field: Field[Any]) -> str:
    word = str(field.type).partition(" ")[0]
    return _TYPES.get(word, "path" if word == "Path" else "word")


def _default(field: Field[Any]) -> str:
    """Return the default as it would be written into the variable."""
    if field.default_factory is not MISSING:
        text = inspect.getdoc(field.default_factory)
        assert text
        return text.removeprefix("Return ").rstrip(".")
    value = field.default
    if value is MISSING:
        return "required"
    if field.type == "float":
        value = durationpy.to_str(timedelta(seconds=value))
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, StrEnum | Path):
        value = str(value)
    return code("" if value is None else str(value)) or "empty"
