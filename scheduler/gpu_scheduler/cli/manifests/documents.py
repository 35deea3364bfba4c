"""Reads YAML and JSON as the API server would: which objects a text has, and where each stands in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE: Final = "example: kubectl create job train --image=busybox --dry-run=client -o yaml"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file."""

    number: int
    """Its place in the file, from 1. Each item of a List counts."""
    source: str
    api_version: str
    kind: str
    name: str
    """Empty if the object has only a generateName."""
    namespace: str | None
    body: dict[str, Any]

    def __str__(self) -> str:
        """Return the object's name in messages."""
        return f"document {self.number} ({self.kind} {self.name or self.generate_name}) of {self.source}"

    @property
    def generate_name(self) -> str:
        """The prefix of a name that the API server generates; empty if there is none."""
        return str(self.body["metadata"].get("generateName") or "")


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


def read_manifests(text: str, source: str, example: str = EXAMPLE) -> list[Manifest]:
    """Read all objects of `text`; empty documents are skipped. RefusedInputError if one is no Kubernetes object."""
    try:
        parsed = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedInputError(f"cannot read {source}: {_where(error)}; correct it ({example})") from error
    return [_manifest(number, source, body, example) for number, body in _flat(parsed)]


def _flat(parsed: list[Any]) -> Iterator[tuple[int, Any]]:
    """Number the documents from 1; each item of a List counts as a document."""
    number = 0
    for body in parsed:
        inner = body["items"] if isinstance(body, dict) and body.get("kind") == "List" and "items" in body else [body]
        for each in inner if isinstance(inner, list) else [inner]:
            if each is not None:
                number += 1
                yield number, each


def _manifest(number: int, source: str, body: Any, example: str) -> Manifest:
    def invalid(rule: str, remedy: str) -> RefusedInputError:
        return RefusedInputError(f"cannot read document {number} of {source}: {rule}; {remedy} ({example})")

    if not isinstance(body, dict):
        raise invalid(f"it is {quote(str(body))}, and must be an object", "write apiVersion, kind, …")
    for key in ("apiVersion", "kind"):
        if not isinstance(body.get(key), str) or not body[key]:
            raise invalid(f"its {key} is {quote(str(body.get(key, '')))}, and must be a text", "write one")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise invalid("it has no metadata", "write one with a name")
    for key in ("name", "generateName", "namespace"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            raise invalid(f"its metadata.{key} is no text", "put it in quotes, or leave it out")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise invalid(f"it has a value that JSON does not know: {error}", "put it in quotes") from error
    name, namespace = metadata.get("name") or "", metadata.get("namespace")
    return Manifest(number, source, body["apiVersion"], body["kind"], name, namespace, body)


def _where(error: Exception) -> str:
    """Return the YAML parser's error in one line, with the line number if it is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or 'this is no YAML'}"
