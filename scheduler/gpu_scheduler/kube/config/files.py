"""Reads files of a configuration, of which nobody expects more than some kilobytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 4 * 2**20
"""Most bytes of a file. A kubeconfig of a thousand clusters fits."""


def content_of(file: Path) -> bytes:
    """Return the file's content; raise ValueError if there is too much of it."""
    with file.open("rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{file} has more than {MOST_BYTES >> 20} MiB")
    return content


def some_content_of(file: Path) -> bytes:
    """Return the file's content; raise ValueError if there is none, too."""
    content = content_of(file)
    if not content.strip():
        raise ValueError(f"{file} is empty")
    return content
