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


def _held(device: str = "0", *, free: str = "9", kind: str = "") -> tuple[Remedy, ...]:
    """Return the remedies of a held device. `free` is a device that no pod holds; `kind` is its kind in the message."""
    shared = literal(device)
    return (
        Remedy("wait until it ends", ended()),
        Remedy(f"name another GPU{kind}", anew(asker(by(free), literal(free))), given=free),
        Remedy(
            'to share it, make both pods anew with annotation agentaflow.gpu/sharing: "any"',
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
        (
            "GpuNotFound: cannot find GPU 2 on node node1: its inventory has GPUs 0 to 1; name one that it has in the "
            "pod's template or manifest, and make the pod anew; which there are: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(DEVICES),
        asker("0=node1:2\n", literal("2")),
        (
            Remedy("name one that it has", anew(asker("0=node1:1\n", literal("1"))), given="1"),
            Inspection("which there are: kubectl gpu-scheduler nodes -o wide"),
        ),
        "2",
        also=(Remedy("the inventory lists it", patched(lists(device(0), device(1), device(2)))),),
    ),
    Case(
        "a pod waits for a UUID that the inventory does not list",
        ("fit-11", "map-8"),
        (
            "GpuNotFound: cannot find GPU GPU-00000005-0000-4000-8000-000000000000 on node node1: its inventory has "
            "GPUs 0 to 1; name one that it has in the pod's template or manifest, and make the pod anew; which there "
            "are: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(DEVICES),
        asker(by(gpu(5)), literal(gpu(5))),
        (
            Remedy("name one that it has", anew(asker(by(gpu(1)), literal(gpu(1)))), given=gpu(1)),
            Inspection("which there are: kubectl gpu-scheduler nodes -o wide"),
        ),
        gpu(5),
        also=(Remedy("the inventory lists it", patched(lists(device(0), device(5)))),),
    ),
    Case(
        "a pod waits for a device number that the device plugin does not advertise",
        ("fit-11",),
        (
            "GpuNotFound: cannot find GPU 2 on node node1: its inventory has GPUs 0 to 1; name one that it has in the "
            "pod's template or manifest, and make the pod anew; which there are: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(PLUGIN),
        asker("0=node1:2\n", literal("2")),
        (
            Remedy("name one that it has", anew(asker("0=node1:1\n", literal("1"))), given="1"),
            Inspection("which there are: kubectl gpu-scheduler nodes -o wide"),
        ),
        "2",
        also=(Remedy("the plugin advertises it", patched(resources(gpus="4"))),),
    ),
    Case(
        "a pod waits for a device that its monitor reports unhealthy",
        (),
        (
            "GpuUnhealthy: cannot use GPU 0 of node1: its monitor reports it unhealthy; repair it and wait for the "
            "monitor, or name another GPU in the pod's template or manifest, and make the pod anew; why: kubectl "
            "gpu-scheduler health"
        ),
        cluster(BROKEN),
        asker(),
        (
            Remedy("repair it and wait for the monitor", patched(lists(device(0), device(1)))),
            Remedy("name another GPU", anew(asker("0=node1:1\n", literal("1"))), given="1"),
            Inspection("why: kubectl gpu-scheduler health", code=1),
        ),
    ),
)

HELD: Final = (
    Case(
        "a pod waits for a device that another workload holds, and the message names the holder",
        ("share-2", "hold-1"),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/holder-0; wait until it ends, or name another GPU in "
            "the pod's template or manifest, and make the pod anew; to share it, make both pods anew with annotation "
            'agentaflow.gpu/sharing: "any"'
        ),
        plain(holder()),
        asker(),
        _held(),
        also=(Remedy("deletion", gone()),),
    ),
    Case(
        "a terminating pod holds its device, and the message names the time",
        ("hold-2", "hold-3"),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/holder-0, terminating since {since}; it is free when that pod is "
            "gone; if it hangs, see its finalizers and events: kubectl describe pod -n {ns} holder-0"
        ),
        _terminating,
        asker(),
        (
            Remedy("it is free when that pod is gone", gone()),
            Inspection("if it hangs, see its finalizers and events: kubectl describe pod -n {ns} holder-0"),
        ),
    ),
    Case(
        "a pod that terminates on a node that is not ready holds its device, and the message names the node",
        ("hold-2", "hold-3"),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/holder-0, terminating since {since}, and its node node1 is not "
            "Ready, so no kubelet confirms its end; bring node1 back, so that its kubelet ends that pod, or name "
            "another node in the pod's template or manifest, and make the pod anew"
        ),
        _on_a_dead_node,
        asker(),
        (
            Remedy("bring node1 back, so that its kubelet ends that pod", _back),
            Remedy("name another node", Steps(added(node("node2")), anew(asker("0=node2:0\n"))), node="node2"),
        ),
    ),
    Case(
        "UUID and number of a GPU are one device",
        ("hold-4", "map-8"),
        (
            "GpuHeld: GPU 0 of node1, as GPU-00000000-0000-4000-8000-000000000000, is held by {ns}/holder-0; wait "
            "until it ends, or name another GPU by its UUID in the pod's template or manifest, and make "
            'the pod anew; to share it, make both pods anew with annotation agentaflow.gpu/sharing: "any"'
        ),
        cluster(DEVICES, holder(by(gpu(0)), literal(gpu(0)))),
        asker(),
        _held(free=gpu(1), kind=" by its UUID"),
    ),
    Case(
        "a MIG device blocks its GPU",
        ("hold-4", "map-8"),
        (
            "GpuHeld: GPU 1 of node1, as MIG-00000002-0000-4000-8000-000000000000, is held by {ns}/holder-0; wait "
            "until it ends, or name another GPU by its MIG UUID in the pod's template or manifest, and "
            'make the pod anew; to share it, make both pods anew with annotation agentaflow.gpu/sharing: "any"'
        ),
        cluster(DEVICES, holder(by(mig(2)), literal(mig(2)))),
        asker("0=node1:1\n", literal("1")),
        _held("1", free=mig(1), kind=" by its MIG UUID"),
        "1",
    ),
    Case(
        "a node without an inventory does not mix UUIDs and numbers",
        ("hold-5",),
        (
            "GpuHeld: GPU 0 of node1, as GPU-00000009-0000-4000-8000-000000000000, is held by {ns}/holder-0; wait "
            "until it ends, or name another GPU by its UUID in the pod's template or manifest, and make "
            'the pod anew; to share it, make both pods anew with annotation agentaflow.gpu/sharing: "any"'
        ),
        plain(holder(by(gpu(9)), literal(gpu(9)))),
        asker(),
        _held(free=gpu(1), kind=" by its UUID"),
    ),
    Case(
        "a pod that was created on a node holds its literal devices",
        ("hold-6",),
        (
            "GpuHeld: GPU 3 of node1 is held by {ns}/holder-0; wait until it ends, or name another GPU in "
            "the pod's template or manifest, and make the pod anew; to share it, make both pods anew with annotation "
            'agentaflow.gpu/sharing: "any"'
        ),
        plain(placed_by_hand(holder(None, literal("0,3")))),
        asker("0=node1:3\n", literal("3")),
        _held("3"),
        "3",
    ),
    Case(
        "a pod with keep-env holds its own value and its line",
        ("env-11",),
        (
            "GpuHeld: GPU 5 of node1 is held by {ns}/holder-0; wait until it ends, or name another GPU in "
            "the pod's template or manifest, and make the pod anew; to share it, make both pods anew with annotation "
            'agentaflow.gpu/sharing: "any"'
        ),
        plain(holder(OTHER, literal("5"), annotations={"agentaflow.gpu/keep-env": "true"})),
        asker("0=node1:5\n", literal("5")),
        _held("5"),
        "5",
    ),
    Case(
        "two pods share a device only if both allow it",
        ("share-5",),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/holder-0; wait until it ends, or name another GPU in "
            "the pod's template or manifest, and make the pod anew; to share it, make both pods anew with annotation "
            'agentaflow.gpu/sharing: "any"'
        ),
        plain(holder()),
        asker(annotations=ANY),
        _held(),
    ),
)

SEVERAL: Final = (
    Case(
        "of five holders three are named, and the others are counted",
        ("text-14",),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/holder-0, GPU 1 by {ns}/holder-1, GPU 2 by {ns}/holder-2, and 2 "
            "more pods; wait until they end, or name other GPUs in the pod's template or manifest, and "
            'make the pod anew; to share, make all of these pods anew with annotation agentaflow.gpu/sharing: "any"'
        ),
        plain(
            *(
                pod(f"holder-{number}", "".join(f"{each}=node1:{each}\n" for each in FIVE), literal(str(number)))
                for number in FIVE
            )
        ),
        asker("0=node1:0,1,2,3,4\n", literal("0,1,2,3,4")),
        (
            Remedy("wait until they end", ended(*(f"holder-{number}" for number in FIVE))),
            Remedy("name other GPUs", anew(asker("0=node1:5,6,7\n", literal("5,6,7"))), given="5,6,7"),
            Remedy(
                'to share, make all of these pods anew with annotation agentaflow.gpu/sharing: "any"',
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
                ),
            ),
        ),
        "0,1,2,3,4",
        transient=("GpuHeld: ",),
        also=(Remedy("deletion", gone(*(f"holder-{number}" for number in FIVE))),),
    ),
)

ON_ANOTHER_NODE: Final = Remedy(
    "name another node",
    Steps(added(node("node2", room=BOTH)), anew(asker("0=node2:0,1\n", reading(), limits=BOTH))),
    node="node2",
)

PLUGINS: Final = (
    Case(
        "devices of the device plugin are counted",
        ("limit-2",),
        (
            "NotEnoughGpus: cannot get 2 nvidia.com/gpu on node node1: 1 of 2 are used, 1 are free; wait until pods "
            "there end, or name another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker(TWO, reading(), limits=BOTH),
        (
            Remedy("wait until pods there end", ended()),
            ON_ANOTHER_NODE,
        ),
        "0,1",
    ),
    Case(
        "devices of the device plugin that another scheduler's pod has are counted",
        ("limit-2",),
        (
            "NotEnoughGpus: cannot get 2 nvidia.com/gpu on node node1: 1 of 2 are used, 1 are free; wait until pods "
            "there end, or name another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(PLUGIN, foreign(limits=ONE)),
        asker(TWO, reading(), limits=BOTH),
        (
            Remedy("wait until pods there end", ended("foreign-0")),
            ON_ANOTHER_NODE,
        ),
        "0,1",
    ),
    Case(
        "no waiting helps a pod with a higher limit than the device plugin has devices",
        ("limit-2",),
        (
            "NotEnoughGpus: cannot get 2 nvidia.com/gpu on node node1: 0 of 1 are used, 1 are free; no waiting helps: "
            "ask for fewer GPUs or name another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(node("node1", room=ONE)),
        asker(TWO, reading(), limits=BOTH),
        (
            Remedy("ask for fewer GPUs", anew(asker(LINE, reading(), limits=ONE)), given="0"),
            ON_ANOTHER_NODE,
        ),
        "0,1",
        beyond=True,
    ),
    Case(
        "a pod that names a device waits for a pod with one of the device plugin",
        ("limit-4",),
        (
            "GpuHeld: GPUs of node1 are held by {ns}/holder-0 of the device plugin's choice, and it is unknown "
            "whether these are the pod's; wait until it ends, or add a limit of nvidia.com/gpu or name "
            "another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(PLUGIN, holder(OTHER, reading(), limits=ONE)),
        asker("0=node1:1\n", literal("1")),
        (
            Remedy("wait until it ends", ended()),
            Remedy("add a limit of nvidia.com/gpu", anew(asker("0=node1:1\n", reading(), limits=ONE)), given="0"),
            Remedy(
                "name another node", Steps(added(node("node2")), anew(asker("0=node2:1\n", literal("1")))), node="node2"
            ),
        ),
        "1",
        also=(Remedy("deletion", gone()),),
    ),
    Case(
        "a pod that names a device waits for another scheduler's pod with one of the device plugin",
        ("limit-4",),
        (
            "GpuHeld: GPUs of node1 are held by {ns}/foreign-0 of the device plugin's choice, and it is unknown "
            "whether these are the pod's; wait until it ends, or add a limit of nvidia.com/gpu or name "
            "another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(PLUGIN, foreign(limits=ONE)),
        asker(),
        (
            Remedy("wait until it ends", ended("foreign-0")),
            Remedy("add a limit of nvidia.com/gpu", anew(asker(LINE, reading(), limits=ONE))),
            Remedy("name another node", Steps(added(node("node2")), anew(asker("0=node2:0\n"))), node="node2"),
        ),
        also=(Remedy("deletion", gone("foreign-0")),),
    ),
    Case(
        "a pod that asks the device plugin waits for a pod that names a device",
        ("limit-4",),
        (
            "GpuHeld: GPUs of node1 are held by {ns}/holder-0 by name, and it is unknown whether these are the "
            "pod's; wait until it ends, or leave out the limit of nvidia.com/gpu or name another node in "
            "the pod's template or manifest, and make the pod anew"
        ),
        cluster(PLUGIN, holder(by("1"), literal("1"))),
        asker(LINE, reading(), limits=ONE),
        (
            Remedy("wait until it ends", ended()),
            Remedy("leave out the limit of nvidia.com/gpu", anew(asker())),
            Remedy(
                "name another node",
                Steps(added(node("node2", room=ONE)), anew(asker("0=node2:0\n", reading(), limits=ONE))),
                node="node2",
            ),
        ),
        also=(Remedy("deletion", gone()),),
    ),
    Case(
        "a node without device plugin and inventory has no devices if another node has a device plugin",
        ("limit-2",),
        (
            "NotEnoughGpus: cannot get 1 nvidia.com/gpu on node node1: 0 of 0 are used, 0 are free; start its device "
            "plugin, or name another node in the pod's template or manifest, and make the pod anew"
        ),
        cluster(node("node1"), node("node2", room={"nvidia.com/gpu": "4"})),
        asker(LINE, reading(), limits=ONE),
        (
            Remedy("start its device plugin", patched(resources(gpus="1"))),
            Remedy("name another node", anew(asker("0=node2:0\n", reading(), limits=ONE)), node="node2"),
        ),
        beyond=True,
    ),
)

CASES: Final = (*EXISTENCE, *HELD, *SEVERAL, *PLUGINS)
