"""Role images on an existing cluster: what it asks of the engine, and what it says where engine or registry refuse."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.fake_engine import DIGEST, Engine, serving
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.plays

REGISTRY: Final = "registry.example.com/team"
SCHEDULER: Final = f"{REGISTRY}/gpu-scheduler:1"
CHECK: Final = f"{REGISTRY}/gpu-scheduler-check:1"
BUILT: Final = {SCHEDULER, CHECK}
BASE: Final = "python:3.13-slim"
OWN_BASE: Final = "gpu-scheduler/python-base:3.13-trixie"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a short path, because that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def run(folder: Path, *options: str, **variables: object) -> tuple[int, str]:
    """Run role images with inventory existing, as `make up` does. Return exit status and output in one line."""
    given = {"image_registry": REGISTRY, "scheduler_image": SCHEDULER, "check_image": CHECK, **variables}
    play = folder / "images.yml"
    play.write_text(json.dumps([{"hosts": "localhost", "roles": ["images"]}]))
    command = ("ansible-playbook", "-i", "inventory/existing", str(play), "-e", json.dumps(given))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "DOCKER_HOST": f"unix://{folder}/engine.sock",
        "DOCKER_CONFIG": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        (*command, *options), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit(120), check=False
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"scheduler_image": f"{REGISTRY}/s@{DIGEST}", "check_image": f"{REGISTRY}/c@{DIGEST}"},
            id="both images are given with their digests",
        ),
        pytest.param({"image_registry": ""}, id="the nodes hold the images"),
    ],
)
def test_where_nothing_is_pushed_no_engine_is_asked(folder: Path, given: dict[str, str]) -> None:
    """Nothing is built: no engine answers here, and the run succeeds."""
    status, output = run(folder, **given)

    assert status == 0, output
    assert "failed=0" in output
    assert "changed=0" in output


def test_pushing_asks_for_an_engine_that_runs(folder: Path) -> None:
    """Where none answers, one sentence names the variable and both ways out; none is installed or started."""
    status, output = run(folder)

    assert status != 0
    assert (
        f"Cannot build {SCHEDULER} and {CHECK} for image_registry: no container engine answers on this host" in output
    )
    assert "start one, or give scheduler_image and check_image as a registry has them, with a digest" in output
    assert "changed=0" in output


@pytest.mark.parametrize(
    ("images", "pulled", "taken"),
    [
        pytest.param({OWN_BASE}, [], OWN_BASE, id="a kind cluster was built here before"),
        pytest.param(set(), [BASE], BASE, id="none is there, and the engine pulls"),
    ],
)
def test_base_image_is_what_the_engine_has_or_pulls(
    folder: Path, images: set[str], pulled: list[str], taken: str
) -> None:
    """Its ID is noted in a file of its own, on which a kind cluster's images do not depend.

    The images are pushed, and named by their digests in a line that a host without an engine can use.
    """
    engine = Engine(images=BUILT | images)
    with serving(engine, folder / "engine.sock"):
        status, output = run(folder)

    assert status == 0, output
    assert engine.pulled == pulled
    cache = folder / "cache" / "gpu-scheduler"
    assert (cache / "images" / "pushed_base_image_id").read_text() == f"sha256:{taken}"
    assert not (cache / "images" / "base_image_id").exists()
    assert set(engine.pushed) == BUILT
    assert (
        f"-e scheduler_image={REGISTRY}/gpu-scheduler@{DIGEST} -e check_image={REGISTRY}/gpu-scheduler-check@{DIGEST}"
    ) in output


def test_no_base_image_is_one_sentence(folder: Path) -> None:
    """It names the images that were looked for, the engine's error, and what to do."""
    engine = Engine(images=BUILT, pull_error="dial tcp: no route to host")
    with serving(engine, folder / "engine.sock"):
        status, output = run(folder)

    assert status != 0
    assert f"the engine has none of {BASE}, {OWN_BASE} and cannot pull the first" in output
    assert "no route to host" in output
    assert "let the engine reach a registry, load one of them into it (docker load), or give scheduler_image" in output


@pytest.mark.parametrize(
    "error",
    [
        "unauthorized: authentication required",
        "dial tcp 192.0.2.1:443: connect: connection refused",
    ],
)
def test_registry_that_refuses_is_one_sentence(folder: Path, error: str) -> None:
    """It names the image, the registry's answer, the variable and the login; nothing is installed after it."""
    with serving(Engine(images={*BUILT, BASE}, push_error=error), folder / "engine.sock"):
        status, output = run(folder)

    assert status != 0
    assert f"Cannot push {SCHEDULER}: " in output
    assert error in output
    assert "correct image_registry (example: registry.example.com/team)" in output
    assert "docker login registry.example.com)" in output


def test_check_mode_pulls_and_pushes_nothing(folder: Path) -> None:
    """A dry run names the images that it would push and writes no file."""
    engine = Engine(images={SCHEDULER})
    with serving(engine, folder / "engine.sock"):
        status, output = run(folder, "--check")

    assert status == 0, output
    assert f"A run would push {SCHEDULER} and {CHECK} to registry.example.com" in output
    assert (engine.pulled, engine.pushed) == ([], [])
    assert not (folder / "cache").exists()
