"""Rows of messages: nodes, their resources, ports and volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.integration.feasibility_case import Case, asker, cluster, foreign, holder, plain, resources
from tests.integration.remedies import Inspection, Remedy, Steps, added, anew, ended, gone, patched
from tests.objects import literal, node
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.namespace import Namespace
    from tests.objects import Object

TAINT: Final = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
LEAVING: Final = {"key": "example.com/leaving", "effect": "NoExecute"}
SPEC: Final = "requiredDuringSchedulingIgnoredDuringExecution"
SMALL: Final = node("node1", room={"cpu": "4", "memory": "8Gi", "pods": "2", "example.com/fpga": "2"})
HERE: Final = "0=node1:0\n"
THERE: Final = "0=node2:0\n"
STORED: Final = asker(claims=("data",))
BOUND: Final = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
ON_NODE2: Final = {"kubernetes.io/hostname": "node2"}
WAITS: Final = "WaitForFirstConsumer"
LATER: Final = (
    "cannot find claim",
    "is being deleted",
    "is not bound",
    "cannot find volume",
    "waits for its provisioner",
)


def elsewhere(**more: Any) -> Steps:
    """Return a remedy that makes the pod anew with a map that names node2."""
    return Steps(added(node("node2")), anew(asker(THERE, **more)))


def another_node(**more: Any) -> Remedy:
    """Return the remedy of most rows: another node in the map."""
    return Remedy(elsewhere(**more), node="node2")


def _tier(operator: str, *values: str) -> Object:
    expression = {"key": "tier", "operator": operator, **({"values": list(values)} if values else {})}
    return {"nodeAffinity": {SPEC: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


IDENTITY: Final = (
    Case(
        "a pod waits for a node that does not exist",
        ("fit-1",),
        cluster(node("node2")),
        asker(),
        (Remedy(values=(("NODE", "node2"),), node="node2"), Remedy(anew(asker(THERE)), node="node2")),
        also=(Remedy(added(node("node1")), text="the node is added"),),
    ),
    Case(
        "a pod waits for an alias of two nodes",
        ("map-11",),
        cluster(node("node1", labels={"gpu-node-name": "gpu-a"}), node("node2", labels={"gpu-node-name": "gpu-a"})),
        asker("0=gpu-a:0\n"),
        (Remedy(),),
    ),
    Case(
        "a pod waits for a node that is not ready",
        ("fit-2",),
        cluster(node("node1", ready=False)),
        asker(),
        (Remedy(lambda namespace: namespace.set_ready("node1", ready=True)), Inspection()),
    ),
    Case(
        "a pod waits for a cordoned node",
        ("fit-3",),
        cluster(node("node1", unschedulable=True)),
        asker(),
        (Remedy(patched({"spec": {"unschedulable": None}})), another_node()),
        also=(Remedy(text="kubectl uncordon node1"),),
    ),
    Case(
        "the message names a taint that is not tolerated",
        ("fit-4",),
        cluster(node("node1", taints=(TAINT,))),
        asker(tolerations=[{"key": "maintenance", "operator": "Equal", "value": "tomorrow"}]),
        (
            Remedy(anew(asker(tolerations=[{"key": "maintenance", "operator": "Equal", "value": "today"}]))),
            another_node(),
        ),
        also=(Remedy(text="kubectl taint node node1 maintenance:NoSchedule-"),),
    ),
    Case(
        "a NoExecute taint prevents new pods too",
        ("fit-4",),
        cluster(node("node1", taints=(LEAVING,))),
        asker(tolerations=[{"key": "example.com/leaving", "operator": "Exists", "effect": "NoSchedule"}]),
        (Remedy(anew(asker(tolerations=[{"key": "example.com/leaving", "operator": "Exists"}]))), another_node()),
        also=(Remedy(text="kubectl taint node node1 example.com/leaving:NoExecute-"),),
    ),
    Case(
        "a pod with a node selector waits for the label",
        ("fit-5",),
        plain(),
        asker(nodeSelector={"tier": "gold"}),
        (Remedy(anew(asker())), another_node()),
        also=(Remedy(text="kubectl label node node1 tier=gold"),),
    ),
    Case(
        "a pod with a node selector waits for another value of the label",
        ("fit-5",),
        cluster(node("node1", labels={"tier": "bronze"})),
        asker(nodeSelector={"tier": "gold"}),
        (Remedy(anew(asker(nodeSelector={"tier": "bronze"}))), another_node()),
        also=(Remedy(text="kubectl label node node1 tier=gold --overwrite"),),
    ),
    Case(
        "a pod with required node affinity waits for the label",
        ("fit-6",),
        plain(),
        asker(affinity=_tier("In", "gold", "silver")),
        (Remedy(anew(asker())), another_node()),
        also=(Remedy(text="kubectl label node node1 tier=gold"),),
    ),
    Case(
        "required node affinity compares numbers",
        ("fit-6",),
        cluster(node("node1", labels={"tier": "3"})),
        asker(affinity=_tier("Gt", "3")),
        (Remedy(anew(asker(affinity=_tier("Gt", "2")))), another_node()),
        also=(Remedy(values=(("VALUE", "4"),), text="kubectl label node node1 tier=VALUE --overwrite"),),
    ),
    Case(
        "required node affinity may require that a label is absent",
        ("fit-6",),
        cluster(node("node1", labels={"tier": "bronze"})),
        asker(affinity=_tier("DoesNotExist")),
        (Remedy(anew(asker())), another_node()),
        also=(Remedy(text="kubectl label node node1 tier-"),),
    ),
)

ROOM: Final = (
    Case(
        "the message about too little CPU has the requested, used and free amounts",
        ("fit-8", "fit-10"),
        cluster(SMALL, foreign(requests={"cpu": "3500m"})),
        asker(requests={"cpu": "1"}),
        (Remedy(ended("foreign-0")), Remedy(anew(asker(requests={"cpu": "500m"}))), another_node()),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "the message about too little memory has the requested, used and free amounts",
        ("fit-8",),
        cluster(SMALL, holder("0=node1:1\n", literal("1"), requests={"memory": "6Gi"})),
        asker(requests={"memory": "4Gi"}),
        (Remedy(ended()), Remedy(anew(asker(requests={"memory": "2Gi"}))), another_node(requests={"memory": "4Gi"})),
        also=(Remedy(gone(), text="deletion"),),
    ),
    Case(
        "no waiting helps a pod that asks for more memory than its node has",
        ("fit-8",),
        cluster(SMALL),
        asker(requests={"memory": "10Gi"}),
        (Remedy(anew(asker(requests={"memory": "8Gi"}))), another_node(requests={"memory": "10Gi"})),
        also=(Remedy(patched(resources(memory="12Gi")), text="the node gets more memory"),),
        beyond=True,
    ),
    Case(
        "the pods of all schedulers count towards the pod limit of a node",
        ("fit-9", "fit-10"),
        cluster(SMALL, foreign(), holder("0=node1:1\n", literal("1"))),
        asker(),
        (Remedy(ended("foreign-0")), another_node()),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "extended resources are counted",
        ("fit-9", "fit-10"),
        cluster(SMALL, foreign(limits={"example.com/fpga": "1"})),
        asker(limits={"example.com/fpga": "2"}),
        (Remedy(ended("foreign-0")), Remedy(anew(asker(limits={"example.com/fpga": "1"}))), another_node()),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "no waiting helps a pod that asks for an extended resource that its node does not have",
        ("fit-9",),
        cluster(SMALL),
        asker(limits={"example.com/asic": "1"}),
        (Remedy(anew(asker())), another_node()),
        also=(Remedy(patched(resources(**{"example.com/asic": "1"})), text="the node gets the resource"),),
        beyond=True,
    ),
    Case(
        "a finished pod of another scheduler uses no resources",
        ("fit-10",),
        cluster(SMALL, foreign(requests={"cpu": "4"})),
        asker(requests={"cpu": "1"}),
        (
            Remedy(lambda namespace: namespace.finish("foreign-0", "Failed")),
            Remedy(anew(asker())),
            another_node(requests={"cpu": "1"}),
        ),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
    Case(
        "the message about a host port in use names the pod that uses it",
        ("fit-7",),
        plain(foreign(port=8080)),
        asker(port=8080),
        (Remedy(ended("foreign-0")), Remedy(anew(asker(port=8081))), another_node(port=8080)),
        also=(Remedy(gone("foreign-0"), text="deletion"),),
    ),
)


def stored(mode: str, *, claim: bool = True, volume_of: str | None = None) -> Callable[[Namespace], None]:
    """Return a set-up with node1 and the claim `data`. `volume_of` is the only node that can use the claim's volume."""

    def prepare(namespace: Namespace) -> None:
        namespace.node("node1")
        namespace.storage(mode)
        if claim:
            namespace.claim("data")
        if volume_of is not None:
            namespace.provision("data", volume_of)

    return prepare


def _claim(namespace: Namespace) -> None:
    namespace.claim("data")


def _claim_and_volume(namespace: Namespace) -> None:
    namespace.claim("data")
    namespace.provision("data")


def _provisioned(name: str) -> Callable[[Namespace], None]:
    """Return a step that makes a claim, and a volume that all nodes can use."""

    def make(namespace: Namespace) -> None:
        namespace.claim(name)
        namespace.provision(name)

    return make


def _selected(namespace: Namespace) -> None:
    """The claim gets its volume on node2."""
    stored("WaitForFirstConsumer")(namespace)
    selected = {"volume.kubernetes.io/selected-node": "node2"}
    namespace.kube.patch(f"{namespace.claims}/data", {"metadata": {"annotations": selected}})


def _provisioned_there(namespace: Namespace) -> None:
    """Make the volume of the claim when the scheduler has selected node1, as a provisioner does."""
    eventually("node1 is selected", lambda: _selected_node(namespace) == "node1")
    namespace.provision_selected("data")


def _selected_node(namespace: Namespace) -> str:
    claim = namespace.kube.get(f"{namespace.claims}/data")
    assert claim is not None
    return str(claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))


def _deleted(namespace: Namespace) -> None:
    """Delete the claim. It stays because of its finalizer: no controller runs here that removes it."""
    stored("Immediate")(namespace)
    namespace.kube.delete(f"{namespace.claims}/data")


def _make_claim_anew(namespace: Namespace) -> None:
    """Make the claim anew, with another volume."""
    path = f"{namespace.claims}/data"
    namespace.kube.delete(path)
    namespace.kube.patch(path, {"metadata": {"finalizers": None}})
    volume = f"{namespace.name}-another"
    namespace.kube.create("/api/v1/persistentvolumes", objects.volume(volume, namespace.name))
    namespace.kube.create(namespace.claims, objects.claim("data", namespace.name, volume))
    namespace.kube.patch(path, BOUND)


CLAIM_ANEW: Final = Steps(_make_claim_anew, anew=True)


def _claiming(*, complete: bool) -> Callable[[Namespace], None]:
    """Return a set-up with a claim of a volume that does not exist. `complete`: the claim was bound to it."""

    def prepare(namespace: Namespace) -> None:
        namespace.node("node1")
        namespace.storage("Immediate")
        claim = objects.claim("data", namespace.name, f"{namespace.name}-data")
        if complete:
            claim["metadata"] |= BOUND["metadata"]
        # In one write: the watch of claims may deliver a moment later than that of pods.
        namespace.kube.create(namespace.claims, claim)

    return prepare


def _class(provisioner: str = "example.com") -> Callable[[Namespace], None]:
    """Return a step that makes the storage class of the namespace, which waits for the first consumer."""

    def make(namespace: Namespace) -> None:
        body = {"metadata": {"name": namespace.name}, "provisioner": provisioner, "volumeBindingMode": WAITS}
        namespace.kube.create("/apis/storage.k8s.io/v1/storageclasses", body)

    return make


def _without_a_class(namespace: Namespace) -> None:
    namespace.node("node1")
    namespace.claim("data")


STORAGE: Final = (
    Case(
        "a pod waits for a claim that does not exist",
        ("fit-13",),
        stored("Immediate", claim=False),
        STORED,
        (Remedy(_claim_and_volume, attempts=4),),
        transient=("is not bound",),
    ),
    Case(
        "a pod waits for a claim that is not bound",
        ("fit-13",),
        stored("Immediate"),
        STORED,
        (Remedy(lambda namespace: namespace.provision("data")), Inspection()),
    ),
    Case(
        "a pod waits until a deleted claim is made anew",
        ("fit-13",),
        _deleted,
        STORED,
        (Remedy(CLAIM_ANEW),),
        transient=LATER,
    ),
    Case(
        "a pod is not bound to a node that cannot use its volume",
        ("fit-12",),
        stored("Immediate", volume_of="node2"),
        STORED,
        (
            Remedy(Steps(_provisioned("other"), anew(asker(claims=("other",))))),
            Remedy(Steps(added(node("node2", labels=ON_NODE2)), anew(asker(THERE, claims=("data",)))), node="node2"),
            Inspection(),
        ),
        also=(Remedy(patched({"metadata": {"labels": ON_NODE2}}), text="the node gets the label"),),
    ),
    Case(
        "a pod waits for a volume that its claim names and does not have",
        ("fit-13",),
        _claiming(complete=False),
        STORED,
        (Remedy(lambda namespace: namespace.provision("data")), Remedy(CLAIM_ANEW), Inspection()),
        transient=LATER,
    ),
    Case(
        "a pod waits for a volume that its claim had",
        ("fit-13",),
        _claiming(complete=True),
        STORED,
        (Remedy(lambda namespace: namespace.provision("data")), Remedy(CLAIM_ANEW)),
        transient=LATER,
    ),
    Case(
        "a pod waits for the storage class of its claim",
        ("fit-13",),
        _without_a_class,
        STORED,
        (
            Remedy(Steps(_class(), lambda namespace: namespace.provision("data")), attempts=5),
            Remedy(Steps(_class(), CLAIM_ANEW)),
        ),
        transient=LATER,
    ),
    Case(
        "a claim of a class without a provisioner must name its volume",
        ("fit-13",),
        Steps(cluster(node("node1")), _class(provisioner="kubernetes.io/no-provisioner"), _claim),
        STORED,
        (Remedy(CLAIM_ANEW),),
        transient=LATER,
    ),
    Case(
        "a claim that waits for its first consumer gets the node, and the pod waits for its volume",
        ("fit-13",),
        stored("WaitForFirstConsumer"),
        STORED,
        (Remedy(lambda namespace: namespace.provision_selected("data")), Inspection()),
        # The watch of volumes may deliver a moment later than that of claims.
        transient=("cannot find volume",),
    ),
    Case(
        "a claim that gets its volume on another node must be freed first",
        ("fit-13",),
        _selected,
        STORED,
        (Remedy(lambda namespace: namespace.provision("data")), Remedy(then=_provisioned_there)),
        transient=("waits for its provisioner", "cannot find volume"),
    ),
)

CASES: Final = (*IDENTITY, *ROOM, *STORAGE)
