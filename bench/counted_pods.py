"""W3's objects: nodes with an inventory of GPUs, and pods that ask for a count of them.

While the nodes fill, the sizes become smaller: a pod exists only if it fits somewhere for every possible placement of
the earlier pods. So all pods can be placed, whatever the contender's strategy. Contenders list the pods in this order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Final

from bench.cluster_objects import GPUS_PER_NODE, NAMESPACE_PODS, REQUESTS, ROOM, namespace_names, node_name
from tests import objects as shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.cluster_objects import Assignment, Object

SIZES: Final = (8, 4, 2, 1)
"""Counts of GPUs that pods request, in turn."""
_DEVICES: Final = frozenset(map(str, range(GPUS_PER_NODE)))
_MODEL: Final = {"model": "NVIDIA A100-SXM4-80GB", "memoryTotalMiB": 81920}
_IDLE: Final = {"memoryUsedMiB": 0, "utilization": 0, "temperature": 35, "power": 60}


@dataclass(frozen=True)
class CountedPods:
    """Pods that request `percent` % of all GPUs of `nodes` nodes."""

    nodes: int
    percent: int

    def __post_init__(self) -> None:
        """ValueError for a percentage that is not between 1 and 100."""
        if not 0 < self.percent <= 100:  # noqa: PLR2004 - what a percentage is
            raise ValueError(f"cannot fill {self.percent} % of the GPUs: it lies between 1 and 100, such as 70")

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many GPUs each pod requests: SIZES in turn, if a pod of that size fits wherever the earlier pods are."""
        total, asked = self.nodes * GPUS_PER_NODE, 0
        goal = total * self.percent // 100
        sizes: list[int] = []
        cycled = cycle(SIZES)
        while asked < goal:
            size = next(cycled)
            # In the worst case every node has size - 1 free GPUs. With one more free GPU in total, one node has room
            # for the pod.
            if asked + size <= goal and total - asked > self.nodes * (size - 1):
                sizes.append(size)
                asked += size
        return tuple(sizes)

    @property
    def pods(self) -> int:
        """See ClusterObjects."""
        return len(self.sizes)

    @property
    def gpus(self) -> int:
        """See ClusterObjects."""
        return sum(self.sizes)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """As many namespaces as the pods need."""
        return namespace_names("counted", self.pods)

    def node_bodies(self) -> Iterator[Object]:
        """Yield the nodes, with the inventory that their monitors report."""
        for number in range(self.nodes):
            devices = (
                {**shapes.device(index), "uuid": shapes.gpu(number * GPUS_PER_NODE + index), **_MODEL, **_IDLE}
                for index in range(GPUS_PER_NODE)
            )
            yield shapes.node(node_name(number), room=ROOM, annotations=shapes.inventory(*devices))

    def pod_requests(self, scheduler: str, *, limits: bool) -> Iterator[tuple[str, Object]]:
        """Yield for each pod the path to POST it to, and its body as the webhook writes it.

        With `limits` a pod requests GPUs as for kube-scheduler, otherwise by annotation.
        """
        for number, size in enumerate(self.sizes):
            yield (
                f"/api/v1/namespaces/{self.namespaces[number // NAMESPACE_PODS]}/pods",
                shapes.pod(
                    _pod_name(number),
                    None,
                    None if limits else shapes.reading(),
                    annotations={} if limits else {"agentaflow.gpu/count": str(size)},
                    scheduler=scheduler,
                    requests=REQUESTS,
                    limits={"nvidia.com/gpu": str(size)} if limits else None,
                ),
            )

    def misplaced(self, bound: Mapping[str, Assignment], *, devices: bool) -> Iterator[str]:
        """Yield a sentence for each pod with GPUs that it did not request, and for each overcommitted node."""
        asked = {_pod_name(number): size for number, size in enumerate(self.sizes)}
        given: Counter[str] = Counter()
        for name, each in bound.items():
            given[each.node] += asked[name]
            right = each.output == each.node and len(each.devices) == asked[name] and _DEVICES.issuperset(each.devices)
            if devices and not right:
                where = f"GPUs {','.join(each.devices) or 'none'} of {each.output or 'no node'}"
                yield f"{name} asked for {asked[name]} GPUs of a node and is told {where} on {each.node}"
        yield from (
            f"{node} has {GPUS_PER_NODE} GPUs and gave {count}"
            for node, count in given.items()
            if count > GPUS_PER_NODE
        )


def _pod_name(number: int) -> str:
    """Return the pod's name; names sort by number, so every list of pods is in this order."""
    return f"counted-{number:05}"
