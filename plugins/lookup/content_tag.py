"""Computes an image's tag: a checksum over the content of its files and folders.

Nothing is stored between runs and no engine is needed, so every role computes the same tag. Not
community.general.filetree: it lists files without a checksum, and `file` cannot read those that are not text.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.errors import AnsibleLookupError  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.plugins.lookup import LookupBase  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTATION = """
name: content_tag
short_description: a checksum over the content of files and folders
description:
  - Folders count with every file below them, except compiled Python.
  - The same content under the same names gives the same tag on every machine, wherever the checkout stands.
options:
  _terms:
    description: files and folders, relative to O(root)
    required: true
    type: list
    elements: str
  root:
    description: the folder that the names are relative to
    required: true
    type: path
  salt:
    description: text that is part of the checksum too
    type: str
    default: ""
"""

EXAMPLES = """
- ansible.builtin.debug:
    msg: "{{ lookup('content_tag', 'Dockerfile', 'scheduler/gpu_scheduler', root=project_dir) }}"
"""

RETURN = """
_raw:
  description: 12 hexadecimal digits
  type: list
  elements: str
"""

# 48 bits: short enough to read in `kubectl get pod -o wide`, and long enough that two checkouts do not collide.
LENGTH = 12


def files_below(path: Path) -> Iterator[Path]:
    """Yield the file itself, or every file of the folder but compiled Python."""
    if path.is_file():
        yield path
        return
    yield from (found for found in sorted(path.rglob("*")) if found.is_file() and "__pycache__" not in found.parts)


def content_tag(root: Path, names: list[str], salt: str = "") -> str:
    """Return the tag; raises FileNotFoundError for a name that is neither a file nor a folder."""
    digest = hashlib.sha256(salt.encode())
    for name in sorted(names):
        if not (root / name).exists():
            raise FileNotFoundError(name)
        for path in files_below(root / name):
            # The length separates name and content, so no two trees give the same bytes.
            content = path.read_bytes()
            digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:LENGTH]


class LookupModule(LookupBase):  # type: ignore[misc]  # its base is untyped
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, object] | None = None, **kwargs: str) -> list[str]:
        """Return one tag over all terms together."""
        self.set_options(var_options=variables, direct=kwargs)
        root = Path(self.get_option("root"))
        try:
            return [content_tag(root, terms, self.get_option("salt"))]
        except OSError as error:
            raise AnsibleLookupError(f"cannot make a content tag below {root}: {error}") from error
