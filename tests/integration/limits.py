"""The ConfigMap of limits, as an operator writes it, and pods that come up against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests import objects
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.kube_client import KubeClient
    from tests.objects import Object

NAME: Final = "gpu-scheduler-limits"
CONFIG_MAPS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
LIMITS: Final = f"{CONFIG_MAPS}/{NAME}"
LINES: Final = "0=node1:0,1\n1=node2:0\n2=node2:1\n3=node2:1\n"
APPLY: Final = "application/apply-patch+yaml"


def written(text: str) -> Object:
    """The object with this text."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"limits": text}}


def write(kube: KubeClient, text: str) -> None:
    """Apply it as kubectl does."""
    status, answer = kube.call("PATCH", f"{LIMITS}?fieldManager=operator&force=true", written(text), APPLY)
    assert status in {200, 201}, answer


def train(bench: Bench, *indices: int) -> None:
    """Make pods of one workload, one for each line, as controller and webhook leave them."""
    for index in indices:
        devices = LINES.splitlines()[index].partition(":")[2]
        bench.make(objects.pod(f"train-{index}", LINES, objects.literal(devices), owner=("StatefulSet", "train")))


def counted(bench: Bench, name: str, **annotations: str) -> None:
    """Make a pod that leaves the choice of one GPU to a strategy."""
    said = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    bench.make(objects.pod(name, None, objects.reading(), annotations={"agentaflow.gpu/count": "1", **said}))


def limit(bench: Bench, scheduler: Command, line: str, *others: str) -> None:
    """Write the line of the bench's namespace, and wait until the scheduler has read it."""
    before = scheduler.count("The limits of namespaces are others")
    write(bench.kube, "\n".join((f"{bench.namespace}: {line}", *others)))
    eventually("the limits hold", lambda: scheduler.count("The limits of namespaces are others") > before, seconds=2)
