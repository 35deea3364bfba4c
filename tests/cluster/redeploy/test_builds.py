"""`docker build` alone, as the guides write it, makes the very images that the play makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import CHECK, ROOT, SYSTEM, Cluster
from tests.cluster.redeploy.builds import docker, files_of, index_of, inspected
from tests.contracts.loading import load
from tests.contracts.roles import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.redeploy.builds import Files

    Build = Callable[..., subprocess.CompletedProcess[str]]

SCHEDULER: Final = "gpu-scheduler"
LOCKS: Final = ("requirements/payload.txt", "requirements/build.txt")
OCI: Final = "org.opencontainers.image."
BUILT: Final = "gpu-scheduler-test/build"
content_tag = load("plugins", "lookup", "content_tag.py").content_tag


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> dict[str, str]:
    """Return the images that the play built."""
    workloads = {SCHEDULER: ("deployment", SYSTEM), CHECK: ("statefulset", "default")}
    return {
        name: cluster.get(kind, "-n", namespace, name)["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, (kind, namespace) in workloads.items()
    }


@pytest.fixture(scope="module")
def base(images: dict[str, str]) -> str:
    """Return the base image of the play's images: their first layers are its own."""
    layers = inspected(images[CHECK])["RootFS"]["Layers"]
    for name in read("inventory", "wiring.yml")["python_images"].values():
        if not docker("image", "inspect", name, check=False).returncode:
            found = inspected(name)["RootFS"]["Layers"]
            if layers[: len(found)] == found:
                return str(name)
    raise AssertionError(f"the base image of {images[CHECK]} is gone from the engine: run make up")


@pytest.fixture(scope="module")
def wheels() -> Path:
    """Return the folder of the wheels that role images downloaded."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "gpu-scheduler" / "images" / f"wheelhouse-{content_tag(ROOT, list(LOCKS))}"
    assert folder.is_dir(), f"{folder} is missing: it comes back where role images builds the scheduler's image anew"
    return folder


@pytest.fixture(scope="module")
def private_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout that only its owner may read, as a umask of 077 makes it. Its files are new."""
    copy = tmp_path_factory.mktemp("private")
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), listed.splitlines()):
        (copy / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
        (copy / name).chmod(0o600)
    return copy


@pytest.fixture
def build(base: str) -> Iterator[Build]:
    """Return a function that builds an image in a folder and returns docker's result; remove all images afterwards."""
    output = ""

    def run(folder: Path, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        nonlocal output
        fixed = ("--no-cache", "--force-rm", f"--tag={BUILT}", f"--build-arg=BASE_IMAGE={base}")
        done = docker("build", *fixed, *options, str(folder), check=check)
        output += done.stdout
        return done

    yield run
    docker("image", "rm", "--force", BUILT)
    # The classic builder leaves an image without a name for each stage.
    unnamed = docker("image", "ls", "--quiet", "--filter=dangling=true").stdout.split()
    for stage in set(unnamed) & set(re.findall(r"---> ([0-9a-f]{12})", output)):
        docker("image", "rm", stage)


@pytest.fixture
def layers(base: str, tmp_path: Path) -> Callable[[str], list[Files]]:
    """Return a function that reads the files of each layer of an image, without those of the base image."""
    return partial(files_of, base=base, folder=tmp_path)


@pytest.mark.timeout(600)
def test_the_guides_build_makes_the_image_of_the_play(
    build: Build, layers: Callable[[str], list[Files]], wheels: Path, images: dict[str, str], private_checkout: Path
) -> None:
    """`docker build .` downloads the locked wheels from an index. The play's build takes a wheelhouse and no network.

    Both have the same files, modes and owners in each layer; only times differ.
    """
    with index_of(wheels) as index:
        build(private_checkout, "--network=host", f"--build-arg=PIP_INDEX_URL={index}")

    assert layers(BUILT) == layers(images[SCHEDULER])
    assert docker("run", "--rm", "--network=none", BUILT, "--version").stdout.startswith("gpu-scheduler 0")


def test_the_guides_build_makes_the_check_image_of_the_play(
    build: Build, layers: Callable[[str], list[Files]], images: dict[str, str], private_checkout: Path
) -> None:
    """`docker build -f Dockerfile.check .` needs the base image alone. The user of the image may read its files."""
    build(private_checkout, "--network=none", f"--file={private_checkout}/Dockerfile.check")

    assert layers(BUILT) == layers(images[CHECK])
    docker("run", "--rm", "--network=none", "--entrypoint=python3", BUILT, "-c", "import gpu_scheduler_check")


def test_a_wheel_with_another_hash_is_refused(build: Build, wheels: Path) -> None:
    """An index that serves something else than the lock names gets nothing into the image."""
    with index_of(wheels, changed="aiohttp") as index:
        failed = build(ROOT, "--network=host", f"--build-arg=PIP_INDEX_URL={index}", check=False)

    assert failed.returncode
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in failed.stdout + failed.stderr
    assert docker("image", "inspect", BUILT, check=False).returncode


def test_labels_name_the_commit_and_the_version(images: dict[str, str]) -> None:
    """The play fills them in. No label names a time, so that two builds agree."""
    version = tomllib.loads((ROOT / "scheduler" / "pyproject.toml").read_text())["project"]["version"]
    for name, image in images.items():
        labels = {
            key.removeprefix(OCI): value
            for key, value in inspected(image)["Config"]["Labels"].items()
            if key.startswith(OCI)
        }
        assert labels["title"] == name
        assert labels["licenses"] == "Apache-2.0"
        assert labels["description"]
        assert labels["revision"]
        assert labels["version"] == version
        assert set(labels) == {"title", "description", "licenses", "version", "revision"}


@pytest.mark.timeout(300)
def test_the_bill_of_materials_lists_what_is_in_the_images(images: dict[str, str]) -> None:
    """`make sbom` reads the packages of the base image in the images, and compares the rest with the lock."""
    given = (f"SCHEDULER_IMAGE={images[SCHEDULER]}", f"CHECK_IMAGE={images[CHECK]}")
    subprocess.run(("make", "sbom", *given), cwd=ROOT, check=True)

    for name in images:
        document = json.loads((ROOT / "sbom" / f"{name}.cdx.json").read_text())
        urls = {each["purl"] for each in document["components"] if "purl" in each}
        assert document["metadata"]["component"]["name"] == name
        assert any(url.startswith("pkg:pypi/aiohttp@") for url in urls) == (name == SCHEDULER)
        assert any(url.startswith("pkg:deb/debian/libc6@") for url in urls)


@pytest.mark.timeout(300)
def test_an_audit_without_a_service_says_so() -> None:
    """The real pip-audit, and an address where nothing answers: nothing is known, and the status is 3."""
    options = "ARGS=-s osv --osv-url http://127.0.0.1:9"
    # make translates its messages.
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        ("make", "audit", options), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert "Error 3" in done.stderr
    assert "so nothing is known about them" in done.stdout
