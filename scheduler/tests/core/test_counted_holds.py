"""What a pod holds that leaves the choice of its GPUs to a strategy: derived from the pod alone, before and after."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.ledger.hold import Hold, assumed_hold, hold_of
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from tests.core.build import FIELD_REF, KEEP, MAP, PCI, bound, container, ledger, own, pod, running

PREFIX = "agentaflow.gpu/"
AT = "2026-11-21T01:00:00.000001Z"
BY_FIELD = (container((FIELD_REF, PCI)),)


def words(**given: str) -> dict[str, str]:
    """Annotations of ours, by the last part of their name."""
    return {f"{PREFIX}{key.replace('_', '-')}": text for key, text in given.items()}


ONE = words(count="1")
PART = words(count="1", memory="4096", exclusive="false")
PLACED = words(assigned_devices="3", assigned_node="node4", assigned_at=AT)


def on_node4(annotations: dict[str, str], text: str | None = None, **others: Any) -> Pod:
    """A pod on node4, by default without a map."""
    return running("train-0", "node4", text, annotations=annotations, **{"containers": BY_FIELD, **others})


HELD: dict[str, tuple[Pod, tuple[str, ...], int, bool]] = {
    "the devices that the strategy assigned": (on_node4({**ONE, **PLACED}), ("3",), 0, False),
    "so much of each": (on_node4({**words(count="1", memory="8192"), **PLACED}), ("3",), 8192, False),
    "and the rest is left to others": (on_node4({**PART, **PLACED}), ("3",), 4096, True),
    "by a limit as well": (
        on_node4(
            {**words(scheduling_strategy="best_fit", memory="1", exclusive="false"), **PLACED}, gpu_limits=(("m", 1),)
        ),
        ("3",),
        1,
        True,
    ),
    "nothing, as an observer": (on_node4({**PART, **words(observer="true"), **PLACED}), (), 4096, True),
    "nothing, without our annotation": (on_node4(PART), (), 0, False),
    "its literal, which no strategy chose": (on_node4(PART, containers=own("5")), ("5",), 0, False),
    "all of each, when what it asks for cannot be read": (
        on_node4({**words(count="1", memory="x", exclusive="false"), **PLACED}),
        ("3",),
        0,
        False,
    ),
    "all of each, with a map": (on_node4({**PART, **PLACED}, MAP), ("3",), 0, False),
    "all of each, with a map that cannot be read": (on_node4({**PART, **PLACED}, "nonsense"), ("3",), 0, False),
}


@pytest.mark.parametrize(("given", "devices", "memory", "shared"), HELD.values(), ids=HELD)
def test_what_a_bound_pod_holds(given: Pod, devices: tuple[str, ...], memory: int, shared: bool) -> None:  # noqa: FBT001
    """What our Binding says, and of each of them what the pod asked for."""
    holder = hold_of(given, "node4")

    assert (devices, memory, shared) == (holder.devices, holder.memory, holder.shared)


def test_without_a_map_there_is_no_index_and_no_line() -> None:
    """Whatever its name or an annotation might say of one."""
    holder = hold_of(on_node4({**ONE, **PLACED, **words(index="2", assigned_index="2")}), "node4")

    assert (holder.workload, holder.index, holder.named) == (None, None, ())


MOMENTS = {
    "as our Bindings write it": (AT, AT),
    "without fractions": ("2026-11-21T01:00:00Z", ""),
    "in another zone": ("2026-11-21T01:00:00.000001+01:00", ""),
    "in other digits": ("\uff12\uff10\uff12\uff16-11-21T01:00:00.000001Z", ""),
    "a word": ("now", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "moment"), MOMENTS.values(), ids=MOMENTS)
def test_when_it_was_bound(text: str, moment: str) -> None:
    """A time that is written otherwise would sort wrongly: it counts as none."""
    assert moment == hold_of(on_node4({**ONE, **PLACED, **words(assigned_at=text)}), "node4").assigned_at


CONFIRMED = {
    "GPUs of its own": pod("train-0", None, annotations=ONE),
    "a part of a GPU": pod("train-0", None, annotations=PART),
    "as an observer": pod("train-0", None, annotations={**PART, **words(observer="true")}),
    "sharing with all": pod("train-0", None, annotations={**ONE, **words(sharing="any")}),
    "keeping a variable that names no GPU": pod("train-0", None, annotations={**ONE, **KEEP}, containers=own("")),
    "a limit": pod("train-0", None, annotations=words(scheduling_strategy="best_fit"), gpu_limits=(("main", 1),)),
}


@pytest.mark.parametrize("pending", CONFIRMED.values(), ids=CONFIRMED)
def test_what_was_assumed_is_what_is_confirmed(pending: Pod) -> None:
    """Only the time is new: before the Binding nobody could know it. The confirmation wakes nobody."""
    held, place = ledger(), Placement("node4", ("3",), None)
    held.assume(pending, place)
    (assumed,) = held
    cured_by = held.apply(bound(pending, place, AT, phase="Pending"))

    assert list(held) == [replace(assumed, assumed=False, assigned_at=AT)]
    assert (assumed.assigned_at, cured_by) == ("", frozenset())


def test_a_claim_without_a_line_names_none() -> None:
    """A map beside it would have lines; a strategy's placement has no index."""
    assert assumed_hold(pod("train-0"), Placement("node4", ("3",), None)).named == ()


def parts(*names: str) -> list[Pod]:
    """Pods that each take a part of GPU 3 of node4."""
    return [running(name, "node4", None, annotations={**PART, **PLACED}, containers=BY_FIELD) for name in names]


def test_two_parts_of_one_gpu_are_no_conflict() -> None:
    """A strategy put them there together; beside a pod of its own GPU they would be one."""
    held = ledger(*parts("a-0", "b-0"))
    alone = running("c-0", "node4", None, annotations={**ONE, **PLACED}, containers=BY_FIELD)

    assert held.conflicts() == ()
    assert sum(holder.memory for holder in held) == 8192
    held.apply(alone)
    assert [(str(each.first.ref), str(each.second.ref)) for each in held.conflicts()] == [
        ("default/a-0", "default/c-0"),
        ("default/b-0", "default/c-0"),
    ]


def test_the_newest_of_the_ledger_is_the_last_that_was_placed() -> None:
    """Assumed before bound, and of the bound the last by its Binding."""
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
