"""Random operations on a real API server, like those of users, controllers, kubelets and monitors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tests import objects
from tests.objects import device, gpu, inventory, literal, mig, pod, reading, replica

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.integration.namespace import Namespace
    from tests.objects import Object

NODES: Final = ("node1", "node2", "node3")
MOST_PODS: Final = 24
MAPS: Final = (
    "0=node1:0\n1=node1:1\n2=node2:0\n3=node3:0,1\n",
    "0=node2:0,1\n1=node2:1\n2=node1:2\n",
    f"0=node3:{gpu(0)}\n1=node1:{gpu(1)}\n2=node3:{mig(1)}\n",
    "0=node1:3\n1=node9:0\n2=node3:\n",
)
COUNTED: Final = "0=node2:0\n1=node2:2\n2=node3:1\n"
INVENTORIES: Final = (
    inventory(device(0), device(1), device(2, mig(1), mig(2)), device(3)),
    inventory(device(0, mig(1)), device(1)),
    {"agentaflow.gpu/devices": None},
    {"agentaflow.gpu/devices": "[broken"},
)
CHARACTERS: Final = "bcdfghjklmnpqrstvwxz"


class RandomOperations:
    """Runs random operations one after the other, and describes each."""

    def __init__(self, namespace: Namespace, random: Random) -> None:
        """Create the nodes."""
        self._namespace = namespace
        self._random = random
        self._numbers = itertools.count()
        self._pods: dict[str, bool] = {}
        self._ended: set[str] = set()
        self.node_changed = True
        for name in NODES:
            namespace.node(name)
        self._makers: tuple[Callable[[str], Object], ...] = (
            self._static,
            self._static,
            self._bare,
            self._job,
            self._deployment,
            self._deployment,
            self._limit,
            self._observer,
            self._keeper,
            self._willing,
            self._preset,
            self._foreign,
        )
        self._others: tuple[Callable[[], str], ...] = (
            self._delete,
            self._delete,
            self._delete,
            self._terminate,
            self._finish,
            self._change_index,
            self._change_node,
        )

    def play(self) -> str:
        """Run one operation. Return a description of it."""
        self.node_changed = False
        if not self._pods or (len(self._pods) < MOST_PODS and self._random.random() < 0.45):
            return self._create()
        if len(self._pods) >= MOST_PODS:
            return self._delete()
        return self._random.choice(self._others)()

    def _create(self) -> str:
        make = self._random.choice(self._makers)
        number = next(self._numbers)
        suffix = "".join(CHARACTERS[number // 20**place % 20] for place in range(5))
        body = make(suffix)
        name = body["metadata"]["name"]
        if name in self._pods:
            return f"nothing: {name} is there already"
        self._namespace.make(body)
        self._pods[name] = True
        return f"create {make.__name__} {body}"

    def _map(self) -> str:
        return self._random.choice(MAPS)

    def _static(self, _: str) -> Object:
        text, index = self._map(), self._random.randrange(3)
        owner = self._random.choice(("one", "two"))
        devices = text.splitlines()[index].partition(":")[2]
        return pod(f"{owner}-{index}", text, literal(devices), owner=("StatefulSet", owner))

    def _bare(self, suffix: str) -> Object:
        return pod(f"bare-{suffix}", self._map(), reading(), generate_name="bare-")

    def _job(self, suffix: str) -> Object:
        owner = self._random.choice(("job-a", "job-b"))
        return pod(f"{owner}-{suffix}", self._map(), reading(), owner=("Job", owner), generate_name=f"{owner}-")

    def _deployment(self, suffix: str) -> Object:
        return replica("web", self._random.choice(("5d5f", "7777")), suffix, self._map())

    def _limit(self, suffix: str) -> Object:
        return pod(f"limit-{suffix}", COUNTED, reading(), limits={"nvidia.com/gpu": "1"})

    def _observer(self, suffix: str) -> Object:
        return pod(f"see-{suffix}", self._map(), reading(), annotations={"agentaflow.gpu/observer": "true"})

    def _keeper(self, suffix: str) -> Object:
        kept = literal(self._random.choice(("0", "1,3", "2")))
        return pod(f"keep-{suffix}", self._map(), kept, annotations={"agentaflow.gpu/keep-env": "true"})

    def _willing(self, suffix: str) -> Object:
        return pod(f"share-{suffix}", self._map(), reading(), annotations={"agentaflow.gpu/sharing": "any"})

    def _preset(self, suffix: str) -> Object:
        env = self._random.choice((literal("0"), literal("1,2"), reading(), []))
        text = self._random.choice((None, self._map()))
        marks = {"agentaflow.gpu/index": "0"} if text and self._random.random() < 0.5 else {}
        return pod(f"preset-{suffix}", text, env, annotations=marks, nodeName=self._random.choice(NODES))

    def _foreign(self, suffix: str) -> Object:
        limits = {"nvidia.com/gpu": "1"} if self._random.random() < 0.3 else {}
        where = self._random.choice(NODES)
        return pod(f"foreign-{suffix}", None, [], scheduler="another", limits=limits, nodeName=where)

    def _some_pod(self) -> str:
        return self._random.choice(tuple(self._pods))

    def _delete(self) -> str:
        name = self._some_pod()
        self._namespace.delete(name)
        del self._pods[name]
        self._ended.discard(name)
        return f"delete {name} at once"

    def _terminate(self) -> str:
        name = self._some_pod()
        # A pod without a node is gone at once. A later deletion of it finds no pod, which is no error.
        self._namespace.kube.call("DELETE", f"{self._namespace.pods}/{name}", {"gracePeriodSeconds": 30})
        return f"delete {name} with grace"

    def _finish(self) -> str:
        # A finished pod never gets the phase Running again.
        name = self._some_pod()
        phase = "Failed" if name in self._ended else self._random.choice(("Succeeded", "Failed", "Running"))
        self._ended |= {name} if phase != "Running" else set()
        status, _ = self._patch(f"{self._namespace.pods}/{name}/status", {"status": {"phase": phase}})
        return f"{name} is {phase}: {status}"

    def _change_index(self) -> str:
        name, index = self._some_pod(), self._random.choice(("0", "1", "2", None))
        body = {"metadata": {"annotations": {"agentaflow.gpu/index": index}}}
        status, _ = self._patch(f"{self._namespace.pods}/{name}", body)
        return f"{name} gets annotation index {index}: {status}"

    def _change_node(self) -> str:
        self.node_changed = True
        name, path = self._random.choice(NODES), "/api/v1/nodes"
        kind = self._random.randrange(6)
        if kind == 0:
            self._namespace.cordon(name, cordoned=self._random.random() < 0.4)
        elif kind == 1:
            self._namespace.set_ready(name, ready=self._random.random() < 0.6)
        elif kind in {2, 3}:
            body = {"metadata": {"annotations": self._random.choice(INVENTORIES)}}
            self._patch(f"{path}/{name}", body)
        elif kind == 4:
            devices = {"nvidia.com/gpu": self._random.choice((None, "2", "4"))}
            self._patch(f"{path}/{name}/status", {"status": {"capacity": devices, "allocatable": devices}})
        else:
            self._namespace.kube.delete(f"{path}/{name}")
            self._namespace.kube.create(path, objects.node(name))
        return f"change {kind} of {name}"

    def _patch(self, path: str, body: Object) -> tuple[int, Object]:
        return self._namespace.kube.call("PATCH", path, body, "application/merge-patch+json")
