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


HOLDERS: Final = Inspection("what holds and uses them: kubectl gpu-scheduler nodes -o wide")
HOST: Final = {"kubernetes.io/hostname": THERE}

COUNTS: Final = (
    Case(
        "a pod that asks for a count waits for a held device",
        (),
        (
            "NotEnoughGpus: cannot get 1 GPU: 1 node has such GPUs, but none is both free and at most 80 % utilized; "
            "wait until one is; what holds and uses them: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(ONE, holder()),
        counting(),
        (Remedy("wait until one is", ended()), HOLDERS),
    ),
    Case(
        "a pod that asks for two devices on one node waits for a held one",
        (),
        (
            "NotEnoughGpus: cannot get 2 GPUs on one node: 1 node has such GPUs, but no more than 1 on a node is both "
            "free and at most 80 % utilized; wait until more are, or ask for fewer in the pod's template or manifest, "
            "and make the pod anew; what holds and uses them: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(TWO, holder()),
        counting(2),
        (
            Remedy("wait until more are", ended()),
            Remedy("ask for fewer", anew(counting(1)), given="1"),
            HOLDERS,
        ),
        "0,1",
    ),
    Case(
        "a pod that asks for a count waits until a device is utilized less",
        (),
        (
            "NotEnoughGpus: cannot get 1 GPU: 1 node has such GPUs, but none is both free and at most 80 % utilized; "
            "wait until one is; what holds and uses them: kubectl gpu-scheduler nodes -o wide"
        ),
        cluster(with_devices("node1", {**gpu_of(), "utilization": 95})),
        counting(),
        (Remedy("wait until one is", patched(lists({**gpu_of(), "utilization": 10}))), HOLDERS),
    ),
    Case(
        "a pod that asks for a count waits for a device that is not healthy",
        (),
        (
            "GpuUnhealthy: cannot get 1 GPU: 1 node has such GPUs free, but GPU 0 of node1 is unhealthy; repair it "
            "and wait for the monitor; why: kubectl gpu-scheduler health"
        ),
        cluster(with_devices("node1", NOT_HEALTHY)),
        counting(),
        (
            Remedy("repair it and wait for the monitor", patched(lists(device(0)))),
            Inspection("why: kubectl gpu-scheduler health", code=1),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for more memory than any device has",
        (),
        (
            "InsufficientGpuMemory: cannot get 1 GPU with 50000 MiB: 1 node has such GPUs, but with 40960 MiB at "
            "most; ask for less in annotation agentaflow.gpu/memory in the pod's template or manifest, and make the "
            "pod anew, or add nodes with larger GPUs"
        ),
        cluster(ONE, holder()),
        counting(memory=50000),
        (
            Remedy("ask for less in annotation agentaflow.gpu/memory", Steps(ended(), anew(counting(memory=40000)))),
            Remedy("add nodes with larger GPUs", added(with_devices(THERE, gpu_of(memory=81920))), node=THERE),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for a model that no node has",
        (),
        (
            'GpuNotFound: cannot get 1 GPU of type "H100": no node has such a GPU; ask for other GPUs in the pod\'s '
            "template or manifest, and make the pod anew, or add nodes; which there are: kubectl gpu-scheduler nodes"
        ),
        cluster(ONE),
        counting(type="H100"),
        (
            Remedy("ask for other GPUs", anew(counting(type="A100"))),
            Remedy("add nodes", added(with_devices(THERE, gpu_of(model="H100"))), node=THERE),
            Inspection("which there are: kubectl gpu-scheduler nodes"),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for more devices than any node has",
        (),
        (
            'GpuNotFound: cannot get 2 GPUs of type "A100" on one node: no node has more than 1 such GPU; ask for '
            "fewer or other GPUs in the pod's template or manifest, and make the pod anew, or add nodes; which there "
            "are: kubectl gpu-scheduler nodes"
        ),
        cluster(ONE, with_devices(THERE, gpu_of(0, model="V100"), gpu_of(1, model="V100"))),
        counting(2, type="A100"),
        (
            Remedy("ask for fewer", anew(counting(1))),
            Remedy("other GPUs", anew(counting(2, type="V100")), node=THERE, given="0,1"),
            Remedy("add nodes", added(with_devices("node3", gpu_of(0), gpu_of(1))), node="node3", given="0,1"),
            Inspection("which there are: kubectl gpu-scheduler nodes"),
        ),
    ),
    Case(
        "a pod that asks for a count waits for the label of a node with such devices",
        ("fit-5",),
        (
            "NodeAffinityMismatch: cannot get 1 GPU: cannot use node node1: the pod's nodeSelector asks for "
            '"tier=gold", which it does not have (and so on 1 more node with such GPUs); correct nodeSelector in '
            "the pod's template or manifest, and make the pod anew"
        ),
        cluster(ONE, with_devices(THERE, gpu_of())),
        counting(nodeSelector={"tier": "gold"}),
        (Remedy("correct nodeSelector", anew(counting())),),
        also=(Remedy("kubectl label node node1 tier=gold"),),
    ),
    Case(
        "a pod that asks for a count waits for a taint of a node with such devices",
        ("fit-4",),
        (
            "TaintNotTolerated: cannot get 1 GPU: cannot use node node1: the pod does not tolerate its taint "
            '"maintenance=today:NoSchedule"; add a toleration in the pod\'s template or manifest, and make the pod '
            "anew"
        ),
        cluster(with_devices("node1", gpu_of(), taints=(TAINT,))),
        counting(),
        (Remedy("add a toleration", anew(counting(tolerations=[{"key": "maintenance", "operator": "Exists"}]))),),
        also=(Remedy("kubectl taint node node1 maintenance:NoSchedule-"),),
    ),
    Case(
        "a pod that asks for a count waits for room on a node with such devices",
        ("fit-9",),
        (
            "InsufficientResources: cannot get 1 GPU: cannot fit on node node1: asks for room for 1 pod, 1 of 1 are "
            "used, 0 are free; wait until pods of that node end"
        ),
        cluster(with_devices("node1", gpu_of(0), gpu_of(1), room={"pods": "1"}), foreign()),
        counting(),
        (Remedy("wait until pods of that node end", ended("foreign-0")),),
        also=(Remedy("deletion", gone("foreign-0")),),
    ),
    Case(
        "a pod that asks for a count waits for a node that reaches its volume",
        ("fit-12",),
        (
            "NodeAffinityMismatch: cannot reach the pod's volumes from a node that fits: volume {ns}-data of claim "
            "{ns}/data cannot be reached from node node1; name another claim or another node in the pod's template or "
            "manifest, and make the pod anew; which nodes it allows: kubectl describe pv {ns}-data"
        ),
        _stored_elsewhere,
        counting(claims=("data",)),
        (
            Remedy("name another claim", Steps(_another_claim, anew(counting(claims=("other",))))),
            Remedy(
                "another node",
                Steps(
                    added(with_devices(THERE, gpu_of(), labels=HOST)),
                    anew(counting(claims=("data",), nodeSelector=HOST)),
                ),
                node=THERE,
            ),
            Inspection("which nodes it allows: kubectl describe pv {ns}-data"),
        ),
    ),
    Case(
        "no waiting helps a pod that asks for a count and for more CPU than the node has",
        ("fit-8",),
        (
            "InsufficientResources: cannot get 1 GPU: cannot fit on node node1: asks for 8 cpu, and the node has 4 in "
            "all; no waiting helps: lower the request in the pod's template or manifest, and make the pod anew"
        ),
        cluster(with_devices("node1", gpu_of(), room={"cpu": "4"})),
        counting(requests={"cpu": "8"}),
        (Remedy("lower the request", anew(counting(requests={"cpu": "4"}))),),
        beyond=True,
    ),
)

QUOTAS: Final = (
    Case(
        "no waiting helps a pod that asks for more devices than its namespace may hold",
        ("quota-1",),
        (
            "QuotaExceeded: cannot give 2 GPUs to one pod: namespace {ns} may hold 1; ask for fewer in the pod's "
            "template or manifest, and make the pod anew, or ask an operator to correct ConfigMap "
            "gpu-scheduler-limits (example: {ns}: devices=2)"
        ),
        limited(1, node("node1")),
        asker("0=node1:0,1\n", literal("0,1")),
        (
            Remedy("ask for fewer", anew(asker())),
            Remedy(
                "ask an operator to correct ConfigMap gpu-scheduler-limits (example: {ns}: devices=2)",
                limited_to("devices=2"),
                given="0,1",
            ),
        ),
        beyond=True,
    ),
    Case(
        "a pod waits until pods of its namespace end, and the message has both numbers",
        ("quota-1",),
        (
            "QuotaExceeded: cannot give 1 more GPU to a pod: namespace {ns} may hold 1, and its pods hold 1; wait "
            "until pods there end (kubectl gpu-scheduler workloads -n {ns}), or ask an operator to correct ConfigMap "
            "gpu-scheduler-limits (example: {ns}: devices=2)"
        ),
        limited(1, node("node1"), holder("0=node1:1\n", literal("1"))),
        asker(),
        (
            Remedy("wait until pods there end", ended()),
            Inspection("(kubectl gpu-scheduler workloads -n {ns})"),
            Remedy(
                "ask an operator to correct ConfigMap gpu-scheduler-limits (example: {ns}: devices=2)",
                limited_to("devices=2"),
            ),
        ),
    ),
    Case(
        "a pod that asks for a count waits for the quota of its namespace",
        ("quota-1",),
        (
            "QuotaExceeded: cannot give 1 more GPU to a pod: namespace {ns} may hold 1, and its pods hold 1; wait "
            "until pods there end (kubectl gpu-scheduler workloads -n {ns}), or ask an operator to correct ConfigMap "
            "gpu-scheduler-limits (example: {ns}: devices=2)"
        ),
        limited(1, TWO, holder("0=node1:1\n", literal("1"))),
        counting(),
        (
            Remedy("wait until pods there end", ended()),
            Inspection("(kubectl gpu-scheduler workloads -n {ns})"),
            Remedy(
                "ask an operator to correct ConfigMap gpu-scheduler-limits (example: {ns}: devices=2)",
                limited_to("devices=2"),
            ),
        ),
    ),
)

CASES: Final = (*COUNTS, *QUOTAS)
