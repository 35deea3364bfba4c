"""What lint finds: one word of a closed list, where it stands, and a sentence with the remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from gpu_scheduler.cli.lint.objects import CheckedObject


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """A pod is refused, waits until somebody acts, or does not run where the text says."""
    WARNING = "warning"
    """It passes by itself, or may be meant."""


class Word(StrEnum):
    """The words of findings for which there is no Reason: a pod never waits with them."""

    UNREADABLE = "Unreadable"
    OTHER_SCHEDULER = "OtherScheduler"
    MISPLACED_ANNOTATION = "MisplacedAnnotation"
    UNKNOWN_ANNOTATION = "UnknownAnnotation"
    ROLLOUT_DEADLOCK = "RolloutDeadlock"


@immutable
class Finding:
    """One fault. `word` is a Word, or the Reason with which a pod would be refused or wait."""

    severity: Severity
    word: str
    message: str
    """What is wrong, and the remedy, without the word."""
    source: str
    line: int | None = None
    kind: str = ""
    namespace: str = ""
    name: str = ""


def finding(checked: CheckedObject, line: int, severity: Severity, word: str, message: str) -> Finding:
    """Return a finding about an object. A message that begins with the word loses it."""
    manifest = checked.manifest
    name = manifest.name or f"{manifest.generate_name}?"
    shown = message.removeprefix(f"{word}: ")
    return Finding(severity, word, shown, manifest.source, line, manifest.kind, checked.namespace, name)


def finding_view(each: Finding) -> dict[str, Any]:
    """Return the finding as plain data."""
    return {
        "file": each.source,
        "line": each.line,
        "objectKind": each.kind or None,
        "namespace": each.namespace or None,
        "name": each.name or None,
        "severity": str(each.severity),
        "finding": str(each.word),
        "message": each.message,
    }
