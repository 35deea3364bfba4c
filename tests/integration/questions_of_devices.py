"""Rows: what cards, their holders and device plugins may make a pod wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.asking import (
    LINE,
    OTHER,
    Question,
    asker,
    foreign,
    gone,
    holder,
    lists,
    patched,
    placed_by_hand,
    plain,
    resources,
    world,
)
from tests.objects import card, gpu, inventory, literal, mig, node, reading

if TYPE_CHECKING:
    from tests.integration.bench import Bench

CARDS: Final = node("node1", annotations=inventory(card(0), card(1, mig(1), mig(2))))
PLUGIN: Final = node("node1", room={"nvidia.com/gpu": "2"})
TWO: Final = "0=node1:0,1\n"
ONE: Final = {"nvidia.com/gpu": "1"}
BOTH: Final = {"nvidia.com/gpu": "2"}


def _by(device: str) -> str:
    """Write a map of another workload for this device."""
    return f"0=node1:{device}\n7=node7:0\n"


def _terminating(bench: Bench) -> None:
    plain(holder())(bench)
    bench.terminate("holder-0")


def _elsewhere_advertised(bench: Bench) -> None:
    bench.node("node1")
    bench.node("node2", room={"nvidia.com/gpu": "4"})


EXISTENCE: Final = (
    Question(
        "a card that the monitor does not list may still come",
        ("fit-11",),
        "GpuNotFound",
        ("node1", "2"),
        world(CARDS),
        asker("0=node1:2\n", literal("2")),
        patched(lists(card(0), card(1), card(2))),
        "2",
    ),
    Question(
        "a UUID that the monitor does not list may still come",
        ("fit-11", "map-8"),
        "GpuNotFound",
        ("node1", gpu(5)),
        world(CARDS),
        asker(_by(gpu(5)), literal(gpu(5))),
        patched(lists(card(0), card(5))),
        gpu(5),
    ),
    Question(
        "a number beyond what the device plugin advertises may still come",
        ("fit-11",),
        "GpuNotFound",
        ("node1", "2"),
        world(PLUGIN),
        asker("0=node1:2\n", literal("2")),
        patched(resources(gpus="4")),
        "2",
    ),
)

HELD: Final = (
    Question(
        "a card that another workload holds is waited for, naming the holder",
        ("share-2", "hold-1"),
        "GpuHeld",
        ("GPU 0", "node1", "{ns}/holder-0"),
        plain(holder()),
        asker(),
        gone(),
    ),
    Question(
        "a holder that has finished holds nothing",
        ("hold-1",),
        "GpuHeld",
        ("{ns}/holder-0",),
        plain(holder()),
        asker(),
        lambda bench: bench.finish("holder-0"),
    ),
    Question(
        "a terminating pod still holds, and who waits reads since when and on what node",
        ("hold-2", "hold-3"),
        "GpuHeld",
        ("{ns}/holder-0", "terminating", "since", "node1"),
        _terminating,
        asker(),
        gone(),
    ),
    Question(
        "a card's UUID and its number are one card",
        ("hold-4", "map-8"),
        "GpuHeld",
        ("{ns}/holder-0", "node1"),
        world(CARDS, holder(_by(gpu(0)), literal(gpu(0)))),
        asker(),
        gone(),
    ),
    Question(
        "a slice and its whole card are one card",
        ("hold-4", "map-8"),
        "GpuHeld",
        ("{ns}/holder-0", "node1"),
        world(CARDS, holder(_by(mig(2)), literal(mig(2)))),
        asker("0=node1:1\n", literal("1")),
        gone(),
        "1",
    ),
    Question(
        "without an inventory a node that is used by one kind of ID accepts no other",
        ("hold-5",),
        "GpuHeld",
        ("{ns}/holder-0", "node1"),
        plain(holder(_by(gpu(9)), literal(gpu(9)))),
        asker(),
        gone(),
    ),
    Question(
        "a pod that was placed past every scheduler holds its literal devices",
        ("hold-6",),
        "GpuHeld",
        ("{ns}/holder-0",),
        plain(placed_by_hand(holder(None, literal("0,3")))),
        asker("0=node1:3\n", literal("3")),
        gone(),
        "3",
    ),
    Question(
        "a pod that keeps its own value holds that and its line",
        ("env-11",),
        "GpuHeld",
        ("GPU 5", "{ns}/holder-0"),
        plain(holder(OTHER, literal("5"), annotations={"agentaflow.gpu/keep-env": "true"})),
        asker("0=node1:5\n", literal("5")),
        gone(),
        "5",
    ),
    Question(
        "to share, both pods must say so",
        ("share-5",),
        "GpuHeld",
        ("{ns}/holder-0",),
        plain(holder()),
        asker(annotations={"agentaflow.gpu/sharing": "any"}),
        gone(),
    ),
)

PLUGINS: Final = (
    Question(
        "cards of the device plugin are counted",
        ("limit-2",),
        "NotEnoughGpus",
        ("node1", "2", "1"),
        world(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker(TWO, reading(), limits=BOTH),
        gone(),
        "0,1",
    ),
    Question(
        "cards that another scheduler's pod has from the device plugin are counted",
        ("limit-2",),
        "NotEnoughGpus",
        ("node1", "2", "1"),
        world(PLUGIN, foreign(limits=ONE)),
        asker(TWO, reading(), limits=BOTH),
        gone("foreign-0"),
        "0,1",
    ),
    Question(
        "who names a card waits for who has one from the device plugin",
        ("limit-4",),
        "GpuHeld",
        ("node1", "{ns}/holder-0"),
        world(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker("0=node1:1\n", literal("1")),
        gone(),
        "1",
    ),
    Question(
        "who names a card waits for another scheduler's pod with one from the device plugin",
        ("limit-4",),
        "GpuHeld",
        ("node1", "{ns}/foreign-0"),
        world(PLUGIN, foreign(limits=ONE)),
        asker(),
        gone("foreign-0"),
    ),
    Question(
        "who wants one from the device plugin waits for who names a card",
        ("limit-4",),
        "GpuHeld",
        ("node1", "{ns}/holder-0"),
        world(PLUGIN, holder("0=node1:1\n7=node7:0\n", literal("1"))),
        asker(LINE, reading(), limits=ONE),
        gone(),
    ),
    Question(
        "where others advertise, a node without a device plugin and without an inventory has no cards to give",
        ("limit-2",),
        "NotEnoughGpus",
        ("node1", "1", "0"),
        _elsewhere_advertised,
        asker(LINE, reading(), limits=ONE),
        patched(resources(gpus="1")),
    ),
)

QUESTIONS: Final = (*EXISTENCE, *HELD, *PLUGINS)
