"""Plays of the modules that start themselves again under the system's Python, because only that has their library."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contracts.roles import ROOT
from tests.contracts.tasks import TASKS

SYSTEM: Final = "/usr/bin/python3"
"""The interpreter that these modules look for first."""
LIBRARIES: Final = {"ansible.builtin.apt": ("apt/__init__.py", "apt/debfile.py", "apt_pkg.py")}
HARMLESS: Final[dict[str, dict[str, Any]]] = {"ansible.builtin.apt": {"clean": True}}
# The libraries stand in for those of a distribution: any machine can run the test, and no package is asked for.
LIBRARY: Final = f"import sys\nif sys.executable != {SYSTEM!r}:\n    raise ModuleNotFoundError(__name__)\n"


def _source(module: str) -> str:
    """Return the code of a module, wherever its collection is installed."""
    namespace, collection, name = module.split(".")
    place = (
        "ansible.modules"
        if collection == "builtin"
        else f"ansible_collections.{namespace}.{collection}.plugins.modules"
    )
    spec = find_spec(place)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next(path.read_text() for folder in folders if (path := Path(folder) / f"{name}.py").exists())


def _respawning() -> list[str]:
    """Return the modules of the roles whose code can start them again. Our own modules have no collection."""
    modules = sorted({task.module for task in TASKS if "." in task.module})
    return [module for module in modules if "respawn_module(" in _source(module)]


@pytest.mark.parametrize("module", _respawning())
def test_module_runs_under_another_interpreter(tmp_path: Path, module: str) -> None:
    """B1: a module runs under ansible.cfg if only the system's Python has its library."""
    for name in LIBRARIES[module]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(LIBRARY)
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"hosts": "localhost", "tasks": [{module: HARMLESS[module]}]}]))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}

    command = ("ansible-playbook", "--check", "--inventory", "inventory/kind", str(play))
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
