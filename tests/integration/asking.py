"""What rows of questions are written with: a world, a pod that has to wait in it, and the one event that cures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests import objects
from tests.objects import literal, node, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.bench import Bench
    from tests.objects import Object

LINE: Final = "0=node1:0\n"
OTHER: Final = "0=node1:0\n# another map, so another workload\n7=node7:0\n"


@dataclass(frozen=True, slots=True)
class Question:
    """One row.

    `{ns}` in `tells` is the test's namespace, `given` the devices that the pod gets in the end, `retold` what a second
    sentence may say while the cure is under way.
    """

    name: str
    promises: tuple[str, ...]
    reason: str
    tells: tuple[str, ...]
    world: Callable[[Bench], object]
    asker: Object
    cure: Callable[[Bench], object]
    given: str = "0"
    retold: str = "terminating since"

    def wait_told(self, bench: Bench) -> str:
        """Wait until the pod is told what this row is about; give the whole sentence."""
        parts = [part.format(ns=bench.namespace) for part in self.tells]
        return bench.wait_message(self.who, f"{self.reason}: ", parts=parts)

    @property
    def who(self) -> str:
        """The name of the pod that waits."""
        return str(self.asker["metadata"]["name"])


def asker(text: str | None = LINE, env: list[Object] | None = None, **more: object) -> Object:
    """Make the pod of most rows: a bare pod with line 0, which is GPU 0 of node1."""
    return pod("asker-0", text, literal("0") if env is None else env, **more)


def holder(text: str | None = OTHER, env: list[Object] | None = None, **more: object) -> Object:
    """Make a pod that is there before: another workload with the same GPU."""
    return pod("holder-0", text, literal("0") if env is None else env, **more)


def foreign(**more: object) -> Object:
    """Make another scheduler's pod on node1."""
    return pod("foreign-0", None, [], scheduler="another", nodeName="node1", **more)


def placed_by_hand(body: Object) -> Object:
    """Put a pod of ours on node1 past every scheduler."""
    return {**body, "spec": {**body["spec"], "nodeName": "node1"}}


def world(where: Object, *others: Object) -> Callable[[Bench], None]:
    """Make a node, and pods that are bound before the asker comes."""

    def prepare(bench: Bench) -> None:
        bench.add(where)
        for body in others:
            bench.make(body)
            bench.wait_bound(body["metadata"]["name"], "node1")

    return prepare


def plain(*others: Object) -> Callable[[Bench], None]:
    """Make a world of one node with much room."""
    return world(node("node1"), *others)


def stored(mode: str, *, volume_of: str | None = None) -> Callable[[Bench], None]:
    """Make node1 and the asker's claim `data`; `volume_of`: the node that alone reaches its volume."""

    def prepare(bench: Bench) -> None:
        bench.node("node1")
        bench.storage(mode)
        bench.claim("data")
        if volume_of is not None:
            bench.provision("data", volume_of)

    return prepare


def gone(name: str = "holder-0") -> Callable[[Bench], None]:
    """Cure by deleting a pod."""
    return lambda bench: bench.delete(name)


def patched(body: Object, name: str = "node1") -> Callable[[Bench], None]:
    """Cure by changing a node."""
    return lambda bench: bench.patch_node(name, body)


def reworded(**annotations: str) -> Callable[[Bench], object]:
    """Cure by changing the asker's own annotations; an underscore stands for `agentaflow.gpu/`."""
    changed = {
        key.replace("_", "agentaflow.gpu/", 1) if key[0] == "_" else key: text for key, text in annotations.items()
    }
    return lambda bench: bench.kube.patch(f"{bench.pods}/asker-0", {"metadata": {"annotations": changed}})


def resources(**amounts: str) -> Object:
    """Give a node's capacity and what of it pods may have; `gpus` is what a device plugin advertises."""
    named = {"nvidia.com/gpu" if key == "gpus" else key: amount for key, amount in amounts.items()}
    return {"status": {"capacity": named, "allocatable": named}}


def labels(**given: str | None) -> Object:
    """Give a node's labels."""
    return {"metadata": {"labels": {key.replace("_", "-"): text for key, text in given.items()}}}


def lists(*cards: Object) -> Object:
    """Give what the monitor writes on a node."""
    return {"metadata": {"annotations": objects.inventory(*cards)}}
