"""The documents of a file for `submit`, as the API server would read them.

Pure: from text to values; a fault is one sentence that names the document.
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
    """One GPUWorkload to be."""

    number: int
    source: str
    namespace: str | None
    name: str
    body: dict[str, Any]

    def __str__(self) -> str:
        """As errors call it."""
        return f"document {self.number} ({WORKLOAD_KIND} {self.name}) of {self.source}"

    def sent(self, namespace: str) -> bytes:
        """What the API server is sent."""
        metadata = {**self.body["metadata"], "namespace": namespace}
        return json.dumps({**self.body, "metadata": metadata}, allow_nan=False).encode()


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a key stands once, and a date is a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's own
        known: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and str(key.value) in known:
                said = f"key {quote(str(key.value))} stands twice"
                raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
            known.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, source: str) -> list[Document]:
    """All documents that are not empty; RefusedInputError where one is no GPUWorkload, or there is none."""
    try:
        parsed = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedInputError(f"cannot read {source}: {_where(error)}; correct it ({_EXAMPLE})") from error
    found = [_document(number, source, body) for number, body in _flat(parsed)]
    if not found:
        raise RefusedInputError(f"cannot submit {source}: it has no document; write one ({_EXAMPLE})")
    return found


def _flat(parsed: list[Any]) -> Iterator[tuple[int, Any]]:
    """The documents, numbered; a List's items count as documents of their own."""
    number = 0
    for body in parsed:
        inner = body["items"] if isinstance(body, dict) and body.get("kind") == "List" and "items" in body else [body]
        for each in inner if isinstance(inner, list) else [inner]:
            if each is not None:
                number += 1
                yield number, each


def _document(number: int, source: str, body: Any) -> Document:
    if not isinstance(body, dict):
        raise _odd(number, source, f"it is {quote(str(body))}, and must be an object", "write apiVersion, kind, …")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", WORKLOAD_KIND)):
        if body.get(key) != wanted:
            rule = f"{key} is {quote(str(body.get(key, '')))}, and must be {wanted}"
            raise _odd(number, source, rule, "other kinds are kubectl's to apply")
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise _odd(number, source, "it has no metadata.name", "write one, by which it can be submitted again")
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise _odd(number, source, "its metadata.namespace is no text", "put it in quotes, or leave it out")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _odd(number, source, f"it has a value that JSON does not know: {error}", "put it in quotes") from error
    return Document(number, source, namespace, name, body)


def _odd(number: int, source: str, rule: str, remedy: str) -> RefusedInputError:
    return RefusedInputError(f"cannot submit document {number} of {source}: {rule}; {remedy} ({_EXAMPLE})")


def _where(error: Exception) -> str:
    """YAML's complaint in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or 'this is no YAML'}"
