"""The file that says which claims are prepared."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.driver import checkpoint as module
from gpu_scheduler.driver.checkpoint import Checkpoint, CheckpointError, PreparedClaim, PreparedDevice, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def prepared(name: str, *devices: str, admin: bool = False) -> PreparedClaim:
    held = tuple(PreparedDevice(device, ("gpu",), admin) for device in devices)
    return PreparedClaim(f"uid-{name}", "default", name, "2026-11-21T12:00:00Z", held)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prepared.json"


def test_a_later_process_finds_what_was_prepared(file: Path) -> None:
    """And nothing that was unprepared."""
    first = Checkpoint(file)
    assert len(first) == 0
    first.put(prepared("a", "gpu-1"))
    first.put(prepared("b", "gpu-2", admin=True))
    first.put(prepared("a", "gpu-3"))
    first.put(prepared("c", "gpu-4"))
    first.remove("uid-c")

    second = Checkpoint(file)

    assert len(second) == 2
    assert [second.get(f"uid-{name}") for name in "abc"] == [
        prepared("a", "gpu-3"),
        prepared("b", "gpu-2", admin=True),
        None,
    ]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == [file.name]


HOLDERS: dict[str, tuple[tuple[PreparedClaim, ...], str | None]] = {
    "nobody": ((), None),
    "a claim with other devices": ((prepared("b", "gpu-2"),), None),
    "the claim itself": ((prepared("a", "gpu-1"),), None),
    "another claim": ((prepared("b", "gpu-2", "gpu-1"),), "default/b"),
    "another claim with admin access": ((prepared("b", "gpu-1", admin=True),), None),
    "a claim behind one with admin access": ((prepared("b", "gpu-1", admin=True), prepared("c", "gpu-1")), "default/c"),
}


@pytest.mark.parametrize(("claims", "holder"), HOLDERS.values(), ids=HOLDERS)
def test_another_claim_holds_a_device(file: Path, claims: tuple[PreparedClaim, ...], holder: str | None) -> None:
    """Unless it has admin access only."""
    checkpoint = Checkpoint(file)
    for claim in claims:
        checkpoint.put(claim)
    found = checkpoint.holder_of("gpu-1", but="uid-a")

    assert (None if found is None else str(found)) == holder


ENTRY = {"uid": "u", "namespace": "n", "name": "a", "since": "", "devices": []}
UNREADABLE = {
    "nothing": "",
    "a part of a file": '{"format":1,"cla',
    "a later format": '{"format":2,"claims":[]}',
    "a field that is not known": '{"format":1,"claims":[],"more":1}',
    "no text": "\udcff",
    "a claim without devices": '{"format":1,"claims":[{"uid":"u"}]}',
    "too many claims": json.dumps({"format": 1, "claims": [ENTRY] * 4097}),
    "nesting without end": '{"format":1,"claims":' + "[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_stops_the_driver(file: Path, content: str) -> None:
    """To forget what is prepared would hand out devices twice. The sentence says what helps."""
    file.write_bytes(content.encode(errors="surrogateescape"))

    with pytest.raises(CheckpointError, match=rf"^cannot read {file}, which says .*; restore it, or .*\(example: "):
        Checkpoint(file)


def test_a_directory_in_its_place_stops_the_driver(file: Path) -> None:
    """Only a missing file means that nothing is prepared."""
    file.mkdir()

    with pytest.raises(CheckpointError, match="Is a directory"):
        Checkpoint(file)


def test_a_write_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in memory nor in the file."""
    checkpoint = Checkpoint(file)
    checkpoint.put(prepared("a", "gpu-1"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=f"^cannot write {file}: No space left on device$"):
            checkpoint.put(prepared("b", "gpu-2"))
        with pytest.raises(CheckpointError):
            checkpoint.remove("uid-a")

    assert (checkpoint.get("uid-a"), checkpoint.get("uid-b")) == (prepared("a", "gpu-1"), None)
    assert len(Checkpoint(file)) == 1
    checkpoint.put(prepared("b", "gpu-2"))
    assert len(Checkpoint(file)) == 2


def test_there_is_a_most_number_of_claims(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is prepared already may change."""
    monkeypatch.setattr(module, "MOST", 1)
    checkpoint = Checkpoint(file)
    checkpoint.put(prepared("a", "gpu-1"))
    checkpoint.put(prepared("a", "gpu-2"))

    with pytest.raises(CheckpointError, match=r"^1 claims are prepared on this node"):
        checkpoint.put(prepared("b", "gpu-3"))


def test_one_process_has_the_checkpoint(tmp_path: Path) -> None:
    """A second driver on a node would not know what the first one prepares."""
    folder = tmp_path / "plugins" / "driver"

    assert len(open_checkpoint(folder)) == 0
    with pytest.raises(
        CheckpointError, match=rf"^cannot use {folder}: another driver runs on this node, .*\(example: "
    ):
        open_checkpoint(folder)


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    """The sentence names the setting."""
    (tmp_path / "plugins").write_text("")

    with pytest.raises(CheckpointError, match=r": Not a directory; .* \(example: KUBELET_DIR=/var/lib/kubelet\)$"):
        open_checkpoint(tmp_path / "plugins" / "driver")
