"""Checks texts: reads the objects of all files, and applies the rules to each and to all together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.lint.findings import Finding, Severity, Word
from gpu_scheduler.cli.lint.objects import CheckedObject, read_object
from gpu_scheduler.cli.lint.places import line_at
from gpu_scheduler.cli.lint.rules import RULES
from gpu_scheduler.cli.lint.together import devices_of_two_workloads, indices_of_two_pods
from gpu_scheduler.cli.manifests.controllers import makes_pods
from gpu_scheduler.cli.manifests.documents import UnreadableTextError, manifest_of, parse_documents
from gpu_scheduler.cli.options import FAILED, RefusedInputError
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_scheduler.cli.manifests.documents import Document

EXAMPLE: Final = "example: gpu-scheduler lint deployment.yaml"
_RENDER: Final = "if it is a template of Helm, render it first (example: helm template . | gpu-scheduler lint -)"


@immutable
class Checked:
    """What was read, and what is wrong with it."""

    objects: tuple[CheckedObject, ...]
    findings: tuple[Finding, ...]

    @property
    def unread(self) -> bool:
        """Whether a text could not be read, so that its findings are unknown."""
        return any(each.word is Word.UNREADABLE for each in self.findings)

    @property
    def code(self) -> int:
        """The exit code: 1 if an error was found."""
        return FAILED if any(each.severity is Severity.ERROR for each in self.findings) else 0


def check(texts: Iterable[tuple[str, str]], namespace: str, policy: Policy | None = None) -> Checked:
    """Check texts, each with the name of its file.

    `namespace` is for objects that name none, `policy` is the cluster's, or its defaults if it is unknown.
    """
    policy = policy or Policy()
    objects: list[CheckedObject] = []
    findings: list[Finding] = []
    for source, text in texts:
        for each in _read(source, text, namespace, policy.scheduler_name):
            (objects if isinstance(each, CheckedObject) else findings).append(each)  # type: ignore[arg-type]
    findings += (found for checked in objects for rule in RULES for found in rule(checked))
    findings += indices_of_two_pods(objects)
    findings += devices_of_two_workloads(objects, policy.sharing)
    return Checked(tuple(objects), tuple(findings))


def _read(source: str, text: str, namespace: str, scheduler_name: str) -> Iterator[CheckedObject | Finding]:
    try:
        documents = parse_documents(text, source, EXAMPLE)
    except UnreadableTextError as error:
        yield _unreadable(source, error.line, str(error), text)
        return
    # All names of ours have "gpu" in them, but a scheduler's own. A file without is not ours, nor are its faults.
    ours = "gpu" in text.lower() or scheduler_name in text
    for document in documents if ours else ():
        if not _makes_pods(document):
            continue
        try:
            yield read_object(manifest_of(document, source, EXAMPLE), namespace, scheduler_name)
        except RefusedInputError as error:
            yield _unreadable(source, line_at(document.node, ("metadata", "name")), str(error), text)


def _makes_pods(document: Document) -> bool:
    """Whether the document has a kind that makes pods. Values of Helm, for example, have no kind."""
    body = document.body
    kind, version = (body.get("kind"), body.get("apiVersion")) if isinstance(body, dict) else (None, None)
    return isinstance(kind, str) and isinstance(version, str) and makes_pods(version, kind)


def _unreadable(source: str, line: int | None, message: str, text: str) -> Finding:
    shown = f"{message.rpartition('; ')[0]}; {_RENDER}" if "{{" in text else message
    return Finding(Severity.ERROR, Word.UNREADABLE, shown, source, line)
