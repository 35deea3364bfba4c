"""Rows of messages: the line of a map that a pod waits for, and Bindings that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.feasibility_case import LINE, Case, asker, cluster, plain
from tests.integration.remedies import Inspection, Remedy, anew, ended, gone
from tests.objects import literal, node, pod, reading, replica

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace

ZERO: Final = {"agentaflow.gpu/index": "0"}
LINES: Final = "0=node1:0\n1=node1:1\n"
SWAPPED: Final = "0=node1:1\n1=node1:0\n"
OLD: Final = replica("train", "5d5f", "b7b7b", LINE)
SURGE: Final = replica("train", "77cc", "c7c7c", LINE)
BARE: Final = pod("asker", LINE, reading())
MOVED: Final = "0=gpu-a:0\n"
REJECTED: Final = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}}


def _on_a_deleted_node(namespace: Namespace) -> None:
    """The machine is replaced: the new node has the alias, and the pod of the old one is still there."""
    namespace.node("node1", alias="gpu-a")
    namespace.make(pod("holder", MOVED, literal("0"), annotations=ZERO))
    namespace.wait_bound("holder", "node1")
    namespace.terminate("holder")
    namespace.kube.delete("/api/v1/nodes/node1")
    namespace.node("node2", alias="gpu-a")


def _claimed(namespace: Namespace) -> None:
    """A pod that the webhook did not review waits, and claims the only index."""
    namespace.node("node1")
    namespace.make(pod("claiming-0", LINE))
    namespace.wait_message("claiming-0", "EnvNotInjected: ")


def _rejected(namespace: Namespace) -> None:
    """The kubelet rejects two pods of the workload, so that the next waits for two seconds."""
    namespace.node("node1")
    for name in ("first-0", "second-0"):
        namespace.make(pod(name, LINE, literal("0"), owner=("Job", "train")))
        namespace.wait_bound(name, "node1")
        namespace.kube.patch(f"{namespace.pods}/{name}/status", REJECTED)


INDICES: Final = (
    Case(
        "a pod waits for an index that another pod holds, and the message names the holder",
        ("index-10",),
        (
            "IndexHeld: index 0 of this workload is held by {ns}/holder; wait until it ends, or write "
            "another index in the pod's template or manifest, and make the pod anew"
        ),
        plain(pod("holder", LINE, literal("0"), annotations=ZERO)),
        asker(),
        (
            Remedy("wait until it ends", ended("holder")),
            Remedy(
                "write another index",
                anew(pod("asker-0", LINES, literal("1"), annotations={"agentaflow.gpu/index": "1"})),
                given="1",
            ),
        ),
        also=(Remedy("deletion", gone("holder")),),
    ),
    Case(
        "a surge pod with a static index waits for the old pod",
        ("index-10",),
        (
            "IndexHeld: index 0 of this workload is held by {ns}/train-5d5f-b7b7b; wait until it ends, or "
            "write another index in the pod's template or manifest, and make the pod anew; a rolling update needs "
            "maxUnavailable of at least 1"
        ),
        plain(replica("train", "5d5f", "b7b7b", LINE, annotations=ZERO)),
        replica("train", "77cc", "c7c7c", LINE, annotations=ZERO),
        (
            Remedy("wait until it ends", ended("train-5d5f-b7b7b")),
            Remedy(
                "write another index",
                anew(
                    replica("train", "8d8d", "d8d8d", LINES, annotations={"agentaflow.gpu/index": "1"}),
                    name="train-77cc-c7c7c",
                ),
                given="1",
                pod="train-8d8d-d8d8d",
            ),
            Remedy("a rolling update needs maxUnavailable of at least 1", gone("train-5d5f-b7b7b")),
        ),
        also=(Remedy("deletion", gone("train-5d5f-b7b7b")),),
    ),
    Case(
        "an index stays held by a pod whose node was deleted, until Kubernetes removes the pod",
        ("hold-3",),
        (
            "IndexHeld: index 0 of this workload is held by {ns}/holder, terminating since {since}, and its node "
            "node1 does not exist any more, so no kubelet confirms its end; wait until Kubernetes deletes that pod, "
            "about a minute after its node"
        ),
        _on_a_deleted_node,
        asker(MOVED),
        (
            Remedy(
                "wait until Kubernetes deletes that pod, about a minute after its node", gone("holder"), node="node2"
            ),
        ),
    ),
    Case(
        "the message of a surge pod without a free index names the old pod and the remedies",
        ("index-12", "index-18"),
        (
            "NoFreeIndex: every index of the map (1 line) is held or claimed, and index 0 is held by "
            "{ns}/train-5d5f-b7b7b; run fewer replicas than the map has lines; in a rolling update the old pod must "
            "go first: maxUnavailable of at least 1, OnDelete or Recreate where lines swap GPUs, or a spare line in "
            "the map"
        ),
        plain(OLD),
        SURGE,
        (
            Remedy("run fewer replicas than the map has lines", gone("train-5d5f-b7b7b")),
            Remedy("maxUnavailable of at least 1", gone("train-5d5f-b7b7b")),
            Remedy("OnDelete or Recreate where lines swap GPUs", gone("train-5d5f-b7b7b")),
            Remedy(
                "a spare line in the map",
                anew(replica("train", "8d8d", "d8d8d", LINES), name="train-77cc-c7c7c"),
                given="1",
                pod="train-8d8d-d8d8d",
            ),
        ),
    ),
    Case(
        "the message of a surge pod whose map swaps GPUs names the old pod and the remedies",
        ("index-18",),
        (
            "GpuHeld: GPU 0 of node1 is held by {ns}/train-5d5f-b7b7b; in a rolling update the old pod must go first: "
            "maxUnavailable of at least 1, OnDelete or Recreate where lines swap GPUs, or a spare line in the map"
        ),
        plain(replica("train", "5d5f", "b7b7b", LINES)),
        replica("train", "77cc", "c7c7c", LINE),
        (
            Remedy("maxUnavailable of at least 1", gone("train-5d5f-b7b7b")),
            Remedy("OnDelete or Recreate where lines swap GPUs", gone("train-5d5f-b7b7b")),
            Remedy(
                "a spare line in the map",
                anew(replica("train", "8d8d", "d8d8d", "0=node1:0\n2=node1:2\n"), name="train-77cc-c7c7c"),
                given="2",
                pod="train-8d8d-d8d8d",
            ),
        ),
    ),
    Case(
        "if no index of the map is free, a bare pod's message names the holders",
        ("index-12",),
        (
            "NoFreeIndex: every index of the map (1 line) is held or claimed, and index 0 is held by {ns}/holder-0; "
            "wait until one ends, run fewer pods with this map, or add a line to the map in the pod's template or "
            "manifest, and make the pod anew"
        ),
        plain(pod("holder-0", LINE, literal("0"))),
        BARE,
        (
            Remedy("wait until one ends", ended()),
            Remedy("run fewer pods with this map", gone()),
            Remedy("add a line to the map", anew(pod("asker", LINES, reading()), name="asker"), given="1"),
        ),
    ),
    Case(
        "if all indices of the map are claimed, a bare pod waits for the pods that claim them",
        ("index-12",),
        (
            "NoFreeIndex: every index of the map (1 line) is held or claimed; wait until the pods that wait for these "
            "indices are gone, run fewer pods with this map, or add a line to the map in the pod's template or "
            "manifest, and make the pod anew"
        ),
        _claimed,
        BARE,
        (
            Remedy("wait until the pods that wait for these indices are gone", gone("claiming-0")),
            Remedy("run fewer pods with this map", gone("claiming-0")),
            Remedy("add a line to the map", anew(pod("asker", LINES, reading()), name="asker"), given="0"),
        ),
    ),
    Case(
        "if no free index is possible, the reason is that of the lowest",
        ("index-13",),
        (
            "NodeNotReady: cannot use node node1: it is not Ready; wait until it is Ready; why it is not: kubectl "
            "describe node node1"
        ),
        cluster(node("node1", ready=False)),
        replica("train", "77cc", "c7c7c", "0=node1:0\n1=node9:1\n"),
        (
            Remedy("wait until it is Ready", lambda namespace: namespace.set_ready("node1", ready=True)),
            Inspection("why it is not: kubectl describe node node1"),
        ),
    ),
)

BINDINGS: Final = (
    Case(
        "a pod waits after its kubelet has rejected the last pods of its workload",
        ("wait-5",),
        (
            "BindFailed: cannot bind to node1 yet: its kubelet rejected the last pod of this workload (OutOfcpu); "
            "trying again by itself, at most 2 s after that; kubectl describe node node1 may tell why"
        ),
        _rejected,
        asker(owner=("Job", "train")),
        (
            Remedy("trying again by itself, at most 2 s after that", lambda _: None),
            Inspection("kubectl describe node node1 may tell why"),
        ),
        condition="SchedulerError",
    ),
)

CASES: Final = (*INDICES, *BINDINGS)
