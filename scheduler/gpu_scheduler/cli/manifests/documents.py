"""Reads YAML and JSON as the API server would: which objects a text has, and where each stands in it."""

from __future__ import annotations

import json
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE: Final = "example: kubectl create job train --image=busybox --dry-run=client -o yaml"


MOST_CHARACTERS: Final = 2**22
"""Longest document that has aliases, when each of them is written out. The API server takes objects up to 3 MiB."""

_NOWHERE: Final = yaml.MappingNode("", [], yaml.Mark("", 0, 0, 0, None, 0), None)
"""In place of the node of an object that no file has."""


class Document(NamedTuple):
    """One document of a file, or one item of a List, of whatever shape."""

    number: int
    """Its place in the file, from 1. Each item of a List counts."""
    body: Any
    node: yaml.Node
    """The same as YAML nodes, which know where they stand in the file."""


class UnreadableTextError(RefusedInputError):
    """The text is no YAML; `line` is where, from 1, None if unknown."""

    line: int | None = None


@immutable
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
    node: yaml.Node = field(default=_NOWHERE, repr=False, compare=False)

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

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the text of a scalar. JSON escapes some characters as two surrogates, which YAML leaves apart."""
        value = super().construct_scalar(node)
        if isinstance(value, str) and not value.isascii():
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        return value


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_manifests(text: str, source: str, example: str = EXAMPLE) -> list[Manifest]:
    """Read all objects of `text`; empty documents are skipped. RefusedInputError if one is no Kubernetes object."""
    return [manifest_of(document, source, example) for document in parse_documents(text, source, example)]


def parse_documents(text: str, source: str, example: str = EXAMPLE) -> list[Document]:
    """Parse all documents of `text`; empty ones are skipped. UnreadableTextError if it is no YAML."""
    try:
        return list(_flat(_parsed(text)))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        unreadable = UnreadableTextError(f"cannot read {source}: {_where(error)}; correct it ({example})")
        mark = getattr(error, "problem_mark", None)
        unreadable.line = None if mark is None else mark.line + 1
        raise unreadable from error


def _parsed(text: str) -> Iterator[tuple[Any, yaml.Node]]:
    loader = _Loader(text)
    while loader.check_node():
        node = loader.get_node()
        if node is not None:
            _check_aliases(node)
            yield loader.construct_document(node), node


def _check_aliases(document: yaml.Node) -> None:
    """Check that the document is not much longer when its aliases are written out. ConstructorError otherwise."""
    lengths: dict[int, int] = {}
    written = 0

    def length(node: yaml.Node) -> int:
        nonlocal written
        known = lengths.get(id(node))
        if known is not None:
            return known
        # An alias within what it stands for has no end.
        lengths[id(node)] = MOST_CHARACTERS
        children = node.value if isinstance(node, yaml.SequenceNode) else ()
        children = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else children
        own = 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        written += own
        lengths[id(node)] = own + sum(map(length, children))
        return lengths[id(node)]

    whole = length(document)
    if whole > max(written, MOST_CHARACTERS):
        problem = f"its aliases (*name) make it longer than {MOST_CHARACTERS // 2**20} MiB; write fewer of them"
        raise yaml.constructor.ConstructorError(None, None, problem, document.start_mark)


def _flat(parsed: Iterator[tuple[Any, yaml.Node]]) -> Iterator[Document]:
    """Number the documents from 1; each item of a List counts as a document."""
    number = 0
    for body, node in parsed:
        for each, where in _items(body, node):
            if each is not None:
                number += 1
                yield Document(number, each, where)


def _items(body: Any, node: yaml.Node) -> Iterator[tuple[Any, yaml.Node]]:
    if not isinstance(body, dict) or body.get("kind") != "List" or "items" not in body:
        yield body, node
        return
    # Of several keys, which a merge may give, the last one counts.
    *_, items = (value for key, value in node.value if key.value == "items")
    inner = body["items"]
    yield from zip(inner, items.value, strict=True) if isinstance(inner, list) else ((inner, items),)


def manifest_of(document: Document, source: str, example: str = EXAMPLE) -> Manifest:
    """Return the Kubernetes object that a document is. RefusedInputError if it is none."""
    number, body, node = document

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
    return Manifest(number, source, body["apiVersion"], body["kind"], name, namespace, body, node)


def _where(error: Exception) -> str:
    """Return the YAML parser's error in one line, with the line number if it is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or 'this is no YAML'}"
