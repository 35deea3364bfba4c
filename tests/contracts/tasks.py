"""Reads every task of the deployment as data: of roles, playbooks and molecule's scenarios, inside blocks too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.contracts.roles import ROOT, read

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

COMMAND: Final = "ansible.builtin.command"
SECTIONS: Final = ("block", "rescue", "always")
PLAY_SECTIONS: Final = ("pre_tasks", "tasks", "post_tasks", "handlers")
# Our own modules have no collection in their names.
OUR_MODULES: Final = frozenset(
    path.stem for folder in ("plugins/modules", "roles/*/library") for path in ROOT.glob(f"{folder}/*.py")
)
# Templated program → its name: for example, `{{ _kind_cluster_kind }}` is kind.
TEMPLATED: Final = {
    r"\w+_kubectl|kubectl_command": "kubectl",
    r"_kind_cluster_kind|images_kind_program|_node_image_kind_found": "kind",
    r"__node_image_go": "go",
    r"_node_image_program_paths\.kubeadm": "kubeadm",
    r"ansible_playbook_python": "python",
}

_LIST: Final = re.compile(r"\s*\{\{\s*(?:(\w+)\s*\+\s*)?\[(.*?)\](?:\s*\+.*|\s*)\}\}\s*$", re.DOTALL)
# A comma outside of quotes.
_COMMA: Final = re.compile(r",(?=(?:[^']*'[^']*')*[^']*$)")
_QUOTED: Final = re.compile(r"'[^']*'")


@dataclass(frozen=True, slots=True)
class Task:
    """One task: its file, its data, and whether a rescue surrounds it in that file."""

    file: str
    data: Json
    rescued: bool

    @property
    def module(self) -> str:
        """The module of the task; empty for a block."""
        return next((key for key in self.data if "." in key or key in OUR_MODULES), "")

    @property
    def arguments(self) -> Any:
        """The module's arguments."""
        return self.data.get(self.module)

    @property
    def role(self) -> str:
        """The role of the task; empty for a task of a play."""
        parts = Path(self.file).parts
        return parts[1] if parts[0] == "roles" else ""

    def __str__(self) -> str:
        return f"{self.file}: {self.data.get('name', self.module)}"

    def argv(self) -> list[str]:
        """The words of the task's command; templates in them are not rendered."""
        reported: Any = self.arguments
        words: Any = reported.get("argv", reported.get("cmd", "")) if isinstance(reported, dict) else reported
        return [str(word) for word in words] if isinstance(words, list) else _words(words)

    def program(self) -> str:
        """The task's program, without its path."""
        first = self.argv()[0]
        name = first.removeprefix("{{ ").removesuffix(" }}")
        return next((program for pattern, program in TEMPLATED.items() if re.fullmatch(pattern, name)), first)


def _words(text: str) -> list[str]:
    """Return the words of a command line, or of a template that is a list, up to the first computed part."""
    found = _LIST.match(text)
    if not found:
        return text.split()
    lead = [f"{{{{ {found[1]} }}}}"] if found[1] else []
    items = [item.strip() for item in _COMMA.split(found[2])]
    return lead + [item[1:-1] if _QUOTED.fullmatch(item) else f"{{{{ {item} }}}}" for item in items]


def _walk(file: str, entries: list[Json] | None, *, rescued: bool = False) -> Iterator[Task]:
    for entry in entries or []:
        if not any(section in entry for section in SECTIONS):
            yield Task(file, entry, rescued)
        for section in SECTIONS:
            yield from _walk(file, entry.get(section), rescued=rescued or (section == "block" and "rescue" in entry))


def _of_file(path: Path) -> Iterator[Task]:
    name = str(path.relative_to(ROOT))
    for entry in read(name) or []:
        if not isinstance(entry, dict):
            continue
        if "hosts" in entry:
            for section in PLAY_SECTIONS:
                yield from _walk(name, entry.get(section))
        else:
            yield from _walk(name, [entry])


def _all() -> Iterator[Task]:
    for pattern in ("roles/*/tasks/**/*.yml", "playbooks/*.yml", "molecule/**/*.yml", "site.yml"):
        for path in sorted(ROOT.glob(pattern)):
            if path.name != "molecule.yml":
                yield from _of_file(path)


TASKS: Final = tuple(_all())
COMMANDS: Final = tuple(task for task in TASKS if task.module in (COMMAND, "parallel_command"))
