"""The README's first commands on Debian 13, which has Python 3.13: from nothing to a proved placement, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.bare.machine import LONGEST

if TYPE_CHECKING:
    from tests.cluster.bare.machine import Machine

pytestmark = pytest.mark.timeout(LONGEST)
RECAP: Final = re.compile(r"localhost +: ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0")


def recap(output: str) -> tuple[int, int]:
    """Return how many tasks ran, and how many of them changed something."""
    found = RECAP.findall(output)
    assert found, output[-3000:]
    return int(found[-1][0]), int(found[-1][1])


def test_nothing_is_installed(bare: Machine) -> None:
    """What these tests prove would be worth little on a machine that has a part of it already."""
    assert [name for name in bare.absent if bare.has(name)] == []
    assert bare.run("python3 -c 'import apt'").code == 1


def test_one_command_proves_the_placement(bare: Machine) -> None:
    """`make up` makes engine, cluster and installation; its evidence shows each replica on its GPU."""
    done = bare.run("make up").succeeded()

    assert recap(done.output)[1] > 0
    assert "export KUBECONFIG=" in done.output


def test_the_placement_is_proved_again(bare: Machine) -> None:
    """`make verify` changes nothing."""
    assert recap(bare.run("make verify").succeeded().output)[1] == 0


def test_a_second_run_changes_nothing(bare: Machine) -> None:
    """The `make up` that a user repeats."""
    assert recap(bare.run("make up").succeeded().output)[1] == 0


def test_down_leaves_nothing_running(bare: Machine) -> None:
    """What stays are packages, the cache and .venv, as `make down` says."""
    bare.run("make down").succeeded()

    assert bare.processes() == []
    assert bare.run("ls -A .kube").output == ""
    assert bare.run("ls -A /run/docker.sock /run/docker.pid").code != 0
