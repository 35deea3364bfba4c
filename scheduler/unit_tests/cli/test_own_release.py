import subprocess
from pathlib import Path

import pytest

from gpu_scheduler.cli.own_release import PACKAGE, commit_of, own_release, version_of

PROJECT = '[project]\nname = "gpu-scheduler"\nversion = "1.2.3"\n'


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one commit of a package."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return package


def test_a_checkout_has_a_commit(checkout: Path) -> None:
    """Marked if a file has changed since."""
    head = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == head

    (checkout / "__init__.py").write_text("changed = True\n", encoding="utf-8")
    assert commit_of(checkout) == f"{head}-dirty"


def test_a_package_in_somebodys_checkout_has_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one in an environment there: that commit is another project's. Nor has a package where git is missing."""
    environment = checkout / "site-packages"
    environment.mkdir()
    (environment / "__init__.py").write_text("", encoding="utf-8")
    assert commit_of(environment) == "unknown"

    monkeypatch.setenv("PATH", "/nowhere")
    assert commit_of(checkout) == "unknown"


VERSIONS = {
    "of this project": (PROJECT, "1.2.3"),
    "of another project": (PROJECT.replace("gpu-", "job-"), "unknown"),
    "no TOML": ("[", "unknown"),
    "no project": ("[tool]\n", "unknown"),
}


@pytest.mark.parametrize(("text", "version"), VERSIONS.values(), ids=VERSIONS)
def test_the_version_of_a_checkout_stands_in_its_project_file(text: str, version: str, tmp_path: Path) -> None:
    """Nothing is installed there."""
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")

    assert version_of(tmp_path) == version
    assert version_of(tmp_path / "none") == "unknown"


def test_an_image_says_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a variable. An unpacked package of this checkout says the checkout's."""
    monkeypatch.setenv("GPU_SCHEDULER_COMMIT", "0a1b2c3")
    assert own_release() == (version_of(PACKAGE.parent), "0a1b2c3")
