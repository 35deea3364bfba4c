"""Which of a node's devices are published, from the node as the API server has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.driver.devices import OwnDevice, PublishedDevices, published
from gpu_scheduler.driver.objects import read_own_node
from tests import objects
from tests.messages import text_of

if TYPE_CHECKING:
    from tests.objects import Object

HAS_NO_UUID = text_of("driver: a GPU without a UUID", gpu=1)
IS_DIVIDED = text_of("driver: a divided GPU", gpu=1)


def node(*devices: Object, **metadata: Any) -> bytes:
    annotations = objects.inventory(*devices)
    return json.dumps({"metadata": {"name": "node1", "uid": "uid-1", "annotations": annotations, **metadata}}).encode()


def device(index: int, **fields: Any) -> Object:
    return {"index": index, "uuid": objects.gpu(index), **fields}


def find(raw: bytes, *cordons: Cordon) -> PublishedDevices:
    _, found = read_own_node(raw)
    assert found.inventory is not None
    return published(found.inventory, dict(found.buses), cordons)


WHOLE = {"model": "A100-40GB", "memoryTotalMiB": 40960}
ROWS: dict[str, tuple[bytes, tuple[OwnDevice, ...], tuple[str, ...]]] = {
    "a device has model, memory and PCI address": (
        node(device(0, **WHOLE, pciBusId="00000000:3B:00.0")),
        (OwnDevice(0, objects.gpu(0), "A100-40GB", 40960, "0000:3b:00.0"),),
        (),
    ),
    "a PCI domain that Kubernetes has no form for is left out": (
        node(device(0, pciBusId="00010000:3B:00.0")),
        (OwnDevice(0, objects.gpu(0)),),
        (),
    ),
    "what is no PCI address is left out": (node(device(0, pciBusId="here")), (OwnDevice(0, objects.gpu(0)),), ()),
    "devices are in order of their index": (
        node(device(1), device(0)),
        (OwnDevice(0, objects.gpu(0)), OwnDevice(1, objects.gpu(1))),
        (),
    ),
    "a device without a UUID is withheld alone": (
        node(device(0), {"index": 1}),
        (OwnDevice(0, objects.gpu(0)),),
        (HAS_NO_UUID,),
    ),
    "a device with MIG devices is withheld alone": (
        node(device(0), device(1, migDevices=[{"uuid": objects.mig(1)}])),
        (OwnDevice(0, objects.gpu(0)),),
        (IS_DIVIDED,),
    ),
    "a node without devices publishes none": (node(), (), ()),
}


@pytest.mark.parametrize(("raw", "devices", "withheld"), ROWS.values(), ids=ROWS)
def test_a_node_publishes_what_a_claim_can_name(
    raw: bytes, devices: tuple[OwnDevice, ...], withheld: tuple[str, ...]
) -> None:
    """Each device that is left out has its sentence."""
    assert find(raw) == PublishedDevices(devices, withheld)


CORDONS: dict[str, tuple[tuple[Cordon, ...], list[str]]] = {
    "no cordon": ((), ["", ""]),
    "a cordon names its device": ((Cordon(objects.gpu(1)),), ["", "device"]),
    "a cordon names an index": ((Cordon("1"),), ["", "device"]),
    "a cordon names the whole node": ((Cordon("*"),), ["node", "node"]),
    "a cordon names a device that is not there": ((Cordon(objects.gpu(7)),), ["", ""]),
}


@pytest.mark.parametrize(("cordons", "marks"), CORDONS.values(), ids=CORDONS)
def test_a_cordoned_device_is_marked(cordons: tuple[Cordon, ...], marks: list[str]) -> None:
    """It stays published: a pod that has it must be able to start again."""
    assert [each.cordon for each in find(node(device(0), device(1)), *cordons).devices] == marks


UNKNOWN = {
    "the monitor has listed nothing": b'{"metadata": {"name": "node1"}}',
    "the list cannot be read": node(metadata=0, annotations={"agentaflow.gpu/devices": "[{]"}),
    "two devices have one UUID": node(device(0), {"index": 1, "uuid": objects.gpu(0)}),
    "the device plugin advertises a number of devices": (
        b'{"metadata": {"name": "node1"}, "status": {"capacity": {"nvidia.com/gpu": "4"}}}'
    ),
}


@pytest.mark.parametrize("raw", UNKNOWN.values(), ids=UNKNOWN)
def test_devices_are_unknown_until_the_monitor_lists_them(raw: bytes) -> None:
    """What was published stays then."""
    assert read_own_node(raw)[1].inventory is None


def test_what_is_no_node_is_an_error() -> None:
    """The reflector keeps the known node."""
    with pytest.raises(msgspec.ValidationError):
        read_own_node(b"[]")


def test_a_device_keeps_its_name_when_its_index_changes() -> None:
    """Its name is made of its UUID."""
    names = [OwnDevice(index, objects.gpu(3)).name for index in (0, 3)]

    assert names == ["gpu-00000003-0000-4000-8000-000000000000"] * 2
    assert PublishedDevices((OwnDevice(0, objects.gpu(3)),)).find(names[0]) == OwnDevice(0, objects.gpu(3))
    assert PublishedDevices(()).find(names[0]) is None
