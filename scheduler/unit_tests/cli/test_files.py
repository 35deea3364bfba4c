"""Files, folders and standard input are read in order, or refused in one sentence."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.manifests import files
from gpu_scheduler.cli.manifests.files import read_paths
from gpu_scheduler.cli.options import RefusedInputError

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = "example: gpu-scheduler plan -f train.yaml"


def write(path: Path, *names: str) -> str:
    """Write a file with one Pod for each name. Return its path."""
    text = "---\n".join(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n" for name in names)
    path.write_text(text, encoding="utf-8")
    return str(path)


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    """Other files of it are left alone, and so are its folders."""
    write(tmp_path / "b.yml", "second", "third")
    write(tmp_path / "a.json", "first")
    write(tmp_path / "c.txt", "never")
    (tmp_path / "d.yaml").mkdir()
    last = write(tmp_path / "c.txt.yaml", "last")

    found = read_paths([str(tmp_path), last], EXAMPLE)

    assert [each.name for each in found] == ["first", "second", "third", "last", "last"]
    assert str(found[1]) == f"document 1 (Pod second) of {tmp_path}/b.yml"


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for kubectl."""
    given(monkeypatch, b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")

    (found,) = read_paths(["-"], EXAMPLE)

    assert str(found) == "document 1 (Pod a) of standard input"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """With the operating system's own words."""
    with pytest.raises(RefusedInputError) as raised:
        read_paths([str(tmp_path / "none.yaml")], EXAMPLE)

    assert str(raised.value) == f"cannot read {tmp_path}/none.yaml: No such file or directory; name a file ({EXAMPLE})"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"\xff", "cannot read -: it is not UTF-8; name a file", id="bytes that are no text"),
        pytest.param(b"---\n", "cannot read -: there is no object in it; name a manifest", id="an empty document"),
        pytest.param(b" " * 65, "cannot read -: it has more than 0 MiB", id="more than is read"),
    ],
)
def test_a_text_without_objects_is_refused(monkeypatch: pytest.MonkeyPatch, data: bytes, sentence: str) -> None:
    """A plan of nothing would seem to fit."""
    given(monkeypatch, data)
    monkeypatch.setattr(files, "MOST_BYTES", 64)

    with pytest.raises(RefusedInputError) as raised:
        read_paths(["-"], EXAMPLE)

    assert str(raised.value) == f"{sentence} ({EXAMPLE})"


def test_a_folder_without_manifests_is_refused(tmp_path: Path) -> None:
    """It is probably another folder than the user meant."""
    with pytest.raises(RefusedInputError) as raised:
        read_paths([str(tmp_path)], EXAMPLE)

    assert str(raised.value) == f"cannot read folder {tmp_path}: it has no .yaml, .yml or .json file ({EXAMPLE})"
