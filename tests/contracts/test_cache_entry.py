"""Which cache entries are kept and which are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.loading import load

if TYPE_CHECKING:
    from pathlib import Path

module = load("plugins", "modules", "cache_entry.py")


@pytest.fixture(params=["file", "folder"])
def entry(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an entry without a checksum: a file, or a folder with one."""
    path = tmp_path / "entry"
    if request.param == "folder":
        path.mkdir()
        (path / "part").write_text("all of it")
    else:
        path.write_text("all of it")
    return path


def _part(entry: Path) -> Path:
    return entry / "part" if entry.is_dir() else entry


def test_entry_without_a_note_is_kept_and_noted(entry: Path) -> None:
    """An entry of an earlier version is kept, and its checksum is written once."""
    assert {"broken": [], "missing": [], "noted": [str(entry)]} == module.keep([entry], dry=False)
    assert module.keep([entry], dry=False) == {"broken": [], "missing": [], "noted": []}
    assert _part(entry).read_text() == "all of it"


def test_truncated_entry_is_taken_out_with_its_note(entry: Path) -> None:
    """A truncated entry is reported and removed with its checksum; the next entry gets a new one."""
    module.keep([entry], dry=False)
    _part(entry).write_text("all o")

    assert {"broken": [str(entry)], "missing": [str(entry)], "noted": []} == module.keep([entry], dry=False)
    assert list(entry.parent.iterdir()) == []


def test_lost_file_breaks_a_folder(tmp_path: Path) -> None:
    """A folder that lost one of its files is damaged."""
    folder = tmp_path / "entry"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    module.keep([folder], dry=False)
    (folder / "b").unlink()

    assert [str(folder)] == module.keep([folder], dry=False)["broken"]


def test_note_without_an_entry_is_removed(entry: Path) -> None:
    """A checksum without an entry is removed: otherwise the next entry would count as damaged."""
    module.keep([entry], dry=False)
    _part(entry).unlink()
    if entry.exists():
        entry.rmdir()

    assert {"broken": [], "missing": [str(entry)], "noted": []} == module.keep([entry], dry=False)
    assert list(entry.parent.iterdir()) == []


def test_check_mode_reports_and_changes_nothing(entry: Path) -> None:
    """Check mode reports damaged entries and missing checksums, and changes neither."""
    assert [str(entry)] == module.keep([entry], dry=True)["noted"]
    assert [entry] == list(entry.parent.iterdir())
    module.keep([entry], dry=False)
    _part(entry).write_text("all o")

    assert [str(entry)] == module.keep([entry], dry=True)["broken"]
    assert _part(entry).read_text() == "all o"


def test_empty_note_removes_its_entry(tmp_path: Path) -> None:
    """A checksum file that a power cut left empty proves nothing, so its entry is removed."""
    path = tmp_path / "entry"
    path.write_text("all of it")
    (tmp_path / "entry.sha256").write_text("")

    assert [str(path)] == module.keep([path], dry=False)["broken"]
