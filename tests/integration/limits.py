"""Writes the ConfigMap of namespace limits and creates pods that reach a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests import objects
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace
    from tests.kube_client import KubeClient
    from tests.objects import Object

NAME: Final = "gpu-scheduler-limits"
CONFIG_MAPS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
LIMITS: Final = f"{CONFIG_MAPS}/{NAME}"
LINES: Final = "0=node1:0,1\n1=node2:0\n2=node2:1\n3=node2:1\n"
APPLY: Final = "application/apply-patch+yaml"


def written(text: str) -> Object:
    """Return the ConfigMap with this text."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"limits": text}}


def write(kube: KubeClient, text: str) -> None:
    """Apply the ConfigMap with this text, as kubectl does."""
    status, answer = kube.call("PATCH", f"{LIMITS}?fieldManager=operator&force=true", written(text), APPLY)
    assert status in {200, 201}, answer


def train(namespace: Namespace, *indices: int) -> None:
    """Create the pods of one workload with these indices of LINES, as they are after the webhook."""
    for index in indices:
        devices = LINES.splitlines()[index].partition(":")[2]
        namespace.make(objects.pod(f"train-{index}", LINES, objects.literal(devices), owner=("StatefulSet", "train")))


CHANGED: Final = text_of("the scheduler reads new limits")


def counted(namespace: Namespace, name: str, **annotations: str) -> None:
    """Create a pod that asks for one GPU by count: a strategy chooses the device."""
    output = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    namespace.make(objects.pod(name, None, objects.reading(), annotations={"agentaflow.gpu/count": "1", **output}))


def limit(namespace: Namespace, scheduler: Command, line: str, *others: str) -> None:
    """Write the limits line of this namespace and the other lines, and wait until the scheduler has read them."""
    before = scheduler.count(CHANGED)
    write(namespace.kube, "\n".join((f"{namespace.name}: {line}", *others)))
    eventually("the limits hold", lambda: scheduler.count(CHANGED) > before)
