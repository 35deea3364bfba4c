"""The CRDs and the Structs of the programs agree field for field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from gpu_scheduler import names
from gpu_scheduler.controller.objects import GpuWorkloadObject, WorkloadSpec
from gpu_scheduler.kube.objects.agentaflow import GROUP, VERSION, GpuNodeObject
from tests.contracts import roles
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

KINDS: dict[str, type[msgspec.Struct]] = {
    "gpuworkloads": GpuWorkloadObject,
    "gpunodes": GpuNodeObject,
}
# Keys that only one of the two schemas can contain.
ADDED = ("description", "title", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")


def definition(plural: str) -> Schema:
    """Return the definition that role crds applies."""
    return roles.read("roles", "crds", "files", f"{plural}.yaml")  # type: ignore[no-any-return]


def shipped(plural: str) -> Schema:
    """Return the schema of that definition."""
    (version,) = definition(plural)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


def typed(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema that msgspec derives from the Struct."""
    (schema,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    return resolved(schema, components)


def resolved(schema: Schema, components: Schema) -> Schema:
    """Replace references by their schemas. A field that may be null may be omitted, so its default null is dropped."""
    if "$ref" in schema:
        schema = {**components[schema["$ref"]], **{key: each for key, each in schema.items() if key != "$ref"}}
    if "anyOf" in schema:
        (schema,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
        return resolved(schema, components)
    if "allOf" in schema:
        (inner,) = schema["allOf"]
        schema = {**inner, **{key: each for key, each in schema.items() if key != "allOf"}}
        return resolved(schema, components)
    found = dict(schema)
    if "enum" in schema:
        found |= {"type": "string", "enum": sorted(schema["enum"])}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found[key] = resolved(schema[key], components)
    if "properties" in schema:
        found["properties"] = {name: resolved(each, components) for name, each in schema["properties"].items()}
    return found


def bare(schema: Schema) -> Schema:
    """Remove keys that only one of the two can contain.

    Of foreign objects (podTemplate) keep only that they are objects.
    """
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") == {}:
        return {"type": "object"}
    found = {key: each for key, each in schema.items() if key not in ADDED and each not in ({}, [])}
    for key in ("enum", "required"):
        if key in found:
            found[key] = sorted(found[key])
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = bare(found[key])
    if "properties" in found:
        found["properties"] = {name: bare(each) for name, each in found["properties"].items()}
    return found


def places(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every part of a schema with its path."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from places(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from places(schema[key], f"{path}[]")


@pytest.mark.parametrize("plural", KINDS)
def test_definition_has_the_products_names(plural: str) -> None:
    """As docs and programs say them."""
    found = definition(plural)

    assert found["metadata"]["name"] == f"{plural}.{GROUP}"
    assert found["spec"]["group"] == GROUP
    assert [version["name"] for version in found["spec"]["versions"]] == [VERSION]
    assert found["spec"]["names"]["kind"] in {names.WORKLOAD_KIND, names.NODE_KIND}
    assert found["spec"]["names"]["categories"] == ["gpu"]


@pytest.mark.promise("order-1")
@pytest.mark.parametrize("plural", KINDS)
def test_schema_and_typed_definitions_agree(plural: str) -> None:
    """Names, types, limits, enums and defaults of spec and status are the same in both."""
    theirs, ours = shipped(plural)["properties"], typed(KINDS[plural])["properties"]

    assert bare(theirs["spec"]) == bare(ours["spec"])
    assert bare(theirs["status"]) == bare(ours["status"])


def test_parts_that_may_be_left_out_are_filled_in() -> None:
    """An omitted part whose fields have defaults gets these defaults."""
    spec = shipped("gpuworkloads")["properties"]["spec"]["properties"]
    fields = msgspec.structs.fields(WorkloadSpec)
    made = {field.encode_name for field in fields if field.default_factory is not msgspec.NODEFAULT}

    assert made == {"gpuRequirements", "retryPolicy"}
    assert {name for name, each in spec.items() if each.get("default") == {}} == made


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_says_what_it_is(plural: str) -> None:
    """`kubectl explain` has a sentence for each field."""
    for part in ("spec", "status"):
        for path, each in places(shipped(plural)["properties"][part], part):
            assert path.endswith("[]") or str(each.get("description", "")).endswith("."), path


@pytest.mark.promise("guard-8")
def test_editors_of_a_namespace_may_use_workloads() -> None:
    """A namespace's editors and readers get rights for GPUWorkloads, but only the controller writes statuses."""
    path = ROOT / "roles" / "crds" / "files" / "rights.yaml"
    given = {
        each["metadata"]["name"]: (
            {key.rpartition("-")[2] for key in each["metadata"]["labels"] if "aggregate-to" in key},
            each["rules"],
        )
        for each in yaml.safe_load_all(path.read_text())
    }

    edit, view = given["gpu-scheduler-workloads-edit"], given["gpu-scheduler-workloads-view"]
    assert edit[0] == {"edit", "admin"}
    assert {resource for rule in edit[1] for resource in rule["resources"]} == {"gpuworkloads"}
    written = {verb for rule in edit[1] for verb in rule["verbs"]}
    assert written == {"create", "update", "patch", "delete", "deletecollection"}
    assert view[0] == {"view", "edit", "admin"}
    assert all(set(rule["verbs"]) == {"get", "list", "watch"} for rule in view[1])
