"""Finds every path from a play to a task, with the conditions of roles, blocks, includes and the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.contracts.roles import ROOT, read
from tests.contracts.tasks import PLAY_SECTIONS, SECTIONS, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

TASK_FILES: Final = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")
ROLE_TASKS: Final = ("ansible.builtin.import_role", "ansible.builtin.include_role")


@dataclass(frozen=True, slots=True)
class Reached:
    """A task, and the conditions under which a play runs it, on one path."""

    play: str
    task: Task
    conditions: tuple[str, ...]


def _conditions(entry: Json) -> tuple[str, ...]:
    reported = entry.get("when", [])
    return tuple(map(str, reported)) if isinstance(reported, list) else (str(reported),)


def _tasks(play: str, file: str, entries: list[Json] | None, above: tuple[str, ...]) -> Iterator[Reached]:
    for entry in entries or []:
        conditions = (*above, *_conditions(entry))
        if any(section in entry for section in SECTIONS):
            for section in SECTIONS:
                yield from _tasks(play, file, entry.get(section), conditions)
            continue
        yield Reached(play, Task(file, entry, rescued=False), conditions)
        yield from _below(play, file, entry, conditions)


def _below(play: str, file: str, entry: Json, conditions: tuple[str, ...]) -> Iterator[Reached]:
    """Yield the tasks of the file or the role that this task includes."""
    for key in TASK_FILES:
        if key in entry:
            found = (Path(file).parent / entry[key]).as_posix()
            # `../run_cases.yml`: resolved as Ansible does.
            named = (ROOT / found).resolve().relative_to(ROOT).as_posix()
            yield from _tasks(play, named, read(named), conditions)
    for key in ROLE_TASKS:
        if key in entry:
            for name in _names(entry, entry[key]["name"]):
                yield from _role(play, name, entry[key].get("tasks_from", "main"), conditions)


def _names(entry: Json, name: str) -> list[str]:
    """Return the roles that a task includes: one, or each of its loop."""
    names: list[str] = entry["loop"] if "{{" in name else [name]
    return names


def _role(play: str, name: str, start: str, conditions: tuple[str, ...]) -> Iterator[Reached]:
    file = f"roles/{name}/tasks/{start}.yml"
    yield from _tasks(play, file, read(file), conditions)


def _all() -> Iterator[Reached]:
    for pattern in ("playbooks/*.yml", "molecule/*/*.yml", "site.yml"):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            plays = read(name)
            for play in plays if isinstance(plays, list) else []:
                for entry in play.get("roles", []):
                    yield from _role(name, entry["role"], "main", _conditions(entry))
                for section in PLAY_SECTIONS:
                    yield from _tasks(name, name, play.get(section), ())


REACHED: Final = tuple(_all())
