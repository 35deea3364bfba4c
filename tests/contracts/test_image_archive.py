"""Images from files: the archive's content as an engine and containerd read it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.loading import load

if TYPE_CHECKING:
    from pathlib import Path

archive = load("roles", "node_image", "library", "image_archive.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a small root file system with one installed package."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/tool").write_text("tool")
    (tmp_path / "usr/bin/other").symlink_to("tool")
    (tmp_path / "usr/share/doc").mkdir(parents=True)
    (tmp_path / "usr/share/doc/tool").write_text("long text")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "tool:amd64.list").write_text("/.\n/usr\n/usr/bin\n/usr/bin/tool\n")
    return tmp_path


def layer(tmp_path: Path, sources: list[dict[str, Any]]) -> dict[str, tarfile.TarInfo]:
    """Return the members of the only layer of an image made of these sources."""
    dest = tmp_path / "image.tar"
    archive.write(dest, [{"tag": "a:b", "config": {"Env": ["A=B"]}, "sources": sources}], "amd64")
    with tarfile.open(dest) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(image.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        data = image.extractfile(manifest["Layers"][0]).read()  # type: ignore[union-attr]
    assert manifest["RepoTags"] == ["a:b"]
    assert config["config"] == {"Env": ["A=B"]}
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(data).hexdigest()]
    with tarfile.open(fileobj=io.BytesIO(data)) as members:
        return {member.name: member for member in members}


def test_tree_keeps_links_and_loses_what_is_excluded(tmp_path: Path, root: Path) -> None:
    """A folder is copied whole, links as links, without the excluded globs."""
    members = layer(tmp_path, [{"src": str(root), "dest": "/", "exclude": ["usr/share/doc/*", "image.tar"]}])

    assert members["usr/bin/other"].linkname == "tool"
    assert members["usr/share/doc"].isdir()
    assert "usr/share/doc/tool" not in members


def test_packages_take_their_files_only(tmp_path: Path, root: Path) -> None:
    """From a Debian root only the files of the named packages are copied."""
    members = layer(tmp_path, [{"src": str(root), "dest": "/", "packages": ["tool"]}])

    assert sorted(members) == ["usr", "usr/bin", "usr/bin/tool"]


def test_later_source_replaces_an_earlier_one(tmp_path: Path, root: Path) -> None:
    """Files, texts and links replace those of the tree, with the requested mode."""
    tool = str(root / "usr/bin/tool")
    members = layer(
        tmp_path,
        [
            {"src": tool, "dest": "bin/a"},
            {"src": tool, "dest": "bin/a", "mode": "0755"},
            {"dest": "etc/b", "content": "text"},
            {"dest": "etc/c", "link": "/dev/null"},
        ],
    )

    assert members["bin/a"].mode == 0o755
    assert members["etc/b"].size == len("text")
    assert members["etc/c"].linkname == "/dev/null"
    assert members["bin"].isdir()


def test_interrupted_archive_leaves_nothing(tmp_path: Path) -> None:
    """After a failure there is no archive, and no partial one either."""
    with pytest.raises(FileNotFoundError):
        archive.write(
            tmp_path / "image.tar",
            [{"tag": "a:b", "config": {}, "sources": [{"src": "/no/such", "dest": "a"}]}],
            "amd64",
        )

    assert list(tmp_path.iterdir()) == []
