"""Reads the roles as data, for the contract tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ROLES: Final = tuple(sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir()))


class _Tagged(yaml.SafeLoader):
    """A loader that reads Ansible's own tags (`!unsafe`, `!vault`) as plain values."""


_Tagged.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def read(*parts: str) -> Any:
    """Return the YAML document of a file in the checkout; None for an empty one."""
    return yaml.load((ROOT.joinpath(*parts)).read_text(), Loader=_Tagged)  # noqa: S506 - a SafeLoader


def inventory_variables(inventory: str) -> set[str]:
    """Return the variables of an inventory, and those that it explains in a comment and leaves to the user."""
    parts = ("inventory", inventory, "group_vars", "all", "facts.yml")
    return set(read(*parts)) | set(re.findall(r"(?m)^# (\w+): \w+$", ROOT.joinpath(*parts).read_text()))


def defaults(role: str) -> dict[str, Any]:
    """Return the role's inputs and their default values."""
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    return (read("roles", role, "defaults", "main.yml") or {}) if path.exists() else {}


def options(role: str) -> dict[str, dict[str, Any]]:
    """Return the role's argument specification: input → its options."""
    spec = read("roles", role, "meta", "argument_specs.yml")
    return spec["argument_specs"]["main"].get("options", {})  # type: ignore[no-any-return]


def play_roles() -> dict[str, list[str]]:
    """Return role → tags of the main play, in its order."""
    (play,) = read("playbooks", "site.yml")
    return {name: entry["tags"] for name, entry in imported_roles(play)}


def imported_roles(play: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return each role that the play imports as a whole, with the task that imports it."""
    tasks = [(task.get("ansible.builtin.import_role", {}), task) for task in play["tasks"]]
    return [(role["name"], task) for role, task in tasks if role and "tasks_from" not in role]
