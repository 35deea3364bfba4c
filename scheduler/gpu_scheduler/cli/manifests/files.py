"""Reads the files, folders and standard input that a verb is given with -f."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from gpu_scheduler.cli.manifests.documents import Manifest, read_manifests
from gpu_scheduler.cli.options import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STDIN: Final = "-"
_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})
MOST_BYTES: Final = 2**26
"""Longest file that is read. The API server takes objects up to 3 MiB."""


def read_paths(paths: Iterable[str], example: str) -> list[Manifest]:
    """Return the objects of all files; of a folder, those of its .yaml, .yml and .json files in the order of names.

    RefusedInputError if a file cannot be read, or if there is no object at all.
    """
    given = list(paths)
    found = [each for path in given for source in sources_of(path, example) for each in _objects(source, example)]
    if not found:
        raise RefusedInputError(f"cannot read {' '.join(given)}: there is no object in it; name a manifest ({example})")
    return found


def sources_of(path: str, example: str) -> Iterator[str]:
    """Return the file itself; of a folder, its .yaml, .yml and .json files. RefusedInputError if it has none."""
    folder = Path(path)
    if path == STDIN or not folder.is_dir():
        yield path
        return
    files = sorted(each for each in folder.iterdir() if each.suffix in _ENDINGS and each.is_file())
    if not files:
        raise RefusedInputError(f"cannot read folder {path}: it has no .yaml, .yml or .json file ({example})")
    yield from map(str, files)


def _objects(source: str, example: str) -> list[Manifest]:
    return read_manifests(read_text(source, example), shown(source), example)


def shown(source: str) -> str:
    """Return the name of a source for people."""
    return "standard input" if source == STDIN else source


def opened(source: str) -> BinaryIO:
    """Open a file for reading. A FIFO to which nobody writes is at its end at once; else it would block for ever."""
    file = os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb")
    os.set_blocking(file.fileno(), True)
    return file


def read_text(source: str, example: str) -> str:
    """Return the text of a file, or of standard input for `-`. RefusedInputError if it cannot be read."""
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with opened(source) as file:
                data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise RefusedInputError(f"cannot read {source}: it has more than {MOST_BYTES // 2**20} MiB ({example})")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise RefusedInputError(f"cannot read {source}: {why}; name a file ({example})") from error
