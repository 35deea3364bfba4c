"""Writes the table of inputs into each role's README, from its argument specification: `python tests/readmes.py`.

The table is written between two comments, or at the end of a page without them. A contract test fails if a page differs
from the role's argument specification.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.contracts import roles

BEGIN: Final = "<!-- inputs: written by tests/readmes.py -->"
END: Final = "<!-- end of inputs -->"
# Longer values, and values with several lines, do not fit into a cell: the table refers to defaults/main.yml.
LONGEST: Final = 60


def shown(value: Any) -> str:
    """Return a default as the text of a cell."""
    if isinstance(value, str) and "{{" in value:
        return "computed"
    text = "true" if value is True else "false" if value is False else str(value).replace("'", "")
    if "\n" in text or len(text) > LONGEST or (isinstance(value, dict) and value):
        return "see defaults/main.yml"
    return f"`{text}`" if text else "empty"


def kind(option: dict[str, Any]) -> str:
    """Return an input's type, or its choices."""
    if "choices" in option:
        return " or ".join(f"`{choice}`" for choice in option["choices"])
    names = {"list": f"list of {option.get('elements', 'raw')}", "raw": "any, checked by the role"}
    words: str = option["type"]
    return names.get(words, words)


def table(role: str) -> Iterator[str]:
    """Yield the lines of the role's table of inputs."""
    yield BEGIN
    yield "| input | type | default | what it is |"
    yield "|---|---|---|---|"
    for name, option in roles.options(role).items():
        words = option["description"] if isinstance(option["description"], str) else " ".join(option["description"])
        cells = (f"`{name}`", kind(option), shown(option["default"]), words.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"
    yield END


def with_inputs(page: str, role: str) -> str:
    """Return the page with the table of the role's present argument specification."""
    text = "\n".join(table(role))
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: text, page) if BEGIN in page else f"{page.rstrip()}\n\n## Inputs\n\n{text}\n"


def main() -> None:
    """Write the tables of all roles."""
    for role in roles.ROLES:
        path = roles.ROOT / "roles" / role / "README.md"
        path.write_text(with_inputs(path.read_text(), role))


if __name__ == "__main__":
    main()
