from typing import Any

import msgspec
import pytest

from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm
from gpu_scheduler.kube.objects.storage import read_claim, read_class, read_volume

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def raw(**parts: Any) -> bytes:
    return msgspec.json.encode(parts)


def claim_of(annotations: dict[str, str] | None = None, **spec: Any) -> VolumeClaim:
    key, claim = read_claim(
        raw(metadata={"namespace": "default", "name": "data", "annotations": annotations}, spec=spec)
    )
    assert key == "default/data"
    return claim


def expected(**fields: Any) -> VolumeClaim:
    return VolumeClaim("default", "data", **fields)


CLAIMS = {
    "a claim that asks for nothing": (claim_of(), expected()),
    "a claim of a class": (claim_of(storageClassName="fast"), expected(storage_class="fast")),
    "a claim that wants no class": (claim_of(storageClassName=""), expected()),
    "a class in the annotation that preceded the field": (
        claim_of({"volume.beta.kubernetes.io/storage-class": "old"}, storageClassName="new"),
        expected(storage_class="old"),
    ),
    "a claim that has its volume": (
        claim_of(BOUND, volumeName="pv1", storageClassName="fast"),
        expected(volume="pv1", storage_class="fast"),
    ),
    "a claim whose author only names a volume": (claim_of(volumeName="pv1"), expected(volume="pv1", complete=False)),
    "a claim that lost its volume's name": (claim_of(BOUND, volumeName=""), expected()),
    "a claim that was given a node": (
        claim_of({"volume.kubernetes.io/selected-node": "node1"}, storageClassName="late"),
        expected(storage_class="late", selected_node="node1"),
    ),
    "a claim that was given an empty node": (claim_of({"volume.kubernetes.io/selected-node": ""}), expected()),
}


@pytest.mark.parametrize(("found", "claim"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_keeps_only_what_a_decision_needs(found: VolumeClaim, claim: VolumeClaim) -> None:
    """A change of sizes, modes or conditions does not change it."""
    assert found == claim


def test_a_terminating_claim_is_read() -> None:
    """It may exist as long as a pod uses it."""
    key, claim = read_claim(
        raw(metadata={"namespace": "a", "name": "b", "deletionTimestamp": "2026-11-20T09:00:00Z"}, spec={})
    )

    assert (key, claim) == ("a/b", VolumeClaim("a", "b", deleting=True))


def affine(terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


ON_NODE1 = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}]}]
BY_NAME = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}, {}]

VOLUMES: dict[str, tuple[Any, tuple[NodeSelectorTerm, ...] | None]] = {
    "no spec": (None, None),
    "no affinity": ({"nodeAffinity": None}, None),
    "an affinity that requires nothing": ({"nodeAffinity": {"required": None}}, None),
    "no terms": (affine(None), ()),
    "a host's name": (
        affine(ON_NODE1),
        (NodeSelectorTerm((NodeSelectorRequirement("kubernetes.io/hostname", "In", ("node1",)),)),),
    ),
    "a field, and an empty term": (
        affine(BY_NAME),
        (NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)), NodeSelectorTerm()),
    ),
    "an expression without values": (
        affine([{"matchExpressions": [{"key": "ssd", "operator": "Exists", "values": None}], "matchFields": None}]),
        (NodeSelectorTerm((NodeSelectorRequirement("ssd", "Exists"),)),),
    ),
}


@pytest.mark.parametrize(("spec", "affinity"), VOLUMES.values(), ids=VOLUMES)
def test_a_volume_keeps_only_its_affinity(spec: Any, affinity: tuple[NodeSelectorTerm, ...] | None) -> None:
    """None means every node, and no terms mean no node."""
    assert read_volume(raw(metadata={"name": "pv1"}, spec=spec)) == ("pv1", Volume("pv1", affinity))


CLASSES: dict[str, tuple[dict[str, Any], StorageClass]] = {
    "nothing but a name": ({}, StorageClass("c", waits_for_consumer=False)),
    "nulls": ({"volumeBindingMode": None, "provisioner": None}, StorageClass("c", waits_for_consumer=False)),
    "binding at once": ({"volumeBindingMode": "Immediate"}, StorageClass("c", waits_for_consumer=False)),
    "binding for the first pod": (
        {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "rancher.io/local-path"},
        StorageClass("c", waits_for_consumer=True),
    ),
    "volumes made by hand": (
        {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"},
        StorageClass("c", waits_for_consumer=True, provisions=False),
    ),
}


@pytest.mark.parametrize(("fields", "expected"), CLASSES.values(), ids=CLASSES)
def test_a_storage_class_keeps_only_binding_and_provisioning(fields: dict[str, Any], expected: StorageClass) -> None:
    """Its parameters are for the provisioner."""
    assert read_class(raw(metadata={"name": "c"}, **fields)) == ("c", expected)


HOSTILE = {
    "null for everything": b'{"metadata": {"name": null, "namespace": null, "annotations": null}, "spec": null}',
    "no spec at all": b'{"metadata": {}}',
    "unknown fields": b'{"metadata": {"x": [1]}, "spec": {"y": {"z": null}}, "status": 7}',
    "a name that is no name": '{"metadata": {"name": "💥\\n\\u0000"}, "spec": {}}'.encode(),
}


@pytest.mark.parametrize("given", HOSTILE.values(), ids=HOSTILE)
def test_missing_storage_fields_are_absent(given: bytes) -> None:
    """Nulls, unknown fields and strange names are read without an error."""
    read_claim(given)
    read_volume(given)
    read_class(given)


WRONG = {
    "no object": b"[]",
    "no metadata": b"{}",
    "a list for metadata": b'{"metadata": []}',
    "no JSON": b"{",
    "lists within lists": b'{"metadata": {}, "status": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "a number for an annotation": b'{"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": 1}}}',
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_an_invalid_storage_object_is_an_error(given: bytes) -> None:
    """The reflector expects this one error."""
    for read in (read_claim, read_volume, read_class):
        with pytest.raises(msgspec.DecodeError):
            read(given)
