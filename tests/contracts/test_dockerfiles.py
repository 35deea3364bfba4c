"""What the images of the product and of the check workload lack."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

REMOVED: Final = ("bin/bash", "bin/rbash", "usr/bin/openssl")


@pytest.mark.promise("serve-4")
@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.check"])
def test_image_has_nothing_that_gives_more_rights(name: str, tmp_path: Path) -> None:
    """The last stage's own command, run on a folder, removes both bits from files and folders, bash and openssl."""
    last_stage = (ROOT / name).read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    (command,) = re.findall(r"^RUN (find / .*)$", last_stage, re.MULTILINE)
    programs = {tmp_path / file: mode for file, mode in zip(("bin/su", "bin/wall"), (0o4755, 0o2755), strict=True)}
    (tmp_path / "mail").mkdir()
    for path in (*programs, *(tmp_path / file for file in REMOVED)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(programs.get(path, 0o755))
    (tmp_path / "mail").chmod(0o2775)

    subprocess.run(["sh", "-ec", re.sub(r" /(?=bin|usr| )", f" {tmp_path}/", command)], check=True)

    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode for path in tmp_path.rglob("*")}
    assert {path for path, mode in modes.items() if mode & 0o6000} == set()
    assert not set(REMOVED) & set(modes)
    assert {"bin/su", "bin/wall", "mail"} <= set(modes)
