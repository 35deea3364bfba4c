"""Rows of messages: devices of a map's line, their holders and device plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.feasibility_case import (
    LINE,
    OTHER,
    Case,
    asker,
    cluster,
    foreign,
    holder,
    lists,
    placed_by_hand,
    plain,
    resources,
)
from tests.integration.remedies import Inspection, Remedy, Steps, added, anew, ended, gone, patched
from tests.objects import device, gpu, inventory, literal, mig, node, pod, reading

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace
    from tests.objects import Object

DEVICES: Final = node("node1", annotations=inventory(device(0), device(1, mig(1), mig(2))))
READ: Final = {"memoryTotalMiB": 40960}
BROKEN: Final = node("node1", annotations=inventory({**device(0), **READ, "health": "unhealthy"}, device(1)))
PLUGIN: Final = node("node1", room={"nvidia.com/gpu": "2"})
TWO: Final = "0=node1:0,1\n"
ONE: Final = {"nvidia.com/gpu": "1"}
BOTH: Final = {"nvidia.com/gpu": "2"}
ANY: Final = {"agentaflow.gpu/sharing": "any"}
FIVE: Final = tuple(range(5))


def by(devices: str) -> str:
    """Return a map of another workload whose line 0 is these devices of node1."""
    return f"0=node1:{devices}\n7=node7:0\n"


def _terminating(namespace: Namespace) -> None:
    plain(holder())(namespace)
    namespace.terminate("holder-0")


def _on_a_dead_node(namespace: Namespace) -> None:
    _terminating(namespace)
    namespace.set_ready("node1", ready=False)


def _back(namespace: Namespace) -> None:
    namespace.set_ready("node1", ready=True)
    namespace.delete("holder-0")


def _renamed(name: str, body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "name": name}}


def _held(device: str = "0", *, free: str = "9") -> tuple[Remedy, ...]:
    """Return the remedies of a held device. `free` is a device that no pod holds."""
    shared = literal(device)
    return (
        Remedy(ended()),
        Remedy(anew(asker(by(free), literal(free))), given=free),
        Remedy(
            Steps(
                anew(_renamed("holder-0", asker(by(device), shared, annotations=ANY)), name="holder-0"),
                anew(asker(f"0=node1:{device}\n", shared, annotations=ANY)),
            ),
            given=device,
        ),
    )


EXISTENCE: Final = (
    Case(
        "a pod waits for a device that the inventory does not list",
        ("fit-11",),
        cluster(DEVICES),
        asker("0=node1:2\n", literal("2")),
        (Remedy(anew(asker("0=node1:1\n", literal("1"))), given="1"), Inspection()),
        "2",
        also=(Remedy(patched(lists(device(0), device(1), device(2))), text="the inventory lists it"),),
    ),
    Case(
        "a pod waits for a UUID that the inventory does not list",
        ("fit-11", "map-8"),
        cluster(DEVICES),
        asker(by(gpu(5)), literal(gpu(5))),
        (Remedy(anew(asker(by(gpu(1)), literal(gpu(1)))), given=gpu(1)), Inspection()),
        gpu(5),
        also=(Remedy(patched(lists(device(0), device(5))), text="the inventory lists it"),),
    ),
    Case(
        "a pod waits for a device that its monitor reports unhealthy",
        (),
        cluster(BROKEN),
        asker(),
        (
            Remedy(patched(lists(device(0), device(1)))),
            Remedy(anew(asker("0=node1:1\n", literal("1"))), given="1"),
            Inspection(code=1),
        ),
    ),
)

HELD: Final = (
    Case(
        "a pod waits for a device that another workload holds, and the message names the holder",
        ("share-2", "hold-1"),
        plain(holder()),
        asker(),
        _held(),
        also=(Remedy(gone(), text="deletion"),),
    ),
    Case(
        "a terminating pod holds its device, and the message names the time",
        ("hold-2", "hold-3"),
        _terminating,
        asker(),
        (Remedy(gone()), Inspection()),
    ),
    Case(
        "a pod that terminates on a node that is not ready holds its device, and the message names the node",
        ("hold-2", "hold-3"),
        _on_a_dead_node,
        asker(),
        (Remedy(_back), Remedy(Steps(added(node("node2")), anew(asker("0=node2:0\n"))), node="node2")),
    ),
    Case(
        "UUID and number of a GPU are one device",
        ("hold-4", "map-8"),
        cluster(DEVICES, holder(by(gpu(0)), literal(gpu(0)))),
        asker(),
        _held(free=gpu(1)),
    ),
    Case(
        "a MIG device blocks its GPU",
        ("hold-4", "map-8"),
        cluster(DEVICES, holder(by(mig(2)), literal(mig(2)))),
        asker("0=node1:1\n", literal("1")),
        _held("1", free=mig(1)),
        "1",
    ),
    Case(
        "a node without an inventory does not mix UUIDs and numbers",
        ("hold-5",),
        plain(holder(by(gpu(9)), literal(gpu(9)))),
        asker(),
        _held(free=gpu(1)),
    ),
    Case(
        "a pod that was created on a node holds its literal devices",
        ("hold-6",),
        plain(placed_by_hand(holder(None, literal("0,3")))),
        asker("0=node1:3\n", literal("3")),
        _held("3"),
        "3",
    ),
    Case(
        "a pod with keep-env holds its own value and its line",
        ("env-11",),
        plain(holder(OTHER, literal("5"), annotations={"agentaflow.gpu/keep-env": "true"})),
        asker("0=node1:5\n", literal("5")),
        _held("5"),
        "5",
    ),
)

SEVERAL: Final = (
    Case(
        "of five holders three are named, and the others are counted",
        ("text-14",),
        plain(
            *(
                pod(f"holder-{number}", "".join(f"{each}=node1:{each}\n" for each in FIVE), literal(str(number)))
                for number in FIVE
            )
        ),
        asker("0=node1:0,1,2,3,4\n", literal("0,1,2,3,4")),
        (
            Remedy(ended(*(f"holder-{number}" for number in FIVE))),
            Remedy(anew(asker("0=node1:5,6,7\n", literal("5,6,7"))), given="5,6,7"),
            Remedy(
                Steps(
                    *(
                        anew(
                            pod(
                                f"holder-{number}",
                                "".join(f"{each}=node1:{each}\n" for each in FIVE),
                                literal(str(number)),
                                annotations=ANY,
                            ),
                            name=f"holder-{number}",
                        )
                        for number in FIVE
                    ),
                    anew(asker("0=node1:0,1,2,3,4\n", literal("0,1,2,3,4"), annotations=ANY)),
                )
            ),
        ),
        "0,1,2,3,4",
        transient=("GpuHeld: ",),
        also=(Remedy(gone(*(f"holder-{number}" for number in FIVE)), text="deletion"),),
    ),
)

ON_ANOTHER_NODE: Final = Remedy(
    Steps(added(node("node2", room=BOTH)), anew(asker("0=node2:0,1\n", reading(), limits=BOTH))), node="node2"
)

PLUGINS: Final = (
    Case(
        "devices of the device plugin are counted",
        ("limit-2",),
        cluster(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker(TWO, reading(), limits=BOTH),
        (Remedy(ended()), ON_ANOTHER_NODE),
        "0,1",
    ),
    Case(
        "no waiting helps a pod with a higher limit than the device plugin has devices",
        ("limit-2",),
        cluster(node("node1", room=ONE)),
        asker(TWO, reading(), limits=BOTH),
        (Remedy(anew(asker(LINE, reading(), limits=ONE)), given="0"), ON_ANOTHER_NODE),
        "0,1",
        beyond=True,
    ),
    Case(
        "a pod that names a device waits for a pod with one of the device plugin",
        ("limit-4",),
        cluster(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker("0=node1:1\n", literal("1")),
        (
            Remedy(ended()),
            Remedy(anew(asker("0=node1:1\n", reading(), limits=ONE)), given="0"),
            Remedy(Steps(added(node("node2")), anew(asker("0=node2:1\n", literal("1")))), node="node2"),
        ),
        "1",
        also=(Remedy(gone(), text="deletion"),),
    ),
    Case(
        "a pod that names a device waits for another scheduler's pod with one of the device plugin",
        ("limit-4",),
        cluster(PLUGIN, foreign(limits=ONE)),
        asker(),
        (
            Remedy(ended("foreign-0")),
            Remedy(anew(asker(LINE, reading(), limits=ONE))),
            Remedy(Steps(added(node("node2")), anew(asker("0=node2:0\n"))), node="node2"),
        ),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "a pod that asks the device plugin waits for a pod that names a device",
        ("limit-4",),
        cluster(PLUGIN, holder(by("1"), literal("1"))),
        asker(LINE, reading(), limits=ONE),
        (
            Remedy(ended()),
            Remedy(anew(asker())),
            Remedy(
                Steps(added(node("node2", room=ONE)), anew(asker("0=node2:0\n", reading(), limits=ONE))), node="node2"
            ),
        ),
        also=(Remedy(gone(), text="deletion"),),
    ),
    Case(
        "a node without device plugin and inventory has no devices if another node has a device plugin",
        ("limit-2",),
        cluster(node("node1"), node("node2", room={"nvidia.com/gpu": "4"})),
        asker(LINE, reading(), limits=ONE),
        (Remedy(patched(resources(gpus="1"))), Remedy(anew(asker("0=node2:0\n", reading(), limits=ONE)), node="node2")),
        beyond=True,
    ),
)

CASES: Final = (*EXISTENCE, *HELD, *SEVERAL, *PLUGINS)
