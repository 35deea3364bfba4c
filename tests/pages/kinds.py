"""docs/crds.md: each field of our kinds, from the definitions that role crds applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.contracts import roles
from tests.pages.parts import Page, code, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Schema = dict[str, Any]

_PLURALS: Final = ("gpuworkloads", "gpunodes")
_OF_KUBERNETES: Final = ("apiVersion", "kind", "metadata")
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
}
_FIXED: Final = "self == oldSelf"


def pages() -> Iterator[Page]:
    """Yield the page, with a table for each kind."""
    parts = {}
    for plural in _PLURALS:
        definition = roles.read("roles", "crds", "files", f"{plural}.yaml")
        (version,) = definition["spec"]["versions"]
        parts[f"fields of {definition['spec']['names']['kind']}"] = tuple(_table(version["schema"]["openAPIV3Schema"]))
    yield Page(roles.ROOT / "docs/crds.md", parts)


def _table(schema: Schema) -> Iterator[str]:
    head = ("field", "type", "default", "rule", "meaning")
    own = {name: each for name, each in schema["properties"].items() if name not in _OF_KUBERNETES}
    schema = {**schema, "properties": own}
    demands: dict[str, list[str]] = {}
    for path, message in _demands(schema):
        demands.setdefault(path, []).append(message)
    return table(head, _rows(schema, demands))


def _fields(path: str, schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Yield path and schema of each field below a schema, and whether it is required."""
    for name, each in schema.get("properties", {}).items():
        inner = f"{path}{name}"
        yield inner, each, name in schema.get("required", ())
        yield from _fields(f"{inner}.", each)
        yield from _fields(f"{inner}[].", each.get("items", {}))


def _rows(schema: Schema, demands: Mapping[str, list[str]]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield path, type, default, rule and meaning of each field."""
    for path, each, required in _fields("", schema):
        default = "required" if required else code(_text(each["default"])) if "default" in each else ""
        rule = "; ".join((*_rules(each), *demands.get(path, ())))
        yield code(path), _type(each), default, rule, each["description"]


def _demands(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield path and text of each rule in CEL. A field without a default has two that say it is fixed: one counts."""
    for inner, each, _ in (("", schema, True), *_fields("", schema)):
        for rule in each.get("x-kubernetes-validations", ()):
            if rule["rule"] == _FIXED:
                yield inner, "cannot be changed"
            elif "oldSelf" not in rule["rule"]:
                yield (inner + rule.get("fieldPath", "")).removeprefix("."), " ".join(rule["message"].split())


def _type(schema: Schema) -> str:
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}"
    if "additionalProperties" in schema:
        return f"map of {schema['additionalProperties']['type']}"
    kind: str = schema["type"]
    return f"{kind}, {schema['format']}" if "format" in schema else kind


def _rules(schema: Schema) -> Iterator[str]:
    """Yield what the API server demands of a value."""
    if "enum" in schema:
        yield "one of " + ", ".join(code(_text(each)) for each in schema["enum"])
    if schema.get("minLength") or schema.get("minItems"):
        yield "not empty"
    for key, words in _BOUNDS.items():
        if key in schema:
            yield words.format(schema[key])
    if "pattern" in schema:
        yield f"matches {code(schema['pattern'])}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
