"""Ansible module: container images from files on this host, as one archive that `docker load` and `ctr import` read.

It needs neither engine nor builder, so an image can be made before an engine exists. An existing archive is complete:
it is written under another name and then renamed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTATION = r"""
module: image_archive
short_description: Container images from files on this host
description:
  - Writes an archive in Docker's own format with one image of one layer for each element of O(images).
  - Does nothing if O(dest) exists, so its name should contain a key of its content.
options:
  dest:
    description: The archive to write.
    type: path
    required: true
  architecture:
    description: The architecture of the programs inside, as Go names it.
    type: str
    required: true
  images:
    description: The images, each with the sources of its files; a later source replaces a file of an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      tag:
        description: The image's name and tag.
        type: str
        required: true
      config:
        description: The image's run-time configuration (Entrypoint, Env, Labels and so on), as Docker spells it.
        type: dict
        default: {}
      sources:
        description: Where the files come from.
        type: list
        elements: dict
        required: true
        suboptions:
          dest:
            description: Path in the image.
            type: str
            default: /
          src:
            description: A file, or a folder to take whole, owners and modes included.
            type: path
          packages:
            description: Take only these packages' files from the folder src, a Debian root filesystem.
            type: list
            elements: str
          exclude:
            description: Globs of paths in the image to leave out.
            type: list
            elements: str
            default: []
          content:
            description: The text of a file.
            type: str
          link:
            description: The target of a symbolic link.
            type: str
          mode:
            description: The mode of every file of this source; the default is that of the file on this host.
            type: str
author: gpu-scheduler
"""

Members = dict[str, tuple[tarfile.TarInfo, Path | None, bytes]]


def package_files(root: Path, packages: list[str]) -> set[str]:
    """Return the paths of these packages in dpkg's lists, folders included."""
    info = root / "var/lib/dpkg/info"
    lists = [next(iter([*info.glob(f"{name}.list"), *info.glob(f"{name}:*.list")])) for name in packages]
    return {line.strip("/") for file in lists for line in file.read_text().splitlines()}


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, a folder before its content, without following links."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from walk(path)


def member(name: str, path: Path | None, mode: str | None) -> tarfile.TarInfo:
    """Return the header of one file in a layer."""
    info = tarfile.TarInfo(name)
    if path is None:
        info.mode = 0o644
    else:
        status = path.lstat()
        info.mode, info.uid, info.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
        # Kept, because Python uses compiled code only if the source's time is the recorded one.
        info.mtime = int(status.st_mtime)
        if path.is_symlink():
            info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
        elif path.is_dir():
            info.type = tarfile.DIRTYPE
        else:
            info.size = status.st_size
    if mode and info.isreg():
        info.mode, info.uid, info.gid = int(mode, 8), 0, 0
    return info


def collect(sources: list[dict[str, Any]]) -> Members:
    """Return everything in one layer, by its path in the image."""
    members: Members = {}
    for source in sources:
        dest = source["dest"].strip("/")
        if source.get("link"):
            info = member(dest, None, None)
            info.type, info.linkname = tarfile.SYMTYPE, source["link"]
            members[dest] = (info, None, b"")
        elif source.get("content") is not None:
            data = source["content"].encode()
            info = member(dest, None, source.get("mode"))
            info.size = len(data)
            members[dest] = (info, None, data)
        elif Path(source["src"]).is_dir():
            members |= collect_tree(Path(source["src"]), dest, source)
        else:
            members[dest] = (member(dest, Path(source["src"]), source.get("mode")), Path(source["src"]), b"")
    return members


def collect_tree(root: Path, dest: str, source: dict[str, Any]) -> Members:
    """Return what a layer takes from one folder."""
    members: Members = {}
    only = package_files(root, source["packages"]) if source.get("packages") else None
    for path in walk(root):
        inside = str(path.relative_to(root))
        name = f"{dest}/{inside}".strip("/")
        if only is not None and inside not in only:
            continue
        if any(fnmatch.fnmatchcase(name, pattern.strip("/")) for pattern in source.get("exclude") or []):
            continue
        if stat.S_IFMT(path.lstat().st_mode) in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
            members[name] = (member(name, path, source.get("mode")), path, b"")
    return members


def add_missing_folders(members: Members) -> None:
    """Add headers of folders: without them a reader chooses the folders' modes."""
    for name in list(members):
        for parent in list(Path(name).parents)[:-1]:
            if str(parent) not in members:
                info = member(str(parent), None, None)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                members[str(parent)] = (info, None, b"")


def write_layer(sources: list[dict[str, Any]], file: IO[bytes]) -> None:
    """Write a layer as a tar archive."""
    members = collect(sources)
    add_missing_folders(members)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for name in sorted(members):
            info, path, data = members[name]
            if path is not None and info.isreg():
                with path.open("rb") as content:
                    layer.addfile(info, content)
            else:
                layer.addfile(info, io.BytesIO(data))


def add_text(archive: tarfile.TarFile, name: str, value: object) -> str:
    """Add a JSON document, named by its digest if `name` is empty; return the name."""
    data = json.dumps(value, sort_keys=True).encode()
    name = name or hashlib.sha256(data).hexdigest() + ".json"
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
    return name


def add_image(archive: tarfile.TarFile, image: dict[str, Any], architecture: str, folder: str) -> dict[str, Any]:
    """Write the image's layer and configuration; return its entry of manifest.json."""
    with TemporaryFile(dir=folder) as file:
        write_layer(image["sources"], file)
        info = tarfile.TarInfo()
        info.size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        info.name = digest + "/layer.tar"
        file.seek(0)
        archive.addfile(info, file)
    created = "1970-01-01T00:00:00Z"
    config = add_text(
        archive,
        "",
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": image["config"],
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
            "history": [{"created": created, "created_by": "image_archive"}],
        },
    )
    return {"Config": config, "RepoTags": [image["tag"]], "Layers": [info.name]}


def write(dest: Path, images: list[dict[str, Any]], architecture: str) -> None:
    """Write the archive atomically."""
    partial = dest.with_name(f".{dest.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            manifest = [add_image(archive, image, architecture, str(dest.parent)) for image in images]
            add_text(archive, "manifest.json", manifest)
        partial.rename(dest)
    finally:
        partial.unlink(missing_ok=True)


def main() -> None:
    """Return the result to Ansible."""
    source = {
        "dest": {"type": "str", "default": "/"},
        "src": {"type": "path"},
        "packages": {"type": "list", "elements": "str"},
        "exclude": {"type": "list", "elements": "str", "default": []},
        "content": {"type": "str"},
        "link": {"type": "str"},
        "mode": {"type": "str"},
    }
    image = {
        "tag": {"type": "str", "required": True},
        "config": {"type": "dict", "default": {}},
        "sources": {"type": "list", "elements": "dict", "required": True, "options": source},
    }
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "architecture": {"type": "str", "required": True},
            "images": {"type": "list", "elements": "dict", "required": True, "options": image},
        },
        supports_check_mode=True,
    )
    dest = Path(module.params["dest"])
    missing = not dest.exists()
    if missing and not module.check_mode:
        write(dest, module.params["images"], module.params["architecture"])
    module.exit_json(changed=missing, dest=str(dest))


if __name__ == "__main__":
    main()
