"""Writes what each image contains as CycloneDX documents: `make sbom`.

The Python packages come from the lock. What the base image adds can only be read from a built image, so it is listed
where one is given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from requirements.locks import FOLDER, Pin, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROJECT: Final = FOLDER.parent / "scheduler" / "pyproject.toml"
SCHEDULER: Final = "gpu-scheduler"
CHECK: Final = "gpu-scheduler-check"
LINUX: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.13.0",
    "python_version": "3.13",
    "sys_platform": "linux",
}
"""What the markers of a lock are evaluated with: the images' Python. No marker depends on the architecture."""


class RefusedError(Exception):
    """A sentence for the user."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What an image contains: the system's ID and version, the version of Python, and packages."""

    image: str
    system: tuple[str, str]
    python: str
    debian_packages: tuple[tuple[str, str, str], ...]
    python_packages: tuple[tuple[str, str], ...]


def read_image(image: str) -> Contents:
    """Return what the image contains: run image_contents.py in it."""
    command = ("docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=python3", image, "-")
    script = (FOLDER / "image_contents.py").read_text(encoding="utf-8")
    try:
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        reason = textwrap.shorten(getattr(error, "stderr", "") or str(error), 300)
        raise RefusedError(
            f"cannot read image {image} ({reason}): give one that docker can run here, or none, to list the locked "
            "packages alone (example: make sbom SCHEDULER_IMAGE=gpu-scheduler:latest)"
        ) from error
    found = json.loads(done.stdout)
    return Contents(
        image,
        tuple(found["system"]),
        found["python"],
        tuple(map(tuple, found["debian_packages"])),
        tuple(map(tuple, found["python_packages"])),
    )


def unlocked(pins: Sequence[Pin], contents: Contents) -> list[tuple[str, str]]:
    """Return what pip installed in the image beside the locked packages: what the base image brought.

    RefusedError if the image has another version of a locked package, or none.
    """
    found = {canonicalize_name(name): version for name, version in contents.python_packages}
    for pin in pins:
        version = found.pop(canonicalize_name(pin.name), "none")
        if version != pin.version:
            raise RefusedError(
                f"cannot list image {contents.image}: it has {pin.name} {version}, and the lock {pin.version}; give an "
                "image that was built from this checkout (example: make sbom SCHEDULER_IMAGE=gpu-scheduler:latest)"
            )
    return sorted((name, version) for name, version in found.items() if name != SCHEDULER)


def _component(url: PackageURL) -> Component:
    return Component(name=url.name, version=url.version, purl=url, bom_ref=str(url))


def of_the_base(extra: Sequence[tuple[str, str]], contents: Contents) -> Iterator[Component]:
    """Yield what the base image contains: the system, its packages, and a Python that is none of them."""
    system, release = contents.system
    yield Component(name=system, version=release, type=ComponentType.OPERATING_SYSTEM, bom_ref=f"{system}-{release}")
    for name, version, architecture in contents.debian_packages:
        qualifiers = {"arch": architecture, "distro": f"{system}-{release}"}
        yield _component(PackageURL("deb", system, name, version, qualifiers))
    if not any(name.startswith("python3.") for name, *_ in contents.debian_packages):
        yield _component(PackageURL("generic", None, "python", contents.python))
    for name, version in extra:
        yield _component(PackageURL("pypi", None, name, version))


def document(name: str, pins: Sequence[Pin], contents: Contents | None) -> str:
    """Return the CycloneDX document of an image, after its validation."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    listed = f"the base image's packages too, from {contents.image}" if contents else "the base image's packages not"
    image = Component(
        name=name,
        version=project["version"],
        type=ComponentType.CONTAINER,
        licenses=[DisjunctiveLicense(id=project["license"])],
        bom_ref=name,
        properties=[Property(name=f"{SCHEDULER}:listed", value=f"the locked Python packages; {listed}")],
    )
    bom = Bom(metadata=BomMetaData(component=image))
    locked = {pin.name: _component(PackageURL("pypi", None, pin.name, pin.version)) for pin in pins}
    bom.components.update(locked.values())
    # The lock names the project as that which requires the packages of its own list.
    for parent, component in {SCHEDULER: image, **locked}.items():
        bom.register_dependency(component, [locked[pin.name] for pin in pins if parent in pin.required_by])
    if contents:
        bom.components.update(of_the_base(unlocked(pins, contents), contents))
    text = str(JsonV1Dot6(bom).output_as_string(indent=2))
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error:
        raise RefusedError(f"cannot write the document of {name}: it breaks the schema of CycloneDX ({error})")
    return text


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the documents are written")
    parser.add_argument("--scheduler-image", default="", help="the scheduler's image, to list its base image too")
    parser.add_argument("--check-image", default="", help="likewise")
    given = parser.parse_args()
    payload = read_lock((FOLDER / "payload.txt").read_text(encoding="utf-8"))
    installed = [pin for pin in payload if pin.installed_in(LINUX)]
    try:
        # The check workload uses the standard library only.
        for name, pins, image in ((SCHEDULER, installed, given.scheduler_image), (CHECK, [], given.check_image)):
            text = document(name, pins, read_image(image) if image else None)
            given.folder.mkdir(parents=True, exist_ok=True)
            file = given.folder / f"{name}.cdx.json"
            file.write_text(f"{text}\n", encoding="utf-8")
            print(f"{file}: {len(json.loads(text).get('components', []))} components")  # noqa: T201 - the output
    except RefusedError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
