"""Which line of the file a message of admission is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.cli.lint.objects import part_of
from gpu_scheduler.core.pods.placement_map import MapError
from gpu_scheduler.core.pods.unknown_keys import WRITTEN
from gpu_scheduler.core.reasons import Reason

if TYPE_CHECKING:
    from gpu_scheduler.cli.lint.objects import CheckedObject, Path

_ANNOTATION: Final = re.compile(r"annotation ([A-Za-z./-]+)")
_FIELD: Final = re.compile(r"\bspec(?:\.[A-Za-z]+)+")
_CONTAINER: Final = re.compile(r'container "([^"]+)"')


def line_of_fault(checked: CheckedObject, reason: Reason, message: str) -> int:
    """Return the line of what the message names: a map's line, an annotation, a field, a variable, or a container.

    If it names nothing that the object has, return the line of the object's name.
    """
    what = message.partition("; ")[0]
    if reason is Reason.MAP_INVALID:
        wrong = ((each, each.parsed) for each in checked.maps())
        lines = (checked.line_in_map(each, error.line) for each, error in wrong if isinstance(error, MapError))
        return next(lines, checked.line())
    if reason is Reason.NOTHING_REQUESTED:
        return checked.line(*checked.templates[0], "spec", "schedulerName")
    for key in _ANNOTATION.findall(what):
        line = checked.line_of_annotation(key) if key in WRITTEN else None
        if line is not None:
            return line
    field, container = _FIELD.search(what), _CONTAINER.search(what)
    for template in checked.templates:
        path = (*template, *field[0].split(".")) if field is not None else None
        if container is not None:
            path = _variable(checked, template, container[1], what)
        if path is not None and checked.has(*path):
            return checked.line(*path)
    return checked.line()


def _variable(checked: CheckedObject, template: Path, name: str, what: str) -> Path | None:
    """Return the path of the variable of this container that the message names, else of the container."""
    for field in ("containers", "initContainers"):
        for position, container in _listed(part_of(checked.manifest.body, *template, "spec"), field):
            if container.get("name") == name:
                path = (*template, "spec", field, position)
                ours = [name for name in (names.VISIBLE_DEVICES, names.DEVICE_ORDER) if name in what]
                named = (number for number, entry in _listed(container, "env") if entry.get("name") in ours)
                return next(((*path, "env", number) for number in named), path)
    return None


def _listed(part: dict[str, Any], field: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a list, with their positions."""
    given = part.get(field)
    return [
        (number, each) for number, each in enumerate(given if isinstance(given, list) else ()) if isinstance(each, dict)
    ]
