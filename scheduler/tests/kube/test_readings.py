"""What a monitor tells of a node's cards beside their names: whatever it says, the cards stay known."""

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
CARD = Device(0, "GPU-0a0a0a0a-0000-4000-8000-00000000000a", (), "NVIDIA A100-SXM4-40GB", 40960)


def told(text: str) -> Node:
    """A node whose monitor wrote this, and whose device plugin hands out one card."""
    metadata = {"name": "node1", "annotations": {"agentaflow.gpu/devices": text}}
    status = {"capacity": {"nvidia.com/gpu": "1"}}
    return read_node(msgspec.json.encode({"metadata": metadata, "status": status}))[1]


def of(**changes: Any) -> Node:
    """Likewise, of one card."""
    return told(msgspec.json.encode([{**A100, **changes}]).decode())


def test_all_that_a_monitor_tells() -> None:
    """What a card is belongs to the inventory, what it does now is a reading."""
    node = of()

    assert node.inventory == Inventory((CARD,))
    assert node.readings == {0: DeviceReading(512, 37, Health.DEGRADED)}
    assert node == of()
    assert node != of(utilization=38)


def test_what_is_not_told_is_not_known() -> None:
    """Every metric is optional; a card that nobody reads has no reading."""
    node = told('[{"index": 3}, {"index": 1, "memoryUsedMiB": 0, "health": "healthy"}]')

    assert node.inventory == Inventory((Device(3), Device(1)))
    assert node.readings == {}


READ = {
    "healthy": ({"health": "healthy"}, DeviceReading(512, 37)),
    "unhealthy": ({"health": "unhealthy"}, DeviceReading(512, 37, Health.UNHEALTHY)),
    "a word for health that nobody knows": ({"health": "tired"}, DeviceReading(512, 37)),
    "a number for health": ({"health": 1}, DeviceReading(512, 37)),
    "no health": ({"health": None}, DeviceReading(512, 37)),
    "memory in use below nothing": ({"memoryUsedMiB": -1}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use beyond belief": ({"memoryUsedMiB": 2**40 + 1}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use as a word": ({"memoryUsedMiB": "512"}, DeviceReading(0, 37, Health.DEGRADED)),
    "memory in use of no value": ({"memoryUsedMiB": None}, DeviceReading(0, 37, Health.DEGRADED)),
    "work below nothing": ({"utilization": -1}, DeviceReading(512, 0, Health.DEGRADED)),
    "work beyond all": ({"utilization": 101}, DeviceReading(512, 0, Health.DEGRADED)),
    "all work": ({"utilization": 100}, DeviceReading(512, 100, Health.DEGRADED)),
    "half a percent": ({"utilization": 0.5}, DeviceReading(512, 0, Health.DEGRADED)),
    "a list of work": ({"utilization": [[37]]}, DeviceReading(512, 0, Health.DEGRADED)),
}


@pytest.mark.parametrize(("changes", "reading"), READ.values(), ids=READ)
def test_a_reading_that_cannot_be_read_costs_itself_alone(changes: dict[str, Any], reading: DeviceReading) -> None:
    """An unhealthy card stays so whatever else is said of it, and the inventory stays."""
    node = of(**changes)

    assert node.inventory == Inventory((CARD,))
    assert node.readings == {0: reading}


KNOWN = {
    "no model": ({"model": None}, "", 40960),
    "a number for a model": ({"model": 100}, "", 40960),
    "the longest model that is kept": ({"model": "a" * 253}, "a" * 253, 40960),
    "a model of a hostile length": ({"model": "a" * 254}, "", 40960),
    "no memory": ({"memoryTotalMiB": None}, CARD.model, None),
    "memory below nothing": ({"memoryTotalMiB": -1}, CARD.model, None),
    "memory beyond belief": ({"memoryTotalMiB": 2**40 + 1}, CARD.model, None),
    "the most memory that is believed": ({"memoryTotalMiB": 2**40}, CARD.model, 2**40),
    "memory as a word": ({"memoryTotalMiB": "40960"}, CARD.model, None),
}


@pytest.mark.parametrize(("changes", "model", "memory"), KNOWN.values(), ids=KNOWN)
def test_what_a_card_is_may_be_unknown(changes: dict[str, Any], model: str, memory: int | None) -> None:
    """Then it has no model, and no memory that anybody could promise."""
    assert of(**changes).inventory == Inventory((Device(0, CARD.uuid, (), model, memory),))


def test_readings_of_a_list_that_cannot_be_believed_are_none() -> None:
    """What is left is the device plugin's number, and of its cards nobody tells."""
    node = told('[{"index": 0, "utilization": 99}, {"index": 0, "utilization": 99}]')

    assert (node.inventory, node.readings) == (counted(1), {})


HOSTILE = {
    "numbers of a hostile length": f'{{"index": 5, "utilization": {"9" * 5000}, "memoryTotalMiB": {"9" * 5000}}}',
    "lists in lists": f'{{"index": 5, "health": {"[" * 300}{"]" * 300}}}',
}


@pytest.mark.parametrize("card", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_cost_themselves_alone(card: str) -> None:
    """However long or deep they are."""
    node = told(f"[{card}]")

    assert (node.inventory, node.readings) == (Inventory((Device(5),)), {})


def test_text_that_is_none_costs_the_list() -> None:
    """Half a character is no JSON."""
    assert told('[{"index": 5, "model": "\\ud800"}]').inventory == counted(1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
METRICS = ("model", "memoryTotalMiB", "memoryUsedMiB", "utilization", "health")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(METRICS, JSON | st.sampled_from([*Health, 5, 40960]))))
def test_no_value_costs_the_card(values: dict[str, Any]) -> None:
    """Whatever stands there, the card is known, and what is read of it is within bounds."""
    node = told(msgspec.json.encode([{"index": 7, **values}]).decode())
    reading = node.readings.get(7, DeviceReading())

    assert node.inventory is not None
    assert [card.index for card in node.inventory.cards] == [7]
    assert (0 <= reading.used <= 2**40, 0 <= reading.utilization <= 100) == (True, True)
    assert reading.health is values.get("health") if values.get("health") in [*Health] else Health.HEALTHY
