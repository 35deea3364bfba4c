"""A monitor's readings of a node's devices. Whatever the monitor writes, the devices stay known."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.kube.objects.nodes import read_node

A100 = {
    "index": 0,
    "uuid": "GPU-0a0a0a0a-0000-4000-8000-00000000000a",
    "pciBusId": "0000:07:00.0",
    "model": "NVIDIA A100-SXM4-40GB",
    "memoryTotalMiB": 40960,
    "memoryUsedMiB": 512,
    "utilization": 37,
    "temperature": 41,
    "power": 61,
    "health": "degraded",
}
DEVICE = Device(0, "GPU-0a0a0a0a-0000-4000-8000-00000000000a", (), "NVIDIA A100-SXM4-40GB", 40960)


def node_of(text: str) -> Node:
    """Return a node with this annotation of its monitor; its device plugin has one device."""
    metadata = {"name": "node1", "annotations": {"agentaflow.gpu/devices": text}}
    status = {"capacity": {"nvidia.com/gpu": "1"}}
    return read_node(msgspec.json.encode({"metadata": metadata, "status": status}))[1]


def of(**changes: Any) -> Node:
    """Return a node with one device: A100 with these changes."""
    return node_of(msgspec.json.encode([{**A100, **changes}]).decode())


def test_a_monitors_annotation_is_read() -> None:
    """Constant properties of a device belong to the inventory. Its current state is a reading."""
    node = of()

    assert node.inventory == Inventory((DEVICE,))
    assert node.readings == {0: DeviceReading(512, 37, Health.DEGRADED)}
    assert node == of()
    assert node != of(utilization=38)


def test_every_metric_is_optional() -> None:
    """A device without any metric has no reading."""
    node = node_of('[{"index": 3}, {"index": 1, "memoryUsedMiB": 0, "health": "healthy"}]')

    assert node.inventory == Inventory((Device(3), Device(1)))
    assert node.readings == {}


READ = {
    "healthy": ({"health": "healthy"}, DeviceReading(512, 37)),
    "unhealthy": ({"health": "unhealthy"}, DeviceReading(512, 37, Health.UNHEALTHY)),
    "an unknown health": ({"health": "tired"}, DeviceReading(512, 37)),
    "a number for health": ({"health": 1}, DeviceReading(512, 37)),
    "no health": ({"health": None}, DeviceReading(512, 37)),
    "negative memory in use": ({"memoryUsedMiB": -1}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use over the limit": ({"memoryUsedMiB": 2**40 + 1}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use as a string": ({"memoryUsedMiB": "512"}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use null": ({"memoryUsedMiB": None}, DeviceReading(0, 37, Health.DEGRADED)),
    "negative utilization": ({"utilization": -1}, DeviceReading(512, 0, Health.DEGRADED)),
    "utilization over 100": ({"utilization": 101}, DeviceReading(512, 0, Health.DEGRADED)),
    "utilization of 100": ({"utilization": 100}, DeviceReading(512, 100, Health.DEGRADED)),
    "utilization of half a percent": ({"utilization": 0.5}, DeviceReading(512, 0, Health.DEGRADED)),
    "a list as utilization": ({"utilization": [[37]]}, DeviceReading(512, 0, Health.DEGRADED)),
}


@pytest.mark.parametrize(("changes", "reading"), READ.values(), ids=READ)
def test_only_the_invalid_reading_is_ignored(changes: dict[str, Any], reading: DeviceReading) -> None:
    """An unhealthy device stays unhealthy whatever its other values are, and the inventory stays."""
    node = of(**changes)

    assert node.inventory == Inventory((DEVICE,))
    assert node.readings == {0: reading}


KNOWN = {
    "no model": ({"model": None}, "", 40960),
    "a number for a model": ({"model": 100}, "", 40960),
    "the longest model that is kept": ({"model": "a" * 253}, "a" * 253, 40960),
    "a model of a hostile length": ({"model": "a" * 254}, "", 40960),
    "no memory": ({"memoryTotalMiB": None}, DEVICE.model, None),
    "negative memory": ({"memoryTotalMiB": -1}, DEVICE.model, None),
    "memory over the limit": ({"memoryTotalMiB": 2**40 + 1}, DEVICE.model, None),
    "the largest memory that is accepted": ({"memoryTotalMiB": 2**40}, DEVICE.model, 2**40),
    "memory as a string": ({"memoryTotalMiB": "40960"}, DEVICE.model, None),
}


@pytest.mark.parametrize(("changes", "model", "memory"), KNOWN.values(), ids=KNOWN)
def test_model_and_memory_of_a_device_may_be_unknown(changes: dict[str, Any], model: str, memory: int | None) -> None:
    """It then has no model, or no memory that could be assigned."""
    assert of(**changes).inventory == Inventory((Device(0, DEVICE.uuid, (), model, memory),))


def test_an_invalid_list_has_no_readings() -> None:
    """The device plugin's number is left, and its devices have no readings."""
    node = node_of('[{"index": 0, "utilization": 99}, {"index": 0, "utilization": 99}]')

    assert (node.inventory, node.readings) == (counted(1), {})


HOSTILE = {
    "numbers of a hostile length": f'{{"index": 5, "utilization": {"9" * 5000}, "memoryTotalMiB": {"9" * 5000}}}',
    "lists in lists": f'{{"index": 5, "health": {"[" * 300}{"]" * 300}}}',
}


@pytest.mark.parametrize("device", HOSTILE.values(), ids=HOSTILE)
def test_only_the_hostile_values_are_ignored(device: str) -> None:
    """However long or deep they are."""
    node = node_of(f"[{device}]")

    assert (node.inventory, node.readings) == (Inventory((Device(5),)), {})


def test_invalid_unicode_invalidates_the_list() -> None:
    """Half of a surrogate pair is no JSON."""
    assert node_of('[{"index": 5, "model": "\\ud800"}]').inventory == counted(1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
METRICS = ("model", "memoryTotalMiB", "memoryUsedMiB", "utilization", "health")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(METRICS, JSON | st.sampled_from([*Health, 5, 40960]))))
def test_no_value_removes_the_device(values: dict[str, Any]) -> None:
    """Whatever the values are, the device is known and its reading is within bounds."""
    node = node_of(msgspec.json.encode([{"index": 7, **values}]).decode())
    reading = node.readings.get(7, DeviceReading())

    assert node.inventory is not None
    assert [device.index for device in node.inventory.devices] == [7]
    assert (0 <= reading.used <= 2**40, 0 <= reading.utilization <= 100) == (True, True)
    assert reading.health is values.get("health") if values.get("health") in [*Health] else Health.HEALTHY


@pytest.mark.parametrize(("annotations", "monitored"), [({}, False), ({"agentaflow.gpu/last-update": ""}, True)])
def test_a_node_that_a_monitor_wrote_is_known(annotations: dict[str, str], *, monitored: bool) -> None:
    """An operator lists only the devices; a monitor also writes the time of its reading."""
    metadata = {"name": "node1", "annotations": {"agentaflow.gpu/devices": "[]", **annotations}}

    assert read_node(msgspec.json.encode({"metadata": metadata}))[1].monitored is monitored
