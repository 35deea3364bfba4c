"""The tables of inputs in the roles' READMEs, from their argument specifications, and the list of these tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.contracts import roles
from tests.pages.parts import Page, table

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer values, and values with several lines, do not fit into a cell: the table refers to defaults/main.yml.
_LONGEST: Final = 60


def pages() -> Iterator[Page]:
    """Yield the README of each role, and the reference."""
    for role in roles.ROLES:
        yield Page(roles.ROOT / "roles" / role / "README.md", {"inputs": tuple(_inputs(role))})
    links = [f"[{role}](../roles/{role}/README.md#inputs)" for role in roles.play_roles() if roles.options(role)]
    yield Page(roles.ROOT / "docs/reference.md", {"roles with inputs": [" · ".join(links)]})


def _inputs(role: str) -> Iterator[str]:
    return table(
        ("input", "type", "default", "what it is"),
        (
            (f"`{name}`", _kind(option), _shown(option["default"]), _words(option["description"]))
            for name, option in roles.options(role).items()
        ),
    )


def _shown(value: Any) -> str:
    """Return a default as the text of a cell."""
    if isinstance(value, str) and "{{" in value:
        return "computed"
    text = "true" if value is True else "false" if value is False else str(value).replace("'", "")
    if "\n" in text or len(text) > _LONGEST or (isinstance(value, dict) and value):
        return "see defaults/main.yml"
    return f"`{text}`" if text else "empty"


def _kind(option: dict[str, Any]) -> str:
    """Return an input's type, or its choices."""
    if "choices" in option:
        return " or ".join(f"`{choice}`" for choice in option["choices"])
    names = {"list": f"list of {option.get('elements', 'raw')}", "raw": "any, checked by the role"}
    words: str = option["type"]
    return names.get(words, words)


def _words(description: str | list[str]) -> str:
    return description if isinstance(description, str) else " ".join(description)
