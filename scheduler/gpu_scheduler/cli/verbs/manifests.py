"""Reads the documents of a file for `submit`, as the API server would read them.

The functions are pure. A fault is reported in one sentence that names the document.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.text import quote
from gpu_scheduler.names import WORKLOAD_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSION: Final = "agentaflow.io/v1"
_EXAMPLE: Final = "example: gpu-scheduler generate-template"


@dataclass(frozen=True, slots=True)
class Document:
    """One GPUWorkload to submit."""

    number: int
    source: str
    namespace: str | None
    name: str
    body: dict[str, Any]

    def __str__(self) -> str:
        """Return the document's name in error messages."""
        return f"document {self.number} ({WORKLOAD_KIND} {self.name}) of {self.source}"

    def sent(self, namespace: str) -> bytes:
        """Return the JSON that is sent to the API server."""
        metadata = {**self.body["metadata"], "namespace": namespace}
        return json.dumps({**self.body, "metadata": metadata}, allow_nan=False).encode()


class _Loader(yaml.SafeLoader):
    """Loads YAML as Kubernetes does: a key may not be repeated, and a date is a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's own
        known: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and str(key.value) in known:
                problem = f"key {quote(str(key.value))} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            known.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, source: str) -> list[Document]:
    """Read all documents that are not empty. RefusedInputError if one is no GPUWorkload, or if there is none."""
    try:
        parsed = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedInputError(f"cannot read {source}: {_where(error)}; correct it ({_EXAMPLE})") from error
    found = [_document(number, source, body) for number, body in _flat(parsed)]
    if not found:
        raise RefusedInputError(f"cannot submit {source}: it has no document; write one ({_EXAMPLE})")
    return found


def _flat(parsed: list[Any]) -> Iterator[tuple[int, Any]]:
    """Number the documents from 1; each item of a List counts as a document."""
    number = 0
    for body in parsed:
        inner = body["items"] if isinstance(body, dict) and body.get("kind") == "List" and "items" in body else [body]
        for each in inner if isinstance(inner, list) else [inner]:
            if each is not None:
                number += 1
                yield number, each


def _document(number: int, source: str, body: Any) -> Document:
    if not isinstance(body, dict):
        raise _invalid(number, source, f"it is {quote(str(body))}, and must be an object", "write apiVersion, kind, …")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", WORKLOAD_KIND)):
        if body.get(key) != wanted:
            rule = f"{key} is {quote(str(body.get(key, '')))}, and must be {wanted}"
            raise _invalid(number, source, rule, "other kinds are kubectl's to apply")
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise _invalid(number, source, "it has no metadata.name", "write one, by which it can be submitted again")
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise _invalid(number, source, "its metadata.namespace is no text", "put it in quotes, or leave it out")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _invalid(
            number, source, f"it has a value that JSON does not know: {error}", "put it in quotes"
        ) from error
    return Document(number, source, namespace, name, body)


def _invalid(number: int, source: str, rule: str, remedy: str) -> RefusedInputError:
    return RefusedInputError(f"cannot submit document {number} of {source}: {rule}; {remedy} ({_EXAMPLE})")


def _where(error: Exception) -> str:
    """Return the YAML parser's error in one line, with the line number if it is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or 'this is no YAML'}"
