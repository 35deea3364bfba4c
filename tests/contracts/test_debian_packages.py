"""Debian's packages on hosts of another distribution: where they come from, and what a host lacks to check them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts.host import Host
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.plays

# What apt of a host says of its sources: label and address.
UBUNTU: Final = "Ubuntu http://archive.ubuntu.com/ubuntu/\nUbuntu http://security.ubuntu.com/ubuntu/"
NEAR: Final = "Debian https://mirror.example.com/debian/\nDebian-Security https://mirror.example.com/debian-security/"
DEBIAN: Final = ("http://deb.debian.org/debian", "http://security.debian.org/debian-security")
MIRRORS: Final = {
    UBUNTU: DEBIAN,
    "": DEBIAN,
    NEAR: ("https://mirror.example.com/debian", "https://mirror.example.com/debian-security"),
}
FETCH: Final = """
- hosts: localhost
  tasks:
    - ansible.builtin.import_role: {name: node_image, tasks_from: debian_programs}
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host on which nothing runs yet."""
    return Host(tmp_path)


def play(host: Host, tasks: list[dict[str, Any]], **variables: object) -> str:
    """Run tasks with the role's variables about mirrors; return the output."""
    files = [str(ROOT / "roles/node_image/vars/main/mirrors.yml")]
    playbook = host.folder / "play.json"
    playbook.write_text(json.dumps([{"hosts": "localhost", "vars_files": files, "tasks": tasks}]))
    run = host.play(str(playbook), "kind", **variables)
    assert run.status == 0, run.output
    return run.output


def test_debian_s_own_hosts_serve_where_apt_names_no_mirror_of_debian(host: Host) -> None:
    """An Ubuntu host names Ubuntu's mirrors alone, whose packages are not those of the images."""
    found = "FOUND {{ _node_image_mirror }} {{ _node_image_security_mirror }} END"
    tasks = [
        {"ansible.builtin.debug": {"msg": found}, "vars": {"__node_image_mirrors": {"stdout": said}}}
        for said in MIRRORS
    ]

    output = play(host, tasks)

    assert [tuple(part.partition(" END")[0].split()) for part in output.split("FOUND ")[1:]] == list(MIRRORS.values())


@pytest.mark.parametrize(("known", "given"), [(("sid", "trixie"), ""), (("sid",), "/sid")], ids=["", "older"])
def test_debootstrap_that_is_older_than_the_release_gets_a_script(host: Host, known: list[str], given: str) -> None:
    """It looks for a script of the release's name, and all of Debian's are one."""
    scripts = host.folder / "scripts"
    scripts.mkdir()
    for name in known:
        (scripts / name).touch()
    tasks = [{"ansible.builtin.debug": {"msg": "FOUND {{ _node_image_debootstrap_script | join }} END"}}]

    output = play(host, tasks, _node_image_debootstrap_scripts=str(scripts), _node_image_release="trixie")

    assert f"FOUND {scripts}{given} END" in output if given else "FOUND END" in output


def test_host_without_debian_s_keys_is_told_which_package_has_them(host: Host) -> None:
    """Before anything is fetched."""
    playbook = host.folder / "fetch.yml"
    playbook.write_text(FETCH)

    run = host.play(str(playbook), "kind", _node_image_keyring="/nowhere/keys.gpg")

    assert run.status != 0
    assert "this host lacks /nowhere/keys.gpg, by which they are fetched and checked." in run.output
    assert "(example: apt-get install debian-archive-keyring)" in run.output
    assert [call[:2] for call in run.calls] == [["apt-get", "indextargets"]]
