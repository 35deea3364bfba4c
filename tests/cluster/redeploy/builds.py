"""Builds images as the guides do, serves an index of wheels, and reads the layers of images."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any

from tests.cluster.clusters import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Files = dict[str, tuple[object, ...]]
"""The files of a layer: name → type, mode, owner, target of a link, checksum."""


def docker(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run docker; raise with its output when it fails and `check` is true."""
    done = subprocess.run(("docker", *words), cwd=ROOT, capture_output=True, text=True, timeout=limit(600), check=False)
    assert not check or not done.returncode, f"docker {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done


def inspected(image: str) -> dict[str, Any]:
    """Return what the engine says of the image."""
    (found,) = json.loads(docker("image", "inspect", image).stdout)
    return dict(found)


@contextmanager
def index_of(wheels: Path, changed: str = "") -> Iterator[str]:
    """Serve the wheels of a folder as a package index without TLS; yield its URL. Add a byte to the `changed` one."""
    files = {path.name: path for path in wheels.glob("*.whl")}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rpartition("/")[2]
            if name in files:
                body = files[name].read_bytes() + b"\0" * (_package(name) == changed)
            else:
                links = (f'<a href="/files/{file}">{file}</a>' for file in files if _package(file) == name)
                body = "<!DOCTYPE html>{}".format("\n".join(links)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if name in files else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def _package(file: str) -> str:
    return re.sub(r"[-_.]+", "-", file.partition("-")[0]).lower()


def files_of(image: str, base: str, folder: Path) -> list[Files]:
    """Return the files of each layer above the base image, by name, without their times."""
    archive = folder / "image.tar"
    docker("save", "--output", str(archive), image)
    with tarfile.open(archive) as saved:
        (manifest,) = json.load(_content(saved, "manifest.json"))
        above = manifest["Layers"][len(inspected(base)["RootFS"]["Layers"]) :]
        return [_files(_content(saved, layer)) for layer in above]


def _content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found
    return found


def _files(layer: IO[bytes]) -> Files:
    with tarfile.open(fileobj=layer) as files:
        return {
            each.name: (
                *(each.type, oct(each.mode), each.uid, each.gid, each.linkname),
                hashlib.sha256(_content(files, each.name).read()).hexdigest() if each.isreg() else "",
            )
            for each in files
        }
