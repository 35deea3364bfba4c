"""The ResourceSlices of a pool, and how they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.driver.objects import read_slice
from gpu_scheduler.driver.resource_slice import ObservedSlice, slice_name, slice_object, specs_of
from tests import objects
from unit_tests.driver.parts import DRIVER, NODE, name, own

if TYPE_CHECKING:
    from gpu_scheduler.driver.devices import OwnDevice
    from tests.objects import Object

UUID = {"uuid": {"string": objects.gpu(0)}, "index": {"int": 0}}
CORDONED = {"key": "agentaflow.gpu/cordoned", "value": "node", "effect": "NoSchedule"}


def described(attributes: Object | None = None, **more: Any) -> Object:
    """Return the first device as a ResourceSlice has it."""
    return {"name": name(0), "attributes": {**UUID, **(attributes or {})}, **more}


DESCRIBED: dict[str, tuple[OwnDevice, Object]] = {
    "a device of which only index and UUID are known": (own(0), described()),
    "a device with all that is known": (
        own(0, model="A100-40GB", memory=40960, bus="0000:3b:00.0"),
        described(
            {"productName": {"string": "A100-40GB"}, "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}},
            capacity={"memory": {"value": "40Gi"}},
        ),
    ),
    "a cordoned device": (own(0, cordon="node"), described(taints=[CORDONED])),
    "a model is cut at a whole character of at most 64 bytes": (
        own(0, model="é" * 40),
        described({"productName": {"string": "é" * 32}}),
    ),
    "memory that is no whole number of GiB": (
        own(0, memory=81559),
        described(capacity={"memory": {"value": "81559Mi"}}),
    ),
    "memory of a whole TiB": (own(0, memory=2**20), described(capacity={"memory": {"value": "1Ti"}})),
}


@pytest.mark.parametrize(("device", "expected"), DESCRIBED.values(), ids=DESCRIBED)
def test_a_device_is_described_by_what_is_known(device: OwnDevice, expected: Object) -> None:
    """A value that is not known is left out."""
    (spec,) = specs_of(NODE, (device,), 1).values()

    assert spec["devices"] == [expected]


SPLITS: dict[str, tuple[int, dict[str, str], list[int]]] = {
    "no device": (0, {}, []),
    "as many as a ResourceSlice may have": (128, {}, [128]),
    "one more": (129, {}, [128, 1]),
    "a taint allows half as many": (128, {"cordon": "node"}, [64, 64]),
    "one more with taints": (129, {"cordon": "node"}, [64, 64, 1]),
}


@pytest.mark.parametrize(("number", "fields", "sizes"), SPLITS.values(), ids=SPLITS)
def test_a_pool_is_split_at_the_limit(number: int, fields: dict[str, str], sizes: list[int]) -> None:
    """Every ResourceSlice says how many there are."""
    devices = [own(0, **fields), *(own(index) for index in range(1, number))][:number]
    found = specs_of(NODE, devices, 7)

    assert [len(spec["devices"]) for spec in found.values()] == sizes
    assert list(found) == [slice_name(NODE, part) for part in range(len(sizes))]
    pool = {"name": NODE, "generation": 7, "resourceSliceCount": len(sizes)}
    assert all((spec["driver"], spec["nodeName"], spec["pool"]) == (DRIVER, NODE, pool) for spec in found.values())


def test_names_are_valid_and_differ_between_nodes() -> None:
    """An object's name has at most 253 characters, and so may have the name of a node."""
    nodes = ["node1", "node1-gpu.agentaflow.io-0", "a" * 252 + "1", "a" * 252 + "2"]
    found = {slice_name(node, number) for node in nodes for number in range(2)}

    assert len(found) == 2 * len(nodes)
    assert max(map(len, found)) <= 253
    assert slice_name("node1", 0) == "node1-gpu.agentaflow.io-0"


def test_a_resource_slice_is_deleted_with_its_node() -> None:
    """The node owns it."""
    body = slice_object("a", NODE, "uid-1", {"driver": DRIVER})

    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-1", "controller": True}
    assert body["metadata"] == {"name": "a", "ownerReferences": [owner]}


def stored(spec: Object, **metadata: Any) -> bytes:
    given = {"name": "a", "uid": "uid-a", "resourceVersion": "12", **metadata}
    return json.dumps({"metadata": given, "spec": spec}).encode()


def test_an_own_resource_slice_is_read_as_it_was_written() -> None:
    """But for the times that the API server adds to taints."""
    (spec,) = specs_of(NODE, (own(0, cordon="device"), own(1)), 3).values()
    sent = json.loads(json.dumps(spec))
    spec["devices"][0]["taints"][0]["timeAdded"] = "2026-11-21T12:00:00Z"

    assert read_slice(stored(spec)) == ("a", ObservedSlice("a", "uid-a", 12, DRIVER, 3, sent))


def test_what_a_foreign_writer_added_is_read_too() -> None:
    """It makes a difference, so that it is removed."""
    (spec,) = specs_of(NODE, (own(0),), 3).values()
    spec["devices"][0]["allowMultipleAllocations"] = True

    _, found = read_slice(stored(spec, resourceVersion="not a number"))

    assert found.spec == spec
    assert found.version == 0


def test_of_other_drivers_only_the_name_is_kept() -> None:
    """Their devices are none of ours."""
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": NODE, "generation": 1}, "devices": [{"name": "gpu-0"}]}

    assert read_slice(stored(spec))[1] == ObservedSlice("a", "uid-a", 12, "gpu.nvidia.com", 1, None)
