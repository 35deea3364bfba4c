"""Nodes whose GPUs a monitor has listed, and pods that ask for some of them and leave it to the scheduler which.

The mix of sizes narrows while the nodes fill: a pod comes only while it fits somewhere wherever the ones before have
gone, so that nobody's taste decides whether all can be placed. Contenders find them in that order.
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
"""GPUs of a pod."""
_DEVICES: Final = frozenset(map(str, range(GPUS_PER_NODE)))
_MODEL: Final = {"model": "NVIDIA A100-SXM4-80GB", "memoryTotalMiB": 81920}
_IDLE: Final = {"memoryUsedMiB": 0, "utilization": 0, "temperature": 35, "power": 60}


@dataclass(frozen=True)
class CountedPods:
    """Pods for `percent` of all GPUs of `nodes`."""

    nodes: int
    percent: int

    def __post_init__(self) -> None:
        """Whatever is asked for is there."""
        if not 0 < self.percent <= 100:  # noqa: PLR2004 - what a percentage is
            raise ValueError(f"cannot fill {self.percent} % of the GPUs: it lies between 1 and 100, such as 70")

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many GPUs each pod asks for: in turn, as far as such a pod fits wherever the others are."""
        total, asked = self.nodes * GPUS_PER_NODE, 0
        goal = total * self.percent // 100
        sizes: list[int] = []
        turns = cycle(SIZES)
        while asked < goal:
            size = next(turns)
            # Every node may have one GPU too few; with one more in all, some node has as many as it takes.
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
        """As many as the pods need."""
        return namespace_names("counted", self.pods)

    def node_bodies(self) -> Iterator[Object]:
        """The nodes, with what their monitors tell of their GPUs."""
        for number in range(self.nodes):
            cards = (
                {**shapes.card(index), "uuid": shapes.gpu(number * GPUS_PER_NODE + index), **_MODEL, **_IDLE}
                for index in range(GPUS_PER_NODE)
            )
            yield shapes.node(node_name(number), room=ROOM, annotations=shapes.inventory(*cards))

    def pod_requests(self, scheduler: str, *, limits: bool) -> Iterator[tuple[str, Object]]:
        """All pods as the webhook leaves them, with the paths to which they are POSTed.

        With `limits` they ask as kube-scheduler understands it, otherwise by annotation.
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
        """Nodes that are given too much, and pods that have other GPUs than they asked for."""
        asked = {_pod_name(number): size for number, size in enumerate(self.sizes)}
        given: Counter[str] = Counter()
        for name, each in bound.items():
            given[each.node] += asked[name]
            right = each.said == each.node and len(each.devices) == asked[name] and _DEVICES.issuperset(each.devices)
            if devices and not right:
                where = f"GPUs {','.join(each.devices) or 'none'} of {each.said or 'no node'}"
                yield f"{name} asked for {asked[name]} GPUs of a node and is told {where} on {each.node}"
        yield from (
            f"{node} has {GPUS_PER_NODE} GPUs and gave {count}"
            for node, count in given.items()
            if count > GPUS_PER_NODE
        )


def _pod_name(number: int) -> str:
    """The pods' names, as they sort: whoever lists them finds them in their order."""
    return f"counted-{number:05}"
