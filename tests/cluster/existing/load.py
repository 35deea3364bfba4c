"""Creates real pods with maps at a steady pace, deletes each after it was bound, and checks every placement.

Most pods name a GPU that no other pod wants at that time: the time from creation to bind is the scheduler's own.
Others all name one GPU: a scheduler that forgets who holds it gives it away twice.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tests.auditor.list_watch import Watching
from tests.auditor.placements import shared
from tests.cluster.existing.own_cluster import GPU_NODES
from tests.cluster.existing.scenario import CONTEXT, DEVICES
from tests.cluster.reading import client_of
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.auditor.history import Event
    from tests.auditor.objects import Seen
    from tests.cluster.clusters import Cluster
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient

NAMESPACE: Final = "load"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
PACE: Final = 1.0
"""Seconds between two pods."""
EVERY: Final = 4
"""One pod of this number names the contended GPU."""
LIFE: Final = 3.0
"""Seconds between a pod's bind and its deletion."""
# The check service holds GPUs 0 to 3.
FREE: Final = [(node, device) for device in range(4, DEVICES - 1) for node in GPU_NODES]
CONTENDED: Final = (GPU_NODES[-1], DEVICES - 1)
LEASE: Final = 15.0
TAKE_OVER: Final = 2.0
"""Seconds after the Lease's duration within which a successor binds."""
ASSIGNED: Final = "agentaflow.gpu/assigned-devices"


@dataclass(frozen=True, slots=True)
class _Source:
    """What the auditor's watches read of a control plane."""

    kube: KubeClient


@dataclass(frozen=True, slots=True)
class Wanted:
    """A created pod: the place that its map names, and when it was created."""

    node: str
    device: int
    created: float


class Load:
    """A context manager that creates pods while it is entered. At its end every pod must be bound."""

    def __init__(self, cluster: Cluster, image: str, name: str) -> None:
        """Prepare the namespace, and start to watch pods and nodes."""
        self._kube = client_of(cluster.kubeconfig, CONTEXT)
        self._image = image
        self._name = name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wanted: dict[str, Wanted] = {}
        """Every pod that was created, by uid."""
        self.refusals: list[str] = []
        """Answers to creates that failed; each was sent again."""
        self.errors: list[str] = []
        if self._kube.get(f"/api/v1/namespaces/{NAMESPACE}") is None:
            self._kube.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        source = cast("ControlPlane", _Source(self._kube))
        self._nodes, self._pods = Watching(source, "nodes"), Watching(source, "pods")

    def __enter__(self) -> Self:
        """Start, and wait for the first bind."""
        self._thread.start()
        eventually("the first pod of the load to be bound", self.bound, 60)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop. Unless the block has failed, wait until every pod is bound."""
        self._over.set()
        self._thread.join(limit(60))
        try:
            if error[0] is None:
                eventually("every pod of the load to be bound", lambda: not self._end(), 60, 0.5)
        finally:
            self._kube.delete(PODS)
            self._pods.close()
            self._nodes.close()

    def bound(self) -> dict[str, Event]:
        """Return the first event that shows each pod with a node, by uid."""
        found: dict[str, Event] = {}
        for event in tuple(self._pods.events):
            pod = event.seen.api_object
            if pod.metadata.uid in self.wanted and pod.spec.node_name:
                found.setdefault(pod.metadata.uid, event)
        return found

    def waits(self) -> list[float]:
        """Return the seconds from creation to bind of each pod whose GPU no other pod wanted."""
        place = CONTENDED
        bound = self.bound()
        return [
            max(0.0, bound[uid].at - each.created)
            for uid, each in self.wanted.items()
            if uid in bound and (each.node, each.device) != place
        ]

    def misplaced(self) -> list[str]:
        """Return the pods that are not where their map says, and each GPU that two pods held."""
        wrong = []
        for uid, event in self.bound().items():
            pod, wanted = event.seen.api_object, self.wanted[uid]
            given = pod.spec.node_name, pod.metadata.annotations.get(ASSIGNED)
            if given != (wanted.node, str(wanted.device)):
                wrong.append(f"{pod.path} is on {given}, and its map says {wanted}")
        return wrong + [str(each) for each in shared([*self._nodes.events, *self._pods.events])]

    def prove(self) -> str:
        """Raise unless the load was placed rightly and without a long gap; return the figures."""
        waits = sorted(self.waits())
        refused = f"{len(self.refusals)} creates refused and sent again" + "".join(f"; {e}" for e in self.refusals[:3])
        figures = (
            f"{len(self.wanted)} pods, from creation to bind: median {waits[len(waits) // 2]:.2f} s, "
            f"longest {waits[-1]:.2f} s; {refused}"
        )
        assert self.errors == [], f"{self.errors}; {figures}"
        wrong = self.misplaced()
        assert wrong == [], f"{wrong}; {figures}"
        assert waits[-1] <= LEASE + limit(TAKE_OVER), figures
        return figures

    def _run(self) -> None:
        numbers = count()
        while not self._over.wait(PACE):
            try:
                self._create(next(numbers))
                self._delete_old()
            except Exception as error:  # noqa: BLE001 - the test reports any failure of the load
                self.errors.append(f"{time.strftime('%X')} {type(error).__name__}: {error}")

    def _create(self, number: int) -> None:
        """Create one pod. If the answer is no or lost, send it again until the Lease would have changed hands."""
        node, device = CONTENDED if number % EVERY == 0 else FREE[number % len(FREE)]
        name = f"{self._name}-{number}"
        deadline = time.monotonic() + LEASE + limit(TAKE_OVER)
        while True:
            created = time.monotonic()
            answer = self._send(name, self._pod(name, number, node, device))
            if answer is not None:
                self.wanted[answer["metadata"]["uid"]] = Wanted(node, device, created)
                return
            assert time.monotonic() < deadline, f"{name} could not be created: {self.refusals[-1]}"
            time.sleep(0.5)

    def _send(self, name: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the created pod; None after another answer, which counts as a refusal."""
        try:
            status, answer = self._kube.call("POST", PODS, body)
        except OSError as error:
            self.refusals.append(f"{time.strftime('%X')} {name}: {error}")
            # The lost answer may have been a success.
            return self._kube.get(f"{PODS}/{name}")
        if status == 201:
            return answer
        self.refusals.append(f"{time.strftime('%X')} {name}: {status} {answer.get('message', answer)}")
        return None

    def _pod(self, name: str, number: int, node: str, device: int) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": self._image,
            "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
        }
        return {
            "metadata": {"name": name, "annotations": {"gpu-scheduling-map": f"{number}={node}:{device}"}},
            "spec": {
                "schedulerName": "gpu-scheduler",
                "containers": [container],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": False,
            },
        }

    def _live(self) -> dict[str, tuple[Seen, float | None]]:
        """Return each pod of the load that is not gone, and when it was bound."""
        found: dict[str, tuple[Seen, float | None]] = {}
        bound = self.bound()
        for event in tuple(self._pods.events):
            uid = event.seen.api_object.metadata.uid
            if uid not in self.wanted:
                continue
            if event.deleted:
                found.pop(uid, None)
            else:
                found[uid] = event.seen, bound[uid].at if uid in bound else None
        return found

    def _delete_old(self) -> None:
        now = time.monotonic()
        for seen, at in self._live().values():
            if at is not None and now - at > LIFE and not seen.api_object.terminating:
                with suppress(OSError):
                    self._kube.delete(f"{PODS}/{seen.api_object.metadata.name}")

    def _end(self) -> list[str]:
        """Delete the pods that are bound; return those that are not."""
        self._delete_old()
        bound = self.bound()
        return [each.node for uid, each in self.wanted.items() if uid not in bound]
