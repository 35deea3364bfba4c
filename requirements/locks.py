"""Reads the locks in this folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker

FOLDER: Final = Path(__file__).resolve().parent
_PIN: Final = re.compile(r"([\w.-]+)==([^\s;]+)(?: ; ([^\\]+?))?(?: \\)?")
_REQUIRED_BY: Final = re.compile(r"^    #(?: via|  ) ([\w.-]+)(?: \(.*\))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """A package at its one version, where it is installed, and the packages that require it."""

    name: str
    version: str
    marker: str
    required_by: tuple[str, ...]

    def installed_in(self, environment: dict[str, str]) -> bool:
        """Return whether the marker holds in this environment."""
        return not self.marker or Marker(self.marker).evaluate(environment)


def read_lock(text: str) -> list[Pin]:
    """Return the pins of a lock. ValueError for a requirement that has no version."""
    pins = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        requirement = block.partition("\n")[0]
        found = _PIN.fullmatch(requirement)
        if not found:
            raise ValueError(f"cannot read {requirement!r} of a lock: a line has one version (example: idna==3.20)")
        pins.append(Pin(found[1], found[2], found[3] or "", tuple(_REQUIRED_BY.findall(block))))
    return pins


def read_locks(folder: Path = FOLDER) -> dict[str, list[Pin]]:
    """Return the pins of each lock of the folder, by the lock's name."""
    return {path.stem: read_lock(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.txt"))}
