"""A namespace of the control plane under test: creates and reads its nodes, pods, conditions and events."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.background import running
from tests.waiting import eventually

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator

    from tests.kube_client import KubeClient
    from tests.objects import Object

SYSTEM_NAMESPACE: Final = "gpu-scheduler-system"
MAP: Final = objects.MAP


@dataclass(frozen=True, slots=True)
class Placed:
    """Node, devices and index that a Binding assigned to a pod."""

    node: str
    devices: str
    index: int


def debugged(kube: KubeClient, pod: str, container: Object | None = None) -> tuple[int, Object]:
    """Add a debug container to the pod of this path, as `kubectl debug` does. Return status and answer."""
    body = {"spec": {"ephemeralContainers": [container or {"name": "debug", "image": "none"}]}}
    return kube.call("PATCH", f"{pod}/ephemeralcontainers", body, "application/strategic-merge-patch+json")


class Namespace:
    """One namespace of a running control plane."""

    def __init__(self, kube: KubeClient, name: str, **labels: str) -> None:
        """Create the namespace. An underscore in a label's name stands for a slash."""
        self.kube = kube
        self.name = name
        self.pods = f"/api/v1/namespaces/{name}/pods"
        self.claims = f"/api/v1/namespaces/{name}/persistentvolumeclaims"
        self._nodes: list[str] = []
        marks = {key.replace("_", "/"): text for key, text in labels.items()}
        kube.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": marks}})

    def node(self, name: str, *, alias: str | None = None, **more: Any) -> None:
        """Create a node. `more` are arguments of objects.node."""
        labels = {"gpu-node-name": alias} if alias else {}
        self.add(objects.node(name, **{"labels": labels, **more}))

    def add(self, body: Object) -> None:
        """Create this node."""
        self.kube.create("/api/v1/nodes", body)
        self._nodes.append(body["metadata"]["name"])

    def patch_node(self, name: str, body: Object) -> None:
        """Patch a node, or its status if `body` has one."""
        path = f"/api/v1/nodes/{name}"
        self.kube.patch(f"{path}/status" if "status" in body else path, body)

    def storage(self, mode: str) -> None:
        """Create a storage class with the namespace's name and this binding mode."""
        body = {"metadata": {"name": self.name}, "provisioner": "example.com", "volumeBindingMode": mode}
        self.kube.create("/apis/storage.k8s.io/v1/storageclasses", body)

    def claim(self, name: str) -> None:
        """Create a claim of that storage class."""
        self.kube.create(self.claims, objects.claim(name, self.name))

    def provision(self, name: str, *nodes: str) -> None:
        """Create a volume that these nodes can use and bind the claim to it, as a provisioner does."""
        volume = f"{self.name}-{name}"
        self.kube.create("/api/v1/persistentvolumes", objects.volume(volume, self.name, *nodes))
        path = f"{self.claims}/{name}"
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.kube.patch(path, {"metadata": {"annotations": bound}, "spec": {"volumeName": volume}})
        self.kube.patch(f"{path}/status", {"status": {"phase": "Bound"}})

    def provision_selected(self, name: str) -> None:
        """Provision the claim, if the scheduler has selected node1 for it."""
        claim = self.kube.get(f"{self.claims}/{name}")
        assert claim is not None
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node1"
        self.provision(name)

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Write the node's Ready condition, as its kubelet does."""
        self.patch_node(name, {"status": {"conditions": [objects.ready_condition(ready=ready)]}})

    def cordon(self, name: str, *, cordoned: bool) -> None:
        """Cordon or uncordon a node."""
        self.patch_node(name, {"spec": {"unschedulable": cordoned}})

    def pod(  # noqa: PLR0913 - each has its test
        self,
        name: str,
        text: str | None,
        devices: str | None,
        *,
        scheduler: str = "gpu-scheduler",
        gated: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> str:
        """Create a pod as it is after the webhook, or with `devices` None as without the webhook. Return its uid."""
        gates = [{"name": "example.com/wait"}] if gated else []
        env = None if devices is None else objects.literal(devices)
        return self.make(
            objects.pod(name, text, env, scheduler=scheduler, annotations=annotations, schedulingGates=gates)
        )

    def make(self, body: Object) -> str:
        """Create this pod. Return its uid."""
        return str(self.kube.create(self.pods, body)["metadata"]["uid"])

    def read(self, name: str) -> Object:
        """Read the pod."""
        pod = self.kube.get(f"{self.pods}/{name}")
        assert pod is not None, f"no pod {name}"
        return pod

    def delete(self, name: str) -> None:
        """Delete a pod without grace."""
        self.kube.delete(f"{self.pods}/{name}")

    def terminate(self, name: str) -> None:
        """Delete a bound pod with grace. It stays terminating, because no kubelet runs here."""
        status, answer = self.kube.call("DELETE", f"{self.pods}/{name}", {"gracePeriodSeconds": 30})
        assert status in {200, 202}, answer

    @contextmanager
    def kubelets(self) -> Iterator[None]:
        """End its terminating pods while the context lasts, as kubelets do: none runs here."""

        def end(stop: threading.Event) -> None:
            while not stop.wait(0.1):
                for pod in self._all():
                    if "deletionTimestamp" in (meta := pod["metadata"]):
                        # A pod of the same name may have been made since.
                        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                        self.kube.call("DELETE", f"{self.pods}/{meta['name']}", options)

        with running(end):
            yield

    def deleted_at(self) -> str:
        """Return when its terminating pod was deleted."""
        return next(str(each) for pod in self._all() if (each := pod["metadata"].get("deletionTimestamp")))

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Write the final phase of a pod, as its kubelet does."""
        self.kube.patch(f"{self.pods}/{name}/status", {"status": {"phase": phase}})

    def empty(self) -> None:
        """Delete its pods, also those that wait for a controller that runs no more, like the pods of a Job."""
        self.kube.call("DELETE", f"{self.pods}?gracePeriodSeconds=0")
        for pod in self._all():
            self.kube.merge(f"{self.pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})

    def wait_empty(self) -> None:
        """Delete its pods until none is left.

        A controller that has not yet seen that its object is deleted creates a pod again, and without a kubelet such
        a pod stays where the garbage collector deletes it.
        """
        eventually("its pods are gone", self._emptied, seconds=20)

    def clear(self) -> None:
        """Delete its pods and the nodes that were created through it."""
        self.empty()
        for name in self._nodes:
            self.kube.delete(f"/api/v1/nodes/{name}")

    def node_of(self, name: str) -> str:
        """Return the node that the pod is bound to; empty if it is not bound."""
        return str(self.read(name)["spec"].get("nodeName", ""))

    def wait_bound(self, name: str, node: str, seconds: float = 10.0) -> Object:
        """Wait until the pod is bound, and check its node. Return the pod."""
        eventually(f"pod {name} is bound", lambda: self.node_of(name), seconds)
        pod = self.read(name)
        assert pod["spec"]["nodeName"] == node
        return pod

    def placed(self, name: str, seconds: float = 10.0) -> Placed:
        """Wait until the pod is bound. Return its placement."""
        eventually(f"pod {name} is bound", lambda: self.node_of(name), seconds)
        pod = self.read(name)
        given = pod["metadata"]["annotations"]
        return Placed(
            pod["spec"]["nodeName"],
            given["agentaflow.gpu/assigned-devices"],
            int(given["agentaflow.gpu/assigned-index"]),
        )

    def indices(self, *names: str) -> list[int]:
        """Wait until the pods are bound. Return their indices."""
        return [self.placed(name).index for name in names]

    def condition(self, name: str) -> Object:
        """Return the pod's PodScheduled condition; empty if it has none."""
        conditions = self.read(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def wait_message(self, name: str, start: str, seconds: float = 10.0, parts: Iterable[str] = ()) -> str:
        """Wait until the condition's message begins with `start` and has these parts. Return the whole message."""

        def message() -> str | None:
            text = str(self.condition(name).get("message", ""))
            return text if text.startswith(start) and all(part in text for part in parts) else None

        return eventually(f"{name} waits with {start} {' … '.join(parts)}", message, seconds)

    def events(self, name: str) -> list[Object]:
        """Return the pod's events, oldest first."""
        status, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")
        assert status == 200, answer
        mine = [event for event in answer["items"] if event["regarding"]["name"] == name]
        return sorted(mine, key=lambda event: str(event["eventTime"]))

    def count_events(self) -> int:
        """Count the namespace's events, without listing all of them."""
        _, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.name}/events?limit=1")
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))

    def count_bound(self) -> int:
        """Count the namespace's pods that have a node."""
        return sum("nodeName" in pod["spec"] for pod in self._all())

    def count_waiting(self, reason: str) -> int:
        """Count the namespace's pods that wait with this reason."""
        conditions = [each for pod in self._all() for each in pod["status"].get("conditions", [])]
        return sum(each.get("message", "").startswith(f"{reason}: ") for each in conditions)

    def _emptied(self) -> bool:
        self.empty()
        return not self._all()

    def _all(self) -> list[Object]:
        status, answer = self.kube.call("GET", self.pods)
        assert status == 200, answer
        items: list[Object] = answer["items"]
        return items

    def wait_event(self, name: str, reason: str) -> Object:
        """Wait for the pod's first event with this reason. Return it."""

        def found() -> Object | None:
            return next((event for event in self.events(name) if event["reason"] == reason), None)

        return eventually(f"{name} has event {reason}", found)
