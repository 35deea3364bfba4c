"""A namespace in memory, without an API server: a dry run of the scheduler decides on its pods."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_foreign_pod, read_pod
from gpu_scheduler.kube.objects.storage import read_claim, read_class, read_volume
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.ports import InputKind
from tests.integration import limits
from tests.integration.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.decision import Decision
    from tests.objects import Object

NAME: Final = "ml"
AT: Final = "2026-11-25T10:00:00Z"
KINDS: Final = {
    "/nodes/": (InputKind.NODE, read_node),
    "/persistentvolumeclaims/": (InputKind.CLAIM, read_claim),
    "/persistentvolumes/": (InputKind.VOLUME, read_volume),
    "/storageclasses/": (InputKind.STORAGE_CLASS, read_class),
}


class Store:
    """The objects by their paths, and what an API server does with the few calls of the rows' set-ups."""

    def __init__(self) -> None:
        """Start empty."""
        self.objects: dict[str, Object] = {}

    def create(self, path: str, body: Object) -> Object:
        """Create an object."""
        made = deepcopy(body)
        name = made["metadata"]["name"]
        made["metadata"] |= {"namespace": NAME, "uid": f"uid-{name}", "creationTimestamp": AT}
        for container in made.get("spec", {}).get("containers", []):
            resources = container.get("resources", {})
            resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
        self.objects[f"{path}/{name}"] = made
        return made

    def get(self, path: str) -> Object | None:
        """Return an object, if it exists."""
        return self.objects.get(path)

    def patch(self, path: str, body: Object) -> None:
        """Merge into an object."""
        _merge(self.objects[path.removesuffix("/status")], body)

    def delete(self, path: str) -> None:
        """Delete an object. A claim stays because of its finalizer."""
        if "/persistentvolumeclaims/" in path:
            self.objects[path]["metadata"]["deletionTimestamp"] = AT
        else:
            del self.objects[path]

    def call(self, method: str, path: str, body: Object | None = None, _: str = "") -> tuple[int, Object]:
        """Delete a pod with grace, apply the limits, or list the pods."""
        if method == "DELETE":
            self.objects[path]["metadata"]["deletionTimestamp"] = AT
        elif method == "PATCH":
            self.objects[limits.LIMITS] = body or {}
        return 200, {"items": [found for each, found in self.objects.items() if each.startswith(f"{path}/")]}


class DryNamespace(Namespace):
    """The namespace of a row."""

    def __init__(self) -> None:
        """Create it."""
        self.store = Store()
        store: Any = self.store
        super().__init__(store, NAME)

    def condition(self, name: str) -> Object:
        """Return the condition that the decision on a pod would write now; empty if it may be bound."""
        decision = self._decide(name)
        return {"message": decision.message} if isinstance(decision, Wait | Refuse) else {}

    def wait_bound(self, name: str, node: str, _: float = 0) -> Object:
        """Bind the pod, if it has no node yet."""
        pod = self.read(name)
        if not pod["spec"].get("nodeName"):
            decision = self._decide(name)
            assert isinstance(decision, Bind), decision
            pod["spec"]["nodeName"] = decision.placement.node
            pod["metadata"]["annotations"] |= decision.placement.annotations
        assert pod["spec"]["nodeName"] == node
        pod["status"] = {"phase": "Running"}
        return pod

    def _decide(self, name: str) -> Decision | None:
        """Decide on the pods that wait, in the order in which they were created, up to this one."""
        run = DryRun(Policy())
        for kind, value in self._inputs():
            run.apply(kind, value)
        for pod in run.pods:
            if pod.node is None:
                decision = run.decide(pod.ref.uid)
                if pod.ref.name == name:
                    return decision
        raise AssertionError(name)

    def _inputs(self) -> Iterator[tuple[InputKind, object]]:
        yield (
            InputKind.LIMITS,
            parse_limits(self.store.objects.get(limits.LIMITS, {}).get("data", {}).get("limits", ""))[0],
        )
        for path, body in self.store.objects.items():
            for part, (kind, read) in KINDS.items():
                if part in path:
                    yield kind, read(_encoded(body))[1]
        for path, body in self.store.objects.items():
            if path.startswith(f"{self.pods}/"):
                ours = body["spec"].get("schedulerName") == "gpu-scheduler"
                yield (
                    (InputKind.POD, read_pod(_encoded(body))[1])
                    if ours
                    else (
                        InputKind.FOREIGN_POD,
                        read_foreign_pod(_encoded(body))[1],
                    )
                )


def _encoded(body: Object) -> bytes:
    return json.dumps(body).encode()


def _merge(into: Object, body: Object) -> None:
    for key, value in body.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
