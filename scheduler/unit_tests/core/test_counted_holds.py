"""Holds of pods whose GPUs a strategy chooses: derived from the pod alone, before and after the bind."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.ledger.hold import Hold, assumed_hold, hold_of
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from unit_tests.core.asking import words
from unit_tests.core.build import FIELD_REF, KEEP, MAP, PCI, bound, container, ledger, own, pod, running

AT = "2026-11-21T01:00:00.000001Z"
BY_FIELD = (container((FIELD_REF, PCI)),)


ONE = words(count="1")
PART = words(count="1", memory="4096", exclusive="false")
PLACED = words(assigned_devices="3", assigned_node="node4", assigned_at=AT)


def on_node4(annotations: dict[str, str], text: str | None = None, **others: Any) -> Pod:
    """Return a pod on node4, by default without a map."""
    return running("train-0", "node4", text, annotations=annotations, **{"containers": BY_FIELD, **others})


HELD: dict[str, tuple[Pod, tuple[str, ...], int, bool]] = {
    "the devices that the strategy assigned": (on_node4({**ONE, **PLACED}), ("3",), 0, False),
    "as much memory of each device as it requests": (
        on_node4({**words(count="1", memory="8192"), **PLACED}),
        ("3",),
        8192,
        False,
    ),
    "a part of each device, where other pods may hold the rest": (on_node4({**PART, **PLACED}), ("3",), 4096, True),
    "a part of each device, requested by a limit": (
        on_node4(
            {**words(scheduling_strategy="best_fit", memory="1", exclusive="false"), **PLACED}, gpu_limits=(("m", 1),)
        ),
        ("3",),
        1,
        True,
    ),
    "no device, as an observer": (on_node4({**PART, **words(observer="true"), **PLACED}), (), 4096, True),
    "no device, without our annotation": (on_node4(PART), (), 0, False),
    "the devices of its literal, which no strategy chose": (on_node4(PART, containers=own("5")), ("5",), 0, False),
    "whole devices, when its request cannot be read": (
        on_node4({**words(count="1", memory="x", exclusive="false"), **PLACED}),
        ("3",),
        0,
        False,
    ),
    "whole devices, with a map": (on_node4({**PART, **PLACED}, MAP), ("3",), 0, False),
    "whole devices, with a map that cannot be read": (on_node4({**PART, **PLACED}, "nonsense"), ("3",), 0, False),
}


@pytest.mark.parametrize(("given", "devices", "memory", "shared"), HELD.values(), ids=HELD)
def test_a_bound_pod_holds_its_assigned_devices(
    given: Pod,
    devices: tuple[str, ...],
    memory: int,
    shared: bool,  # noqa: FBT001
) -> None:
    """The hold has the devices of our Binding, and of each device the memory that the pod requests."""
    holder = hold_of(given, "node4")

    assert (devices, memory, shared) == (holder.devices, holder.memory, holder.shared)


def test_a_pod_without_a_map_has_no_index() -> None:
    """Annotations with an index are not read."""
    holder = hold_of(on_node4({**ONE, **PLACED, **words(index="2", assigned_index="2")}), "node4")

    assert (holder.workload, holder.index, holder.named) == (None, None, ())


TIMES = {
    "as our Binding writes it": (AT, AT),
    "without fractions": ("2026-11-21T01:00:00Z", ""),
    "in another zone": ("2026-11-21T01:00:00.000001+01:00", ""),
    "in other digits": ("\uff12\uff10\uff12\uff16-11-21T01:00:00.000001Z", ""),
    "a word": ("now", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "assigned_at"), TIMES.values(), ids=TIMES)
def test_a_hold_has_the_time_of_its_bind(text: str, assigned_at: str) -> None:
    """A time in another format would sort wrongly: the hold has no time then."""
    assert assigned_at == hold_of(on_node4({**ONE, **PLACED, **words(assigned_at=text)}), "node4").assigned_at


CONFIRMED = {
    "GPUs of its own": pod("train-0", None, annotations=ONE),
    "a part of a GPU": pod("train-0", None, annotations=PART),
    "as an observer": pod("train-0", None, annotations={**PART, **words(observer="true")}),
    "a pod that shares with all pods": pod("train-0", None, annotations={**ONE, **words(sharing="any")}),
    "a kept variable that names no GPU": pod("train-0", None, annotations={**ONE, **KEEP}, containers=own("")),
    "a limit": pod("train-0", None, annotations=words(scheduling_strategy="best_fit"), gpu_limits=(("main", 1),)),
}


@pytest.mark.parametrize("pending", CONFIRMED.values(), ids=CONFIRMED)
def test_a_confirmed_hold_equals_the_assumed_hold(pending: Pod) -> None:
    """Only the time is new, because the Binding sets it. The confirmation requeues no pod."""
    held, place = ledger(), Placement("node4", ("3",), None)
    held.assume(pending, place)
    (assumed,) = held
    cured_by = held.apply(bound(pending, place, AT, phase="Pending"))

    assert list(held) == [replace(assumed, assumed=False, assigned_at=AT)]
    assert (assumed.assigned_at, cured_by) == ("", frozenset())


def test_an_assumed_hold_without_an_index_names_no_devices() -> None:
    """The pod has a map, but the placement of a strategy has no index."""
    assert assumed_hold(pod("train-0"), Placement("node4", ("3",), None)).named == ()


def parts(*names: str) -> list[Pod]:
    """Return pods that each hold a part of GPU 3 of node4."""
    return [running(name, "node4", None, annotations={**PART, **PLACED}, containers=BY_FIELD) for name in names]


def test_two_parts_of_one_gpu_have_no_conflict() -> None:
    """A strategy placed both pods; each has a conflict with a pod that holds the whole GPU."""
    held = ledger(*parts("a-0", "b-0"))
    whole = running("c-0", "node4", None, annotations={**ONE, **PLACED}, containers=BY_FIELD)

    assert held.conflicts() == ()
    assert sum(holder.memory for holder in held) == 8192
    held.apply(whole)
    assert [(str(each.first.ref), str(each.second.ref)) for each in held.conflicts()] == [
        ("default/a-0", "default/c-0"),
        ("default/b-0", "default/c-0"),
    ]


def test_the_newest_hold_is_the_last_placed_pod() -> None:
    """An assumed hold is newer than a bound hold; of bound holds the one with the latest Binding is the newest."""
    first, second = parts("a-0", "b-0")
    later = replace(first, assignment=replace(first.assignment, at="2026-11-21T01:00:00.000002Z"))
    held = ledger(later, second)
    newest: list[Hold | None] = [held.devices.newest()]
    held.assume(pod("c-0", None, annotations=ONE), Placement("node1", ("0",), None))
    newest.append(held.devices.newest())
    held.forget("uid-of-default/c-0")
    held.forget("uid-of-default/a-0")

    assert [str(each.ref) for each in (*newest, held.devices.newest()) if each] == [
        "default/a-0",
        "default/c-0",
        "default/b-0",
    ]
