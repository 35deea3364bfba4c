"""ResourceSlices and ResourceClaims, as the scheduler reads them."""

from typing import Any

import msgspec
import pytest

from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceId, DeviceSlice, PublishedDevice
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.device_classes import read_device_class
from gpu_scheduler.kube.objects.resource_slices import read_slice

A = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
MIG = "MIG-11111111-0000-0000-0000-000000000000"
NVIDIA = "gpu.nvidia.com"
SPEC = {"driver": NVIDIA, "nodeName": "node1", "pool": {"name": "node1", "generation": 3, "resourceSliceCount": 2}}


def gpu(attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "gpu-0", "attributes": attributes, **more}


def device(uuid: str, **more: Any) -> PublishedDevice:
    return PublishedDevice(DeviceId(NVIDIA, "node1", "gpu-0"), uuid, **more)


DEVICES: dict[str, tuple[dict[str, Any], list[PublishedDevice]]] = {
    "a GPU of NVIDIA's driver": (
        gpu(
            {
                "type": {"string": "gpu"},
                "uuid": {"string": A},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "brand": {"string": "Nvidia"},
                "architecture": {"string": "Hopper"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "resource.kubernetes.io/pciBusID": {"string": "0000:19:00.0"},
            },
            capacity={"memory": {"value": "81559Mi"}},
        ),
        [device(A, bus="0000:19:00.0", model="NVIDIA H100 80GB HBM3", memory=81559)],
    ),
    "its index, where the driver publishes one": (
        gpu({"uuid": {"string": A}, "index": {"int": 2}}),
        [device(A, index=2)],
    ),
    "an attribute with the driver's name before it": (gpu({f"{NVIDIA}/uuid": {"string": A}}), [device(A)]),
    "a UUID in capitals": (gpu({"uuid": {"string": f"GPU-{A[4:].upper()}"}}), [device(A)]),
    "a MIG device": (
        gpu({"uuid": {"string": MIG}, "parentUUID": {"string": A}, "index": {"int": 0}}),
        [device(MIG, index=0, parent=A)],
    ),
    "a device without a UUID": (gpu({"index": {"int": 0}}), []),
    "a UUID that no map can name": (gpu({"uuid": {"string": "vgpu-7"}}), []),
    "attributes of other types": (
        gpu({"uuid": {"string": A}, "index": {"string": "0"}, "productName": {"int": 1}}),
        [device(A)],
    ),
    "a size that is no quantity": (gpu({"uuid": {"string": A}}, capacity={"memory": {"value": "much"}}), [device(A)]),
    "no attributes": ({"name": "gpu-0"}, []),
}


@pytest.mark.parametrize(("given", "found"), DEVICES.values(), ids=DEVICES)
def test_a_device_is_read_by_what_identifies_it(given: dict[str, Any], found: list[PublishedDevice]) -> None:
    """A wrong attribute is left out alone."""
    body = {"metadata": {"name": "s1"}, "spec": {**SPEC, "devices": [given]}}

    expected = DeviceSlice("s1", "node1", NVIDIA, "node1", 3, 2, tuple(found))
    assert read_slice(msgspec.json.encode(body)) == ("s1", expected)


OTHER_SLICES = {
    "another kind of device": {"driver": "nic.example.com"},
    "devices of no single node": {"nodeName": None, "allNodes": True},
    "no devices": {"devices": None},
}


@pytest.mark.parametrize("more", OTHER_SLICES.values(), ids=OTHER_SLICES)
def test_a_slice_of_other_devices_has_none(more: dict[str, Any]) -> None:
    """It is kept without them: its pool may be complete with it."""
    spec = {**SPEC, "devices": [gpu({"uuid": {"string": A}})], **more}

    _, found = read_slice(msgspec.json.encode({"metadata": {"name": "s1"}, "spec": spec}))
    assert found.devices == ()


RESULT = {"request": "gpu", "driver": NVIDIA, "pool": "node1", "device": "gpu-0"}
GPU = DeviceId(NVIDIA, "node1", "gpu-0")
CLAIMS: dict[str, tuple[dict[str, Any], tuple[DeviceId, ...]]] = {
    "no status": ({}, ()),
    "an empty status": ({"status": {}}, ()),
    "no allocation": ({"status": {"reservedFor": []}}, ()),
    "an allocation without devices": ({"status": {"allocation": {"devices": {}}}}, ()),
    "a GPU": ({"status": {"allocation": {"devices": {"results": [RESULT]}}}}, (GPU,)),
    "a GPU that it only observes": (
        {"status": {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}},
        (),
    ),
    "a GPU and a device of another kind": (
        {"status": {"allocation": {"devices": {"results": [{**RESULT, "driver": "nic.example.com"}, RESULT]}}}},
        (GPU,),
    ),
}


@pytest.mark.promise("isolate-5")
@pytest.mark.parametrize(("given", "devices"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_holds_the_gpus_that_it_is_allocated(given: dict[str, Any], devices: tuple[DeviceId, ...]) -> None:
    """Its uid is the key: a claim that is made anew is another claim."""
    body = {"metadata": {"namespace": "team", "name": "training", "uid": "u1"}, "spec": {"devices": {}}, **given}

    unread = "spec.devices.requests has 0 entries, and one is read"
    awaits_others = "allocation" not in given.get("status", {})
    classes = frozenset[str]() if awaits_others else None
    expected = AllocatedClaim(
        "team", "training", "u1", devices, awaits_others=awaits_others, classes=classes, unread=unread
    )
    assert read_allocated_claim(msgspec.json.encode(body)) == ("u1", expected)


def test_of_our_own_claims_the_pods_are_read() -> None:
    """They say for whom a claim is kept. Nobody else allocates it."""
    users = [{"resource": "pods", "name": "train-0", "uid": "p1"}, {"resource": "jobs", "name": "train", "uid": "j1"}]
    meta = {"namespace": "team", "name": "gpu-scheduler-0a", "uid": "u1"}
    body = {"metadata": meta, "status": {"reservedFor": users}}

    assert read_allocated_claim(msgspec.json.encode(body)) == (
        "u1",
        AllocatedClaim("team", "gpu-scheduler-0a", "u1", (), ("p1",)),
    )


@pytest.mark.parametrize("name", ["gpu-scheduler-", "gpu-scheduler-test-0-gpus-abcde", f"gpu-scheduler-{'a' * 33}"])
def test_a_claim_whose_name_only_begins_like_ours_is_of_others(name: str) -> None:
    """kube-controller-manager makes such a claim for a pod of that name from a template."""
    body = {"metadata": {"namespace": "team", "name": name, "uid": "u1"}, "status": {}}

    assert read_allocated_claim(msgspec.json.encode(body))[1].awaits_others


NIC = "nic.example.com"
WANTED: dict[str, tuple[Any, frozenset[str] | None]] = {
    "one request": ([{"name": "nic", "exactly": {"deviceClassName": NIC}}], frozenset({NIC})),
    "requests of two classes": (
        [{"name": name, "exactly": {"deviceClassName": name}} for name in (NIC, NVIDIA)],
        frozenset({NIC, NVIDIA}),
    ),
    "alternatives": (
        [{"name": "any", "firstAvailable": [{"name": name, "deviceClassName": name} for name in (NIC, NVIDIA)]}],
        frozenset({NIC, NVIDIA}),
    ),
    "no requests": (None, frozenset()),
    "a request of another kind": ([{"name": "nic", "exactly": {"deviceClassName": NIC}}, {"name": "new"}], None),
    "a request without a class": ([{"name": "nic", "exactly": {}}], None),
    "a text in place of requests": ("all", None),
    "more than is read": ([{"name": "n" * 40000, "exactly": {"deviceClassName": NIC}}], None),
}


@pytest.mark.promise("isolate-4")
@pytest.mark.parametrize(("requests", "classes"), WANTED.values(), ids=WANTED)
def test_an_unallocated_claim_says_from_which_classes_it_may_get_devices(
    requests: Any, classes: frozenset[str] | None
) -> None:
    """None if that is not read: then it may be any class."""
    meta = {"namespace": "team", "name": "training", "uid": "u1"}
    body = {"metadata": meta, "spec": {"devices": {"requests": requests}}}

    assert read_allocated_claim(msgspec.json.encode(body))[1].classes == classes


@pytest.mark.parametrize("read", [read_slice, read_allocated_claim, read_device_class])
def test_what_is_none_of_these_is_refused(read: Any) -> None:
    """The reflector keeps its last value then."""
    with pytest.raises(msgspec.ValidationError):
        read(b'{"metadata": {"name": "s1"}, "spec": {"driver": 1, "config": 1}, "status": 1}')


def test_a_device_class_has_a_configuration_for_its_driver() -> None:
    """The text of the parameters is passed on as it is. A class without any says nothing."""
    opaque = {"opaque": {"driver": NVIDIA, "parameters": {"sharing": {"strategy": "MPS"}}}}
    _, known = read_device_class(msgspec.json.encode({"metadata": {"name": NVIDIA}, "spec": {"config": [opaque]}}))
    _, silent = read_device_class(msgspec.json.encode({"metadata": {"name": NVIDIA}, "spec": {"selectors": []}}))

    assert known.allocated(["gpus-0"]) == [{"source": "FromClass", "requests": ["gpus-0"], **opaque}]
    assert silent.allocated(["gpus-0"]) == []


EXPRESSIONS: dict[str, tuple[list[str], bool]] = {
    "of another driver": (['device.driver == "nic.example.com"'], False),
    "of another driver, in other quotes": (["device.driver=='dra.net'"], False),
    "of some devices of another driver": (
        ["device.driver == 'gpu.amd.com' &&\n  device.attributes['gpu.amd.com'].type == 'amdgpu'"],
        False,
    ),
    "of another driver, in its second selector": (["has(device.attributes)", 'device.driver == "dra.net"'], False),
    "of our driver": (['device.driver == "gpu.agentaflow.io"'], True),
    "of NVIDIA's driver": ([f'device.driver == "{NVIDIA}" && device.attributes["{NVIDIA}"].type == "gpu"'], True),
    "without selectors": ([], True),
    "of either driver": ([f'device.driver == "dra.net" || device.driver == "{NVIDIA}"'], True),
    "of either driver, behind a condition": ([f'device.driver == "dra.net" && a || device.driver == "{NVIDIA}"'], True),
    "of a driver by a condition": ([f'device.driver == "dra.net" && a ? b : device.driver == "{NVIDIA}"'], True),
    "of all drivers but one": (['device.driver != "dra.net"'], True),
    "of a driver whose name has an escape": (['device.driver == "gpu\\u002envidia.com"'], True),
    "of anything else": (['device.driver.endsWith("example.com")'], True),
}


@pytest.mark.promise("isolate-4")
@pytest.mark.parametrize(("expressions", "gives"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_a_class_may_give_gpus_unless_it_is_of_another_driver(expressions: list[str], *, gives: bool) -> None:
    """What is not read for certain may be any device."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    body = {"metadata": {"name": "any"}, "spec": {"selectors": [*selectors, {"new": {}}]}}

    assert read_device_class(msgspec.json.encode(body))[1].may_give_gpus is gives
