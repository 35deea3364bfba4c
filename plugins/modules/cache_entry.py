"""Removes cache entries that are damaged, so that the role that needs them makes them again.

An entry's checksum is in `ENTRY.sha256` beside it, written when the entry was complete. Entries are damaged by a power
cut, a full disk or by hand. Not ansible.builtin.stat: it has no checksum of a folder, and writes none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

DOCUMENTATION = """
module: cache_entry
short_description: remove damaged entries from the cache
description:
  - Compares each entry with the checksum beside it, and removes an entry that differs.
  - Writes the checksum of an entry that has none, so call it again when an entry has been made.
  - Reads each entry from end to end, so name only those that are about to be used.
options:
  paths:
    description: The entries, files or folders; they need not exist.
    required: true
    type: list
    elements: path
attributes:
  check_mode:
    support: full
"""

EXAMPLES = """
- name: Remove damaged entries from the cache
  cache_entry:
    paths: [/home/me/.cache/tool/archive.tar]
"""

RETURN = """
broken:
  description: the damaged entries, removed now
  type: list
  elements: str
missing:
  description: the entries to be made, the removed ones included
  type: list
  elements: str
noted:
  description: the entries whose checksum was written
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
    """Write the entry's checksum in one step, in the format of `sha256sum`."""
    note = note_of(entry)
    partial = note.with_name(f".{note.name}.{os.getpid()}")
    try:
        partial.write_text(f"{checksum(entry)}  {entry.name}\n")
        partial.replace(note)
    finally:
        partial.unlink(missing_ok=True)


def is_whole(entry: Path) -> bool:
    """Whether the entry has the checksum that was written."""
    return note_of(entry).read_text().split()[:1] == [checksum(entry)]


def remove(entry: Path) -> None:
    """Remove the entry, then its checksum: a checksum that is left alone is removed by the next call."""
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
    note_of(entry).unlink(missing_ok=True)


def keep(entries: list[Path], *, dry: bool) -> dict[str, list[str]]:
    """Remove damaged entries and write missing checksums; return both, and the entries to be made."""
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
    """Return the result to Ansible."""
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
