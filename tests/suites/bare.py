"""The suites on machines that have nothing installed, which a new user meets first. `.ci/run` begins with one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from tests.suites.steps import Suite, package, pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# In this order: what the first builds is in the cache for the second.
FILES: Final = ("tests/cluster/bare/test_trixie.py", "tests/cluster/bare/test_bookworm.py")
TOOLS: Final = {"debootstrap": "debootstrap", "ip": "iproute2", "iptables": "iptables"}
"""Programs that make such a machine, and their packages."""


def _bare(*files: str, **environment: str) -> Suite:
    missing = [name for program, name in TOOLS.items() if not shutil.which(program)]
    tools = (package(" and ".join(missing), " ".join(missing)),) if missing else ()
    # -rP prints the output of each command.
    return Suite((*tools, pytest("--cluster", "-rP", *files, **environment)))


BARE: Final[dict[str, Callable[[], Suite]]] = {
    "bare": lambda: _bare(*FILES),
    "bare-cold": lambda: _bare(FILES[0], BARE_COLD="1"),
    "bare-ubuntu": lambda: _bare(FILES[0], BARE_SUITE="noble"),
}
