"""The locks in requirements/ pin every package by version and hashes, and `make audit` judges all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest

from requirements import image_contents
from requirements.locks import Pin, read_lock, read_locks
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOCKS: Final = sorted((ROOT / "requirements").glob("*.txt"))
LOCK: Final = """\
aiosignal==1.4.0 \\
    --hash=sha256:053243f8b92b990551949e63930a839ff0cf0b0ebbe0597b0f3fb19e1a0fe82e \\
    --hash=sha256:f47eecd9468083c2029cc99945502cb7708b082c232f9aca65da147157b251c7
    # via
    #   -c requirements/payload.txt
    #   gpu-scheduler (scheduler/pyproject.toml)
    #   aiohttp
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:08695f5cb7ed6e0531a20572697297273c47b8cae5a63ffc6d6ed5c201be6e44
    # via pytest
"""
# What pip-audit prints, by the name of the package; "" is its standard error.
KNOWN: Final[dict[str, object]] = {"vulns": []}
NAMED: Final[dict[str, object]] = {
    "vulns": [
        {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "fix_versions": ["9.1", "10.0"]},
        {"id": "PYSEC-2026-2", "aliases": [], "fix_versions": []},
    ]
}
UNKNOWN: Final[dict[str, object]] = {"skip_reason": "not found"}
PIP_AUDIT: Final = """\
import json, os, pathlib, re, sys
answers = json.loads(os.environ["ANSWERS"])
file = next(word for word in sys.argv if word.startswith("--requirement=")).partition("=")[2]
pins = re.findall("^(.+)==(.+)$", pathlib.Path(file).read_text(), flags=re.MULTILINE)
assert len({name for name, _ in pins}) == len(pins)
if "error" in answers:
    sys.exit(answers["error"])
found = [{"name": name, "version": version, **answers.get(name, answers["*"])} for name, version in pins]
print(json.dumps({"dependencies": found, "fixes": []}))
sys.exit(any(each.get("vulns") for each in found))
"""


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_pins_each_package_by_hashes_and_names_no_index(lock: Path) -> None:
    """Any mirror serves, and pip refuses what differs."""
    text = lock.read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=\S)", text.strip())

    assert [block for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []
    assert len(read_lock(text)) == len(blocks)
    assert re.findall(r"://|--(?:extra-)?index-url|--find-links|--trusted-host", text) == []


def test_each_lock_is_compiled() -> None:
    """`make lock` writes all of them, so none grows old."""
    written = re.findall(r"--output-file requirements/(\S+)", (ROOT / "requirements" / "compile").read_text())

    assert sorted(written) == [path.name for path in LOCKS]


def test_a_pin_has_its_marker_and_what_requires_it() -> None:
    """A package counts for an environment in which its marker holds."""
    aiosignal, colorama = read_lock(LOCK)

    assert aiosignal == Pin("aiosignal", "1.4.0", "", ("gpu-scheduler", "aiohttp"))
    assert colorama == Pin("colorama", "0.4.6", "sys_platform == 'win32'", ("pytest",))
    assert [pin.installed_in({"sys_platform": "linux"}) for pin in (aiosignal, colorama)] == [True, False]


def audit(folder: Path, answers: dict[str, object]) -> tuple[int, str]:
    """Run the audit with a pip-audit that gives these answers. Return exit status and output."""
    (folder / "pip_audit.py").write_text(PIP_AUDIT)
    done = subprocess.run(
        (sys.executable, "-m", "requirements.audit"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "ANSWERS": json.dumps(answers)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_an_audit_asks_for_every_package_of_every_lock(tmp_path: Path) -> None:
    """It says how many they are; only then it says that no advisory names any."""
    packages = {(pin.name, pin.version) for pins in read_locks().values() for pin in pins}

    assert audit(tmp_path, {"*": KNOWN}) == (
        0,
        f"No advisory names any of the {len(packages)} packages in requirements/*.txt.\n",
    )


def test_an_advisory_is_printed_with_the_locks_of_the_package(tmp_path: Path) -> None:
    """One line for each: package, locks, names, and the versions that repair it."""
    (version,) = {pin.version for pin in read_locks()["payload"] if pin.name == "aiohttp"}
    status, output = audit(tmp_path, {"*": KNOWN, "aiohttp": NAMED})

    assert status == 1
    assert output == (
        f"aiohttp {version} (deploy, dev, openshift, payload): PYSEC-2026-1 CVE-2026-1, fixed in 9.1 10.0\n"
        f"aiohttp {version} (deploy, dev, openshift, payload): PYSEC-2026-2, not fixed\n"
    )


@pytest.mark.parametrize(
    ("answers", "count", "reason"),
    [
        pytest.param({"*": UNKNOWN}, None, "not found", id="an index without advisories, where pip-audit succeeds"),
        pytest.param({"*": KNOWN, "aiohttp": UNKNOWN}, 1, "not found", id="one package is not known"),
        pytest.param({"error": "Traceback\nno route to host"}, None, "no route to host", id="nobody answers"),
    ],
)
def test_no_answer_is_never_a_clean_audit(
    tmp_path: Path, answers: dict[str, object], count: int | None, reason: str
) -> None:
    """It has an exit status of its own, and one sentence says for which packages nothing is known."""
    status, output = audit(tmp_path, answers)
    total = len({(pin.name, pin.version) for pins in read_locks().values() for pin in pins})

    assert status == 3
    assert output.startswith(f"cannot audit {count or total} of {total} packages, ")
    assert f"did not answer for them ({reason}), so nothing is known about them; run this where it" in output
    assert "No advisory" not in output


def test_contents_of_an_image_are_its_packages(tmp_path: Path) -> None:
    """Debian's that are installed, and those that pip installed, wherever their environment is."""
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n"
        "Description: C library\n and\n .\n more\n\n"
        "Package: vim\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 9\n"
    )
    for folder, name in (("opt/a/lib/python3.13/site-packages", "one"), ("usr/local/lib/python3.13", "two")):
        (tmp_path / folder / f"{name}.dist-info").mkdir(parents=True)
        (tmp_path / folder / f"{name}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n\nVersion: of the text\n"
        )

    assert image_contents.debian_packages(tmp_path) == [("libc6", "2.41-12", "amd64")]
    assert image_contents.python_packages(tmp_path) == [("one", "1.0"), ("two", "1.0")]


@pytest.mark.parametrize("pair", tuple(combinations(("etcd", "containerd", "coredns"), 2)), ids=" and ".join)
def test_programs_of_a_node_share_their_libraries(pair: tuple[str, str]) -> None:
    """What two of these modules require has one version: it is compiled once. Kubernetes' own versions are older."""
    one, other = (_required(module) for module in pair)
    assert {name for name in one.keys() & other.keys() if one[name] != other[name]} == set()


def _required(module: str) -> dict[str, str]:
    text = (ROOT / "roles/node_image/files/go" / module / "go.mod").read_text(encoding="utf-8")
    return dict(re.findall(r"^\s+(\S+) (v\S+)", text, re.MULTILINE))
