"""Rows of messages: the line of a map that a pod waits for, and Bindings that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.feasibility_case import LINE, Case, asker, plain
from tests.integration.remedies import Inspection, Remedy, anew, ended, gone
from tests.objects import literal, pod, reading, replica

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
        plain(pod("holder", LINE, literal("0"), annotations=ZERO)),
        asker(),
        (
            Remedy(ended("holder")),
            Remedy(anew(pod("asker-0", LINES, literal("1"), annotations={"agentaflow.gpu/index": "1"})), given="1"),
        ),
        also=(Remedy(gone("holder"), text="deletion"),),
    ),
    Case(
        "a surge pod with a static index waits for the old pod",
        ("index-10",),
        plain(replica("train", "5d5f", "b7b7b", LINE, annotations=ZERO)),
        replica("train", "77cc", "c7c7c", LINE, annotations=ZERO),
        (
            Remedy(ended("train-5d5f-b7b7b")),
            Remedy(
                anew(
                    replica("train", "8d8d", "d8d8d", LINES, annotations={"agentaflow.gpu/index": "1"}),
                    name="train-77cc-c7c7c",
                ),
                given="1",
                pod="train-8d8d-d8d8d",
            ),
            Remedy(gone("train-5d5f-b7b7b")),
        ),
        also=(Remedy(gone("train-5d5f-b7b7b"), text="deletion"),),
    ),
    Case(
        "an index stays held by a pod whose node was deleted, until Kubernetes removes the pod",
        ("hold-3",),
        _on_a_deleted_node,
        asker(MOVED),
        (Remedy(gone("holder"), node="node2"),),
    ),
    Case(
        "the message of a surge pod without a free index names the old pod and the remedies",
        ("index-12", "index-18"),
        plain(OLD),
        SURGE,
        (
            Remedy(gone("train-5d5f-b7b7b")),
            Remedy(gone("train-5d5f-b7b7b")),
            Remedy(gone("train-5d5f-b7b7b")),
            Remedy(
                anew(replica("train", "8d8d", "d8d8d", LINES), name="train-77cc-c7c7c"),
                given="1",
                pod="train-8d8d-d8d8d",
            ),
        ),
    ),
    Case(
        "the message of a surge pod whose map swaps GPUs names the old pod and the remedies",
        ("index-18",),
        plain(replica("train", "5d5f", "b7b7b", LINES)),
        replica("train", "77cc", "c7c7c", LINE),
        (
            Remedy(gone("train-5d5f-b7b7b")),
            Remedy(gone("train-5d5f-b7b7b")),
            Remedy(
                anew(replica("train", "8d8d", "d8d8d", "0=node1:0\n2=node1:2\n"), name="train-77cc-c7c7c"),
                given="2",
                pod="train-8d8d-d8d8d",
            ),
        ),
    ),
    Case(
        "if no index of the map is free, a bare pod's message names the holders",
        ("index-12",),
        plain(pod("holder-0", LINE, literal("0"))),
        BARE,
        (Remedy(ended()), Remedy(gone()), Remedy(anew(pod("asker", LINES, reading()), name="asker"), given="1")),
    ),
    Case(
        "if all indices of the map are claimed, a bare pod waits for the pods that claim them",
        ("index-12",),
        _claimed,
        BARE,
        (
            Remedy(gone("claiming-0")),
            Remedy(gone("claiming-0")),
            Remedy(anew(pod("asker", LINES, reading()), name="asker"), given="0"),
        ),
    ),
)

BINDINGS: Final = (
    Case(
        "a pod waits after its kubelet has rejected the last pods of its workload",
        ("wait-5",),
        _rejected,
        asker(owner=("Job", "train")),
        (Remedy(lambda _: None), Inspection()),
        condition="SchedulerError",
    ),
)

CASES: Final = (*INDICES, *BINDINGS)
