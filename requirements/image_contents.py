"""Prints what an image contains, as JSON. sbom.py runs this file inside the image; standard library only."""

from __future__ import annotations

import json
import platform
from email.parser import HeaderParser
from pathlib import Path

# Where Python packages are that Debian does not list.
FOLDERS = ("opt", "usr/local/lib")


def debian_packages(root: Path) -> list[tuple[str, str, str]]:
    """Return the installed packages: name, version, architecture."""
    status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    packages = [HeaderParser().parsestr(paragraph) for paragraph in status.strip().split("\n\n")]
    return sorted(
        (each["Package"], each["Version"], each["Architecture"])
        for each in packages
        if each["Status"] == "install ok installed"
    )


def python_packages(root: Path) -> list[tuple[str, str]]:
    """Return the packages that pip installed: name and version."""
    metadata = [path for folder in FOLDERS for path in (root / folder).rglob("*.dist-info/METADATA")]
    packages = [HeaderParser().parsestr(path.read_text(encoding="utf-8")) for path in metadata]
    return sorted((each["Name"], each["Version"]) for each in packages)


def main() -> None:
    """Print the contents of the root file system, and the Python that runs this."""
    system = platform.freedesktop_os_release()
    contents = {
        "system": [system["ID"], system["VERSION_ID"]],
        "python": platform.python_version(),
        "debian_packages": debian_packages(Path("/")),
        "python_packages": python_packages(Path("/")),
    }
    print(json.dumps(contents))  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
