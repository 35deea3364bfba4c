"""The Makefile where the tool environment is half made, Python lacks its package venv, or the locale is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.roles import ROOT
from tests.waiting import limit

# The interpreter of which the environment of these tests was made.
PYTHON: Final = Path(sys.base_prefix, "bin", "python3")
LIBRARY: Final = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make in this folder, without the variables and the level that a make around this test hands down."""
    around = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ("make", *arguments),
        cwd=folder,
        env={**around, **environment},
        capture_output=True,
        text=True,
        timeout=limit(120),
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the Makefile, and with nothing to install."""
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements" / "deploy.txt").touch()
    return folder


def has_pip(checkout: Path) -> bool:
    """Return whether the tool environment can install packages."""
    done = subprocess.run((checkout / ".venv/bin/python", "-m", "pip", "--version"), capture_output=True, check=False)
    return done.returncode == 0


def test_environment_without_pip_is_made_anew(checkout: Path) -> None:
    """An interrupted `python -m venv` leaves no pip; a newer Python of the system does not see that of the older one.

    The latter has stamps, so they prove nothing. What was made then is kept.
    """
    subprocess.run((PYTHON, "-m", "venv", "--without-pip", ".venv"), cwd=checkout, check=True)
    (checkout / ".venv" / ".deploy.stamp").touch()

    done = make(checkout, "env-deploy", f"PYTHON={PYTHON}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert has_pip(checkout)
    again = make(checkout, "env-deploy", f"PYTHON={PYTHON}")
    assert (again.returncode, again.stdout) == (0, "")


def test_python_without_ensurepip_is_refused_with_the_package_and_works_once_it_is_there(checkout: Path) -> None:
    """Debian has ensurepip in package python3-venv; without it `python3 -m venv` leaves half an environment."""
    bare = checkout / "python"
    (bare / LIBRARY).mkdir(parents=True)
    for part in (PYTHON.parents[1] / LIBRARY).iterdir():
        if part.name != "ensurepip":
            (bare / LIBRARY / part.name).symlink_to(part)
    without = f"PYTHON=env PYTHONHOME={bare} {PYTHON}"

    for _ in range(2):
        refused = make(checkout, "env-deploy", without)
        assert refused.returncode != 0
        assert "lacks module ensurepip" in refused.stderr, refused.stderr
        assert "(example: apt-get install python3-venv)" in refused.stderr
        assert "Traceback" not in refused.stderr

    done = make(checkout, "env-deploy", f"PYTHON={PYTHON}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert has_pip(checkout)


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_home_that_cannot_be_written_is_refused_before_anything_is_made(checkout: Path, home: str) -> None:
    """A user without an entry in /etc/passwd gets / or nothing: Ansible then ended in a traceback."""
    done = make(checkout, "env-deploy", f"PYTHON={PYTHON}", HOME=home)

    assert done.returncode != 0
    assert f"cannot use HOME '{home}'" in done.stderr
    assert "(example: make up HOME=/tmp)" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    "locale",
    [{"LANG": "xx_YY.UTF-8"}, {"LC_ALL": "C"}, {"LC_ALL": "xx_YY.UTF-8", "LANGUAGE": "xx"}],
    ids=["a locale that is not there", "no UTF-8", "one that overrides the others"],
)
def test_ansible_starts_whatever_locale_the_user_has(locale: dict[str, str]) -> None:
    """Ssh hands on the name of a locale that this machine may not have."""
    shown = make(
        ROOT, "--eval", 'probe: ; @echo "LANGUAGE=$${LANGUAGE-}"; ansible --version', "probe", **{"LANG": "", **locale}
    )

    assert shown.returncode == 0, shown.stderr
    assert "ansible [core" in shown.stdout
    assert "LANGUAGE=\n" in shown.stdout
