"""Imports a Python file of a role or a plugin, which belongs to no package."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from types import ModuleType


def load(*parts: str) -> ModuleType:
    """Return the module at this path of the checkout."""
    path = ROOT.joinpath(*parts)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
