"""Image tags depend on the content only: the same content has the same tag, any other content another one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.contracts.loading import load
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

content_tag = load("plugins", "lookup", "content_tag.py").content_tag


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small checkout."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("a")
    (tmp_path / "package" / "b.py").write_text("b")
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    return tmp_path


NAMES = ["Dockerfile", "package"]


def test_place_order_and_compiled_python_do_not_count(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Another checkout, names in another order and Python's own cache give the same tag."""
    other = tmp_path_factory.mktemp("other") / "checkout"
    tree.rename(other)
    before = content_tag(other, NAMES)
    (other / "package" / "__pycache__").mkdir()
    (other / "package" / "__pycache__" / "a.pyc").write_bytes(b"\0")

    assert content_tag(other, NAMES[::-1]) == before


def test_any_change_of_content_name_or_salt_counts(tree: Path) -> None:
    """Content, a file's name, a new file, text moved to the next file, and the salt all change the tag."""
    seen = {content_tag(tree, NAMES), content_tag(tree, NAMES, "another base image")}
    (tree / "package" / "a.py").write_text("")
    (tree / "package" / "b.py").write_text("ab")
    seen.add(content_tag(tree, NAMES))
    (tree / "package" / "b.py").rename(tree / "package" / "c.py")
    seen.add(content_tag(tree, NAMES))
    (tree / "package" / "d.py").touch()
    seen.add(content_tag(tree, NAMES))

    assert len(seen) == 5


def test_tags_cover_what_the_build_context_lets_in() -> None:
    """The tags cover all files that .dockerignore lets into a build: so no change is missed."""
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    inventory = "".join(path.read_text() for path in (ROOT / "inventory" / "kind" / "group_vars").rglob("*.yml"))
    counted = {
        name
        for call in re.findall(r"lookup\('content_tag',(.*?)root=", inventory, re.DOTALL)
        for name in re.findall(r"'(.+?)'", call)
    }

    assert admitted == counted - {".dockerignore", "Dockerfile", "Dockerfile.check"}
    assert {".dockerignore", "Dockerfile", "Dockerfile.check"} <= counted
