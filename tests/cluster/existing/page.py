"""The commands of docs/existing-clusters.md: each block that is marked as bash, in the order of the page.

A reader replaces the values of the first block. So does the scenario; everything else runs word for word.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = ROOT / "docs" / "existing-clusters.md"
PUSH: Final = "Push the images"
GRANT: Final = "Grant the rights"
WRITE_VALUES: Final = "Write your values"
DRY_RUN: Final = "See what would change"
INSTALL: Final = "Install and prove"
UPGRADE: Final = "Upgrade"
ROLL_BACK: Final = "Roll back"
RENEW: Final = "Renew certificates"
REMOVE: Final = "Remove"
WALK: Final = [PUSH, GRANT, WRITE_VALUES, DRY_RUN, INSTALL, UPGRADE, ROLL_BACK, RENEW, REMOVE]
"""The sections with commands, in the order of the page."""
_HEADING: Final = re.compile(r"## (.+)")
_EXPORT: Final = re.compile(r"^export (\w+)=.*$", re.MULTILINE)


def sections(text: str) -> dict[str, list[str]]:
    """Return the blocks of each section that has some, by its heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    block: list[str] | None = None
    for line in text.splitlines():
        if block is not None:
            if line == "```":
                found.setdefault(heading, []).append("\n".join(block))
                block = None
            else:
                block.append(line)
        elif line == "```bash":
            block = []
        elif matched := _HEADING.fullmatch(line):
            heading = matched[1]
    assert block is None, f"the last block of {heading} does not end"
    return found


class Page:
    """The page with the values of one cluster."""

    def __init__(self, values: Mapping[str, str], text: str = "") -> None:
        """Take the values of exported variables; the page must declare each of them."""
        self._sections = sections(text or PAGE.read_text(encoding="utf-8"))
        self._exports = self._sections.pop(next(iter(self._sections)))[0]
        declared = set(_EXPORT.findall(self._exports))
        assert values.keys() <= declared, f"the page's first block does not export {values.keys() - declared}"
        self._values = values

    @property
    def headings(self) -> list[str]:
        """The sections whose commands a reader runs."""
        return list(self._sections)

    def blocks(self, heading: str) -> list[str]:
        """Return the commands of a section, a script for each block."""
        return self._sections[heading]

    def script(self, commands: str) -> str:
        """Return a script of the page's values and then these commands."""

        def given(found: re.Match[str]) -> str:
            name = found[1]
            return f"export {name}={shlex.quote(self._values[name])}" if name in self._values else found[0]

        return f"{_EXPORT.sub(given, self._exports)}\n{commands}\n"
