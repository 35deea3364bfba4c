"""Files, folders and standard input are read in order, or refused in one sentence."""

from __future__ import annotations

import io
import os
import sys
from itertools import pairwise
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


def test_a_fifo_to_which_nobody_writes_is_empty(tmp_path: Path) -> None:
    """It was waited for without end (S6). What a shell writes into one, as <(command) does, is read."""
    fifo = tmp_path / "made.yaml"
    os.mkfifo(fifo)
    with pytest.raises(RefusedInputError, match="there is no object in it"):
        read_paths([str(fifo)], EXAMPLE)

    reader, writer = os.pipe()
    os.write(writer, b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
    os.close(writer)
    assert [each.name for each in read_paths([f"/dev/fd/{reader}"], EXAMPLE)] == ["a"]
    os.close(reader)


BOMBS = {
    "lists of lists": "a: &a [lol, lol]\n"
    + "".join(
        f"{after}: &{after} [*{before}, *{before}]\n" for before, after in pairwise("abcdefghijklmnopqrstuvwxyz")
    ),
    "a long text": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n",
    "merged keys": "a: &a {a1: 1, a2: 2}\n"
    + "".join(
        f"{after}: &{after} {{<<: [*{before}, *{before}]}}\n"
        for before, after in pairwise("abcdefghijklmnopqrstuvwxyz")
    ),
    "itself": "a: &a [*a]\n",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_aliases_that_stand_for_too_much_are_refused(bomb: str, tmp_path: Path) -> None:
    """Written out they would take gigabytes (S6)."""
    path = tmp_path / "bomb.yaml"
    path.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{bomb}", encoding="utf-8")

    with pytest.raises(RefusedInputError, match=r"line 1: its aliases .* make it longer than 4 MiB"):
        read_paths([str(path)], EXAMPLE)


def test_aliases_of_an_honest_file_are_read(tmp_path: Path) -> None:
    """As kubectl reads them."""
    path = tmp_path / "pods.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: &a {app: x}}\nspec: {nodeSelector: *a}\n")

    (found,) = read_paths([str(path)], EXAMPLE)

    assert found.body["spec"] == {"nodeSelector": {"app": "x"}}


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
