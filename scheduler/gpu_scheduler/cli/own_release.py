"""Version and commit of the command line itself: of a package, of an image, or of the checkout that it runs from."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Final

from gpu_scheduler.names import SCHEDULER_NAME
from gpu_scheduler.process.lifecycle import own_version
from gpu_scheduler.settings import CommonSettings, read_settings

PACKAGE: Final = Path(__file__).resolve().parents[1]
UNKNOWN: Final = "unknown"
_SECONDS: Final = 5


def own_release() -> tuple[str, str]:
    """Return version and commit; a commit with `-dirty` if files of the checkout were changed since."""
    version, commit = own_version(), read_settings(CommonSettings).gpu_scheduler_commit
    return (
        version_of(PACKAGE.parent) if version == "0+unknown" else version,
        commit_of(PACKAGE) if commit == UNKNOWN else commit,
    )


def version_of(folder: Path) -> str:
    """Return the version in the folder's pyproject.toml, if it is the one of this package."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return UNKNOWN
    return str(project["version"]) if project.get("name") == SCHEDULER_NAME else UNKNOWN


def commit_of(folder: Path) -> str:
    """Return the commit of the git checkout that the folder belongs to; "unknown" if git does not track the folder.

    An environment in somebody's checkout is not tracked there.
    """
    if not _git(folder, "ls-files", "__init__.py"):
        return UNKNOWN
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or UNKNOWN


def _git(folder: Path, *words: str) -> str:
    """Return what git prints; empty if it fails or is not there."""
    command = ["git", "-C", str(folder), *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - constant words
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
