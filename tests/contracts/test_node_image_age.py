"""Images that are old: runs of the role with a fake engine, silent registries and mirrors, and a temporary cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.plays

FILES: Final = ROOT / "roles" / "node_image" / "files" / "go"
KEYS: Final = {"node": "aaaaaaaaaaaa", "python": "bbbbbbbbbbbb"}
# Nothing listens there.
SILENT: Final = "http://127.0.0.1:9"
PULL: Final = "pull python:3.13-slim"
OLD, NEW = ((datetime.now(UTC) - timedelta(days=days)).strftime("%Y%m%dT%H%M") for days in (31, 1))

# Writes down each call, and answers as the test wants: the engine's images, its registry.
DOCKER: Final = """\
#!/bin/sh
echo "$*" >> '{folder}/calls'
case "$1" in
  image) cat '{folder}/images' ;;
  info) echo '["{registry}/"] ""' ;;
  load) echo 'Loaded image: x' ;;
esac
"""


class Host:
    """A host with kind and kubectl in its cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        kind = re.findall(r"sigs\.k8s\.io/kind (v\S+)", (FILES / "kind" / "go.mod").read_text())[0]
        kubernetes = re.findall(r"k8s\.io/kubernetes (v\S+)", (FILES / "kubernetes" / "go.mod").read_text())[0]
        for name in (f"kind-{kind}/kind", f"kubectl-{kubernetes}/kubectl"):
            self.write(self.cache / "bin" / name, "a program")
        self.program("apt-get", f"#!/bin/sh\necho 'Debian {SILENT}/debian'\n")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, text: str) -> None:
        self.write(self.folder / "programs" / name, text)
        (self.folder / "programs" / name).chmod(0o755)

    def engine(self, images: str, registry: str = SILENT) -> None:
        """Install an engine that has these images and pulls from this registry."""
        (self.folder / "images").write_text(images)
        self.program("docker", DOCKER.format(folder=self.folder, registry=registry))

    def run(self, source: str) -> str:
        """Run the role; return its output."""
        given = {
            "node_image_source": source,
            "node_image_cache_dir": str(self.cache),
            "node_image_tools_dir": str(self.folder / "tools"),
            "_node_image_keys": KEYS,
        }
        play = [{"hosts": "localhost", "gather_facts": False, "roles": ["node_image"]}]
        (self.folder / "play.yml").write_text(yaml.safe_dump(play))
        done = subprocess.run(
            ("ansible-playbook", "-i", "inventory/kind", str(self.folder / "play.yml"), "-e", json.dumps(given)),
            cwd=ROOT,
            env={**os.environ, "PATH": f"{self.folder / 'programs'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=limit(120),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    @property
    def calls(self) -> list[str]:
        """The engine's calls that are no question."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if line.split()[0] not in ("image", "info")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host without images."""
    return Host(tmp_path)


def labels(**stamps: str) -> str:
    """Return what the engine says of images that were built at these times."""
    return "".join(
        json.dumps({"gpu-scheduler.content": f"{KEYS[image]}-{stamp}"}) + "\n" for image, stamp in stamps.items()
    )


NODE_DIGEST: Final = (FILES / "kubernetes" / "pulled-image").read_text().strip().partition("@")[2]
PULLED: Final = f'["python:3.13-slim"] [] null\n[] ["kindest/node@{NODE_DIGEST}"] null\n'


class Answer(BaseHTTPRequestHandler):
    """A registry's answer to /v2/."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the tests' output free of requests."""


@pytest.fixture
def registry() -> Iterator[str]:
    """Yield the address of a registry that answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_new_images_cost_nothing(host: Host) -> None:
    """A new image stays. An old one is replaced by the archive that another run has built since, without building."""
    archive = host.cache / "images" / f"python-{KEYS['python']}-{NEW}.tar"
    host.write(archive, "an image")
    host.engine(labels(node=NEW, python=OLD))
    output = host.run("build")

    assert "Warning: " not in output
    assert "Test whether the mirror answers" not in output
    assert host.calls == [f"load --input {archive}"]


def test_old_images_stay_where_no_mirror_answers(host: Host) -> None:
    """An old image that cannot be built anew stays, and a missing one comes from an old archive, with warnings."""
    archive = host.cache / "images" / f"python-{KEYS['python']}-{OLD}.tar"
    host.write(archive, "an image")
    host.engine(labels(node=OLD))
    output = host.run("build")

    assert "Warning: cannot build gpu-scheduler/node:v" in output
    assert "Warning: cannot build gpu-scheduler/python-base:3.13-trixie anew" in output
    assert "older than 30 days (node_image_max_age_days)" in output
    assert host.calls == [f"load --input {archive}"]


def test_old_python_image_is_pulled_anew(host: Host, registry: str) -> None:
    """A pulled Python image is pulled again after its days, and the time is noted."""
    record = host.cache / "images" / "python_pulled"
    host.write(record, f"{OLD}\n")
    host.engine(PULLED, registry)
    host.run("pull")

    assert PULL in host.calls
    assert record.read_text().strip() > NEW


def test_old_python_image_stays_where_no_registry_answers(host: Host) -> None:
    """Where the registry is silent the old image stays, with a warning, and nothing is noted."""
    host.engine(PULLED)
    output = host.run("pull")

    assert "Warning: cannot pull python:3.13-slim anew" in output
    assert PULL not in host.calls
    assert not (host.cache / "images" / "python_pulled").exists()
