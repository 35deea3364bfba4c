"""Rows of messages: pods that ask for a count, and limits of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.integration import limits
from tests.integration.feasibility_case import Case, asker, cluster, counting, foreign, holder, lists
from tests.integration.remedies import Inspection, Remedy, Steps, added, anew, ended, gone, limited_to, patched
from tests.objects import device, inventory, literal, node
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.namespace import Namespace
    from tests.objects import Object

NOT_HEALTHY: Final = {**device(0), "memoryTotalMiB": 40960, "health": "unhealthy"}
THERE: Final = "node2"
TAINT: Final = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}


def gpu_of(index: int = 0, memory: int = 40960, model: str = "A100") -> Object:
    """Return a healthy device of this model."""
    return {**device(index), "memoryTotalMiB": memory, "model": model}


def with_devices(name: str, *devices: Object, **more: Any) -> Object:
    """Return a node with these devices."""
    return node(name, annotations=inventory(*devices), **more)


ONE: Final = with_devices("node1", gpu_of())
TWO: Final = with_devices("node1", gpu_of(0), gpu_of(1))


def limited(devices: int, *parts: Object) -> Callable[[Namespace], None]:
    """Return a set-up with a limit of this namespace that the scheduler has read."""

    def prepare(namespace: Namespace) -> None:
        limits.write(namespace.kube, f"{namespace.name}: devices={devices}")

        def read() -> bool:
            namespace.make(objects.pod("probe", None, objects.reading(), annotations={"agentaflow.gpu/count": "999"}))
            message = eventually("probe waits", lambda: namespace.condition("probe").get("message"))
            namespace.delete("probe")
            return str(message).startswith("QuotaExceeded: ")

        eventually("the limits hold", read)
        cluster(*parts)(namespace)

    return prepare


def _stored_elsewhere(namespace: Namespace) -> None:
    namespace.add(ONE)
    namespace.storage("Immediate")
    namespace.claim("data")
    namespace.provision("data", THERE)


def _another_claim(namespace: Namespace) -> None:
    namespace.claim("other")
    namespace.provision("other")


HOLDERS: Final = Inspection()
HOST: Final = {"kubernetes.io/hostname": THERE}

COUNTS: Final = (
    Case(
        "a pod that asks for a count waits for a held device",
        (),
        cluster(ONE, holder()),
        counting(),
        (Remedy(ended()), HOLDERS),
    ),
    Case(
        "a pod that asks for two devices on one node waits for a held one",
        (),
        cluster(TWO, holder()),
        counting(2),
        (Remedy(ended()), Remedy(anew(counting(1)), given="1"), HOLDERS),
        "0,1",
    ),
    Case(
        "a pod that asks for a count waits until a device is utilized less",
        (),
        cluster(with_devices("node1", {**gpu_of(), "utilization": 95})),
        counting(),
        (Remedy(patched(lists({**gpu_of(), "utilization": 10}))), HOLDERS),
        message_of="a pod that asks for a count waits for a held device",
    ),
    Case(
        "a pod that asks for a count waits for a device that is not healthy",
        (),
        cluster(with_devices("node1", NOT_HEALTHY)),
        counting(),
        (Remedy(patched(lists(device(0)))), Inspection(code=1)),
    ),
    Case(
        "no waiting helps a pod that asks for more memory than any device has",
        (),
        cluster(ONE, holder()),
        counting(memory=50000),
        (
            Remedy(Steps(ended(), anew(counting(memory=40000)))),
            Remedy(added(with_devices(THERE, gpu_of(memory=81920))), node=THERE),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for a model that no node has",
        (),
        cluster(ONE),
        counting(type="H100"),
        (
            Remedy(anew(counting(type="A100"))),
            Remedy(added(with_devices(THERE, gpu_of(model="H100"))), node=THERE),
            Inspection(),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for more devices than any node has",
        (),
        cluster(ONE, with_devices(THERE, gpu_of(0, model="V100"), gpu_of(1, model="V100"))),
        counting(2, type="A100"),
        (
            Remedy(anew(counting(1))),
            Remedy(anew(counting(2, type="V100")), node=THERE, given="0,1"),
            Remedy(added(with_devices("node3", gpu_of(0), gpu_of(1))), node="node3", given="0,1"),
            Inspection(),
        ),
    ),
    Case(
        "a pod that asks for a count waits for the label of a node with such devices",
        ("fit-5",),
        cluster(ONE, with_devices(THERE, gpu_of())),
        counting(nodeSelector={"tier": "gold"}),
        (Remedy(anew(counting())),),
        also=(Remedy(text="kubectl label node node1 tier=gold"),),
    ),
    Case(
        "a pod that asks for a count waits for a taint of a node with such devices",
        ("fit-4",),
        cluster(with_devices("node1", gpu_of(), taints=(TAINT,))),
        counting(),
        (Remedy(anew(counting(tolerations=[{"key": "maintenance", "operator": "Exists"}]))),),
        also=(Remedy(text="kubectl taint node node1 maintenance:NoSchedule-"),),
    ),
    Case(
        "a pod that asks for a count waits for room on a node with such devices",
        ("fit-9",),
        cluster(with_devices("node1", gpu_of(0), gpu_of(1), room={"pods": "1"}), foreign()),
        counting(),
        (Remedy(ended("foreign-0")),),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "a pod that asks for a count waits for a node that reaches its volume",
        ("fit-12",),
        _stored_elsewhere,
        counting(claims=("data",)),
        (
            Remedy(Steps(_another_claim, anew(counting(claims=("other",))))),
            Remedy(
                Steps(
                    added(with_devices(THERE, gpu_of(), labels=HOST)),
                    anew(counting(claims=("data",), nodeSelector=HOST)),
                ),
                node=THERE,
            ),
            Inspection(),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for a count and for more CPU than the node has",
        ("fit-8",),
        cluster(with_devices("node1", gpu_of(), room={"cpu": "4"})),
        counting(requests={"cpu": "8"}),
        (Remedy(anew(counting(requests={"cpu": "4"}))),),
        beyond=True,
    ),
)

QUOTAS: Final = (
    Case(
        "no waiting helps a pod that asks for more devices than its namespace may hold",
        ("quota-1",),
        limited(1, node("node1")),
        asker("0=node1:0,1\n", literal("0,1")),
        (Remedy(anew(asker())), Remedy(limited_to("devices=2"), given="0,1")),
        beyond=True,
    ),
    Case(
        "a pod waits until pods of its namespace end, and the message has both numbers",
        ("quota-1",),
        limited(1, node("node1"), holder("0=node1:1\n", literal("1"))),
        asker(),
        (Remedy(ended()), Inspection(), Remedy(limited_to("devices=2"))),
    ),
)

CASES: Final = (*COUNTS, *QUOTAS)
