"""What the tests say and ask: nodes, pods, conditions and events of one namespace, in a test's own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.kube_client import KubeClient
    from tests.objects import Object

SYSTEM_NAMESPACE: Final = "gpu-scheduler-system"
MAP: Final = objects.MAP


@dataclass(frozen=True, slots=True)
class Placed:
    """What a Binding gave a pod."""

    node: str
    devices: str
    index: int


class Bench:
    """One namespace of a running control plane."""

    def __init__(self, kube: KubeClient, namespace: str, **labels: str) -> None:
        """Make the namespace; an underscore in a label's name stands for a slash."""
        self.kube = kube
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._nodes: list[str] = []
        marks = {key.replace("_", "/"): text for key, text in labels.items()}
        kube.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": marks}})

    def node(self, name: str, *, alias: str | None = None, **more: Any) -> None:
        """Make a node; `more` as for objects.node."""
        labels = {"gpu-node-name": alias} if alias else {}
        self.add(objects.node(name, **{"labels": labels, **more}))

    def add(self, body: Object) -> None:
        """Make a node of this shape."""
        self.kube.create("/api/v1/nodes", body)
        self._nodes.append(body["metadata"]["name"])

    def patch_node(self, name: str, body: Object) -> None:
        """Change a node, its status too where `body` has one."""
        path = f"/api/v1/nodes/{name}"
        self.kube.patch(f"{path}/status" if "status" in body else path, body)

    def storage(self, mode: str) -> None:
        """Make a storage class of the namespace's name, with this binding mode."""
        body = {"metadata": {"name": self.namespace}, "provisioner": "example.com", "volumeBindingMode": mode}
        self.kube.create("/apis/storage.k8s.io/v1/storageclasses", body)

    def claim(self, name: str) -> None:
        """Claim storage of that class."""
        self.kube.create(self.claims, objects.claim(name, self.namespace))

    def provision(self, name: str, *nodes: str) -> None:
        """Do a provisioner's work: a volume that these nodes reach, bound to the claim."""
        volume = f"{self.namespace}-{name}"
        self.kube.create("/api/v1/persistentvolumes", objects.volume(volume, self.namespace, *nodes))
        path = f"{self.claims}/{name}"
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.kube.patch(path, {"metadata": {"annotations": bound}, "spec": {"volumeName": volume}})
        self.kube.patch(f"{path}/status", {"status": {"phase": "Bound"}})

    def provision_selected(self, name: str) -> None:
        """Do it where the scheduler said that the pod will run."""
        claim = self.kube.get(f"{self.claims}/{name}")
        assert claim is not None
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node1"
        self.provision(name)

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Let a node's kubelet speak."""
        self.patch_node(name, {"status": {"conditions": [objects.ready_condition(ready=ready)]}})

    def cordon(self, name: str, *, cordoned: bool) -> None:
        """`kubectl cordon` or `uncordon`."""
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
        """Make a pod as the webhook would have left it (`devices` None: as if it had not been there). Gives its uid."""
        gates = [{"name": "example.com/wait"}] if gated else []
        env = None if devices is None else objects.literal(devices)
        return self.make(
            objects.pod(name, text, env, scheduler=scheduler, annotations=annotations, schedulingGates=gates)
        )

    def make(self, body: Object) -> str:
        """Make a pod of this shape. Gives its uid."""
        return str(self.kube.create(self.pods, body)["metadata"]["uid"])

    def read(self, name: str) -> Object:
        """Give the pod as it is."""
        pod = self.kube.get(f"{self.pods}/{name}")
        assert pod is not None, f"no pod {name}"
        return pod

    def delete(self, name: str) -> None:
        """Delete a pod without grace."""
        self.kube.delete(f"{self.pods}/{name}")

    def terminate(self, name: str) -> None:
        """Delete a bound pod as kubectl does: with no kubelet here, it goes on terminating."""
        status, answer = self.kube.call("DELETE", f"{self.pods}/{name}", {"gracePeriodSeconds": 30})
        assert status in {200, 202}, answer

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Let a pod's kubelet say that it has ended."""
        self.kube.patch(f"{self.pods}/{name}/status", {"status": {"phase": phase}})

    def empty(self) -> None:
        """Take away its pods."""
        self.kube.call("DELETE", f"{self.pods}?gracePeriodSeconds=0")

    def clear(self) -> None:
        """Take away its pods and nodes."""
        self.empty()
        for name in self._nodes:
            self.kube.delete(f"/api/v1/nodes/{name}")

    def node_of(self, name: str) -> str:
        """Tell where the pod is bound; empty when it is not."""
        return str(self.read(name)["spec"].get("nodeName", ""))

    def wait_bound(self, name: str, node: str, seconds: float = 10.0) -> Object:
        """Wait until the pod is bound, and check where."""
        eventually(f"pod {name} is bound", lambda: self.node_of(name), seconds)
        pod = self.read(name)
        assert pod["spec"]["nodeName"] == node
        return pod

    def placed(self, name: str, seconds: float = 10.0) -> Placed:
        """Wait until the pod is bound; tell what it was given."""
        eventually(f"pod {name} is bound", lambda: self.node_of(name), seconds)
        pod = self.read(name)
        given = pod["metadata"]["annotations"]
        return Placed(
            pod["spec"]["nodeName"],
            given["agentaflow.gpu/assigned-devices"],
            int(given["agentaflow.gpu/assigned-index"]),
        )

    def indices(self, *names: str) -> list[int]:
        """Tell the indices of pods that are bound, or soon will be."""
        return [self.placed(name).index for name in names]

    def condition(self, name: str) -> Object:
        """Give the pod's PodScheduled condition; empty when there is none."""
        conditions = self.read(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def wait_message(self, name: str, start: str, seconds: float = 10.0, parts: Iterable[str] = ()) -> str:
        """Wait until the condition's message starts so and has these parts; give the whole message."""

        def message() -> str | None:
            text = str(self.condition(name).get("message", ""))
            return text if text.startswith(start) and all(part in text for part in parts) else None

        return eventually(f"{name} waits with {start} {' … '.join(parts)}", message, seconds)

    def events(self, name: str) -> list[Object]:
        """Give the pod's events, oldest first."""
        status, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        assert status == 200, answer
        mine = [event for event in answer["items"] if event["regarding"]["name"] == name]
        return sorted(mine, key=lambda event: str(event["eventTime"]))

    def count_events(self) -> int:
        """Count the namespace's events, without reading them."""
        _, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events?limit=1")
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))

    def count_bound(self) -> int:
        """Count the namespace's pods that have a node."""
        return sum("nodeName" in pod["spec"] for pod in self._all())

    def count_told(self, reason: str) -> int:
        """Count the namespace's pods that wait for this reason."""
        conditions = [each for pod in self._all() for each in pod["status"].get("conditions", [])]
        return sum(each.get("message", "").startswith(f"{reason}: ") for each in conditions)

    def _all(self) -> list[Object]:
        status, answer = self.kube.call("GET", self.pods)
        assert status == 200, answer
        items: list[Object] = answer["items"]
        return items

    def wait_event(self, name: str, reason: str) -> Object:
        """Wait for the pod's first event of this reason."""

        def found() -> Object | None:
            return next((event for event in self.events(name) if event["reason"] == reason), None)

        return eventually(f"{name} has event {reason}", found)
