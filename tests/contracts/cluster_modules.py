"""Imports our modules that read an existing cluster, with the parts that Ansible would send along."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.contracts.loading import load

if TYPE_CHECKING:
    from types import ModuleType

PARTS: Final = ("node_facts", "kubectl", "records", "kube_context")


def load_part(name: str) -> ModuleType:
    """Return a file of plugins/module_utils under the name that modules import."""
    called = f"ansible.module_utils.{name}"
    if called not in sys.modules:
        sys.modules[called] = load("plugins", "module_utils", f"{name}.py")
    return sys.modules[called]


def load_module(*parts: str) -> ModuleType:
    """Return the module at this path of the checkout."""
    for name in PARTS:
        load_part(name)
    return load(*parts)
