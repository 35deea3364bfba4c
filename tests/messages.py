"""The table of messages, messages.txt: the one place in the tests where the text of a message stands.

An entry is a name, and below it the message. With a star before its name, docs/reasons.md shows it. A text between bars
is a remedy, or a command that shows more. {recreate} stands for the entry of that name, {ns} for a test's namespace,
{since} for the time at which a pod was deleted, other words in braces for what a test says by name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_suffix(".txt")
_ENTRY: Final = re.compile(r"^(\* )?(\S.*)\n    (\S.*)$", re.MULTILINE)
_ENTRIES: Final = {name: text for _, name, text in _ENTRY.findall(FILE.read_text(encoding="utf-8"))}
RECREATE: Final = str(_ENTRIES.pop("recreate"))
MARKED: Final = {name: str(text).replace("{recreate}", RECREATE) for name, text in _ENTRIES.items()}
"""Name → message, with its bars."""
SHOWN: Final = tuple(name for star, name, _ in _ENTRY.findall(FILE.read_text(encoding="utf-8")) if star)
"""The names of those that docs/reasons.md shows."""


def text_of(name: str, **values: object) -> str:
    """Return a message without its bars, with these values of its placeholders."""
    text = MARKED[name].replace("|", "")
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


def parts(name: str) -> tuple[str, ...]:
    """Return the remedies of a message and its commands that show more, in their order."""
    return tuple(MARKED[name].split("|")[1::2])


def pattern(name: str, **values: object) -> str:
    """Return a regular expression of a message: a placeholder without a value is a group of its name."""
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(text_of(name, **values)))


def denial(policy: str, name: str, **values: object) -> str:
    """Return the end of the API server's answer where this admission policy of ours denies a request with a message."""
    named = f"'gpu-scheduler-{policy}'"
    text = text_of(name, **values)
    return f"ValidatingAdmissionPolicy {named} with binding {named} denied request: {text}"


def says(text: str, reason: str, *names: str) -> None:
    """Assert that a message begins with this reason's word and has these names in it."""
    assert text.partition(": ")[0] == reason, text
    missing = [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert not missing, f"{missing} not in: {text}"


def quotes(text: str, reason: str, *names: str) -> None:
    """Assert that a text has a message with this reason and these names in it, as an error of kubectl has."""
    _, found, rest = text.partition(f"{reason}: ")
    says(found + rest, reason, *names)
