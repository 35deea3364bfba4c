"""Chooses one suite beyond `make test` by the commit."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from tests.suites.steps import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DIGITS: Final = 8
"""Hexadecimal digits of the commit's hash that replace its number in a shallow clone."""


def choose_in_turn(names: list[str], checkout: Path = ROOT) -> tuple[str, str]:
    """Return the name of the suite and the reason of the choice. Without a commit it is the first suite."""
    try:
        # A shallow clone counts only its own commits, which is the same number each time.
        if _git(checkout, "rev-parse", "--is-shallow-repository") == "true":
            digits = _git(checkout, "rev-parse", "HEAD")[:DIGITS]
            number, source = int(digits, 16), f"the hash of this commit of a shallow clone begins with {digits}"
        else:
            number = int(_git(checkout, "rev-list", "--count", "HEAD"))
            source = f"this is commit number {number}"
    except (OSError, subprocess.CalledProcessError):
        number, source = 0, "git knows no commit here"
    place = number % len(names)
    return names[place], f"{source}, and {names[place]} is suite {place + 1} of {len(names)}: {' '.join(names)}"


def _git(checkout: Path, *words: str) -> str:
    command = ("git", "-C", str(checkout), *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
