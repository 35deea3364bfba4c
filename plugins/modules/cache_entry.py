"""Keeps the cache honest: an entry that is not as it was when it was finished is taken out, and so made anew.

An entry's checksum stands beside it, in `ENTRY.sha256`. What a power cut, a full disk or a hand left by half is then
missed like any other missing entry, by the role that is about to use it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

DOCUMENTATION = """
module: cache_entry
short_description: take entries out of the cache that are not whole
description:
  - Compares each entry with the checksum noted beside it, and removes one that differs.
  - Notes the checksum of an entry that has none, so call it once more when an entry has been made.
  - Reads each entry from end to end, so name only those that are about to be used.
options:
  paths:
    description: The entries, files or folders; one that is not there is left to who makes it.
    required: true
    type: list
    elements: path
attributes:
  check_mode:
    support: full
"""

EXAMPLES = """
- name: Take out of the cache what is not whole
  cache_entry:
    paths: [/home/me/.cache/tool/archive.tar]
"""

RETURN = """
broken:
  description: the entries that were not whole, and are gone now
  type: list
  elements: str
missing:
  description: the entries that are to be made, broken ones among them
  type: list
  elements: str
noted:
  description: the entries whose checksum was noted
  type: list
  elements: str
"""


def checksum(entry: Path) -> str:
    """Return the SHA-256 of a file; of a folder, that of its files' names and checksums."""
    if not entry.is_dir():
        with entry.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    inside = sorted(path for path in entry.rglob("*") if path.is_file())
    lines = [f"{checksum(path)}  {path.relative_to(entry)}\n" for path in inside]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def note_of(entry: Path) -> Path:
    """Return the file that holds the entry's checksum."""
    return entry.with_name(f"{entry.name}.sha256")


def write_note(entry: Path) -> None:
    """Note the entry's checksum, as `sha256sum` writes it; whole or not at all."""
    note = note_of(entry)
    partial = note.with_name(f".{note.name}.{os.getpid()}")
    try:
        partial.write_text(f"{checksum(entry)}  {entry.name}\n")
        partial.replace(note)
    finally:
        partial.unlink(missing_ok=True)


def is_whole(entry: Path) -> bool:
    """Whether the entry is as it was noted."""
    return note_of(entry).read_text().split()[:1] == [checksum(entry)]


def remove(entry: Path) -> None:
    """Remove the entry, then its note: interrupted in between, the note alone is what the next call removes."""
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
    note_of(entry).unlink(missing_ok=True)


def keep(entries: list[Path], *, dry: bool) -> dict[str, list[str]]:
    """Remove what is broken, note what is not noted; return both, and what is to be made."""
    broken, missing, noted = [], [], []
    for entry in entries:
        there, known = entry.exists(), note_of(entry).exists()
        if there and not known:
            noted.append(str(entry))
            if not dry:
                write_note(entry)
        elif there and not is_whole(entry):
            broken.append(str(entry))
        if not there or str(entry) in broken:
            missing.append(str(entry))
        if not dry and (str(entry) in broken or (known and not there)):
            remove(entry)
    return {"broken": broken, "missing": missing, "noted": noted}


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "required": True}}, supports_check_mode=True
    )
    try:
        found = keep([Path(path) for path in module.params["paths"]], dry=module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"cannot check the cache: {error}")
    module.exit_json(changed=bool(found["broken"] or found["noted"]), **found)


if __name__ == "__main__":
    main()
