"""L, L0 and A: the API server's own limit, measured by a client that sends requests prepared in advance."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from bench.cluster import CREATED
from bench.contenders import prepared_requests
from bench.contenders.load_generator import LoadGenerator
from bench.contenders.recorded_requests import workloads as recorded
from bench.pod_stream import stream_of
from bench.pod_stream_process import Arrival
from bench.results import Cost
from tests.integration.namespace import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects, MappedPods, Object
    from bench.gated_process import GatedProcess
    from bench.pod_stream_process import Streamed

_TIMEOUT: Final = 600.0
_SPACES: Final = "/namespaces/"
_MORE: Final = "more-"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_CREATOR: Final = "benchmark-creates-pods"
_RIGHTS: Final[dict[str, Object]] = {
    "clusterroles": {
        "metadata": {"name": _CREATOR},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
    },
    "clusterrolebindings": {
        "metadata": {"name": _CREATOR},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _CREATOR},
        "subjects": [{"kind": "ServiceAccount", "name": "gpu-scheduler", "namespace": SYSTEM_NAMESPACE}],
    },
}


class Limit:
    """One client with a fixed number of requests in flight, with our scheduler's service account."""

    scheduler = "gpu-scheduler"
    pinned = False
    devices = True

    def __init__(self, client: str, in_flight: int, *, events: bool) -> None:
        """With `events` it is L, otherwise L0."""
        self.name = "L" if events else "L0"
        self.events = events
        self._client = client
        self._in_flight = in_flight
        self._generator: LoadGenerator | None = None

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        token = cluster.plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        path = cluster.folder / "limit.jsonl"
        prepared_requests.write(path, cluster.header(token, self._in_flight), self._prepared_pods(cluster))
        self._generator = LoadGenerator(self._client, path, cluster.folder / "limit.log")
        self._generator.wait_ready()

    def go(self) -> None:
        """See Contender."""
        assert self._generator is not None
        self._generator.go()

    def cost(self) -> Cost:
        """See Contender; the memory of a load generator is not reported."""
        return Cost(cpu=self._load_report().cpu, rss=0.0, pss=0.0)

    def stop(self) -> None:
        """See Contender."""
        if self._generator is not None:
            self._generator.stop()

    def _load_report(self) -> prepared_requests.LoadReport:
        assert self._generator is not None
        return self._generator.wait(_TIMEOUT)

    def _prepared_pods(self, cluster: ClusterUnderTest) -> list[prepared_requests.PreparedPod]:
        return _prepared_of(cluster, self.scheduler, events=self.events)


class Arriving(Limit):
    """A: L, with the creation of another pod before each bind: a stream of pods in which no decision is needed.

    No scheduler on the same machine can place arriving pods faster: A has no costs of its own and never waits.
    """

    def __init__(self, client: str, in_flight: int, more: MappedPods) -> None:
        """`more` are the pods that are created, in namespaces of their own."""
        super().__init__(client, in_flight, events=True)
        self.name = "A"
        self._more = more

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        _prepare_creations(cluster, self._more)
        super().prepare(cluster, objects)

    def _load_report(self) -> prepared_requests.LoadReport:
        load_report = super()._load_report()
        # The audit does not check pods that wait.
        assert set(load_report.statuses) == {CREATED}, load_report.statuses
        return load_report

    def _prepared_pods(self, cluster: ClusterUnderTest) -> list[prepared_requests.PreparedPod]:
        made = (prepared_requests.PreparedPod(each, None) for each in _creations(self._more, self.scheduler))
        return list(chain.from_iterable(zip(made, super()._prepared_pods(cluster), strict=True)))


class ArrivingAtPace:
    """A at a steady pace: each bind follows the answer to the creation of another pod, and each event its bind."""

    name = "A"
    scheduler = "gpu-scheduler"
    pinned = False
    events = True
    devices = True

    def __init__(self, rate: float, more: MappedPods) -> None:
        """`more` are the pods that are created, `rate` of them a second, in namespaces of their own."""
        self._rate = rate
        self._more = more
        self._stream: GatedProcess[Streamed] | None = None

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        _prepare_creations(cluster, self._more)
        token = cluster.plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        prepared = _prepared_of(cluster, self.scheduler, events=True)
        creations = _creations(self._more, self.scheduler)
        self._stream = stream_of(cluster, map(_arrival, creations, prepared), self._rate, token=token)
        self._stream.wait_ready()

    def go(self) -> None:
        """See Contender."""
        assert self._stream is not None
        self._stream.go()

    def cost(self) -> Cost:
        """See Contender; it waits for the end of the stream, and keeps its result in `streamed`."""
        assert self._stream is not None
        self.streamed = self._stream.wait(_TIMEOUT)
        return Cost(cpu=self.streamed.cpu, rss=0.0, pss=0.0)

    def stop(self) -> None:
        """See Contender."""
        if self._stream is not None:
            self._stream.stop()


def _prepared_of(cluster: ClusterUnderTest, scheduler: str, *, events: bool) -> list[prepared_requests.PreparedPod]:
    """Return the requests for the cluster's pods that wait for this scheduler."""
    pods = cluster.items(f"/api/v1/pods?fieldSelector=spec.schedulerName={scheduler}")
    return recorded(cluster.items("/api/v1/nodes"), pods, events=events)


def _prepare_creations(cluster: ClusterUnderTest, more: MappedPods) -> None:
    """Create the namespaces. All requests use one token, so the account that binds may create pods here, too."""
    cluster.make_namespaces(f"{_MORE}{name}" for name in more.namespaces)
    cluster.make((f"/apis/{_RBAC}/{kind}", body) for kind, body in _RIGHTS.items())


def _creations(more: MappedPods, scheduler: str) -> Iterator[prepared_requests.Request]:
    """Yield the request that creates each pod, in namespaces of their own."""
    for path, body in more.pod_requests(scheduler):
        elsewhere = path.replace(_SPACES, f"{_SPACES}{_MORE}")
        yield prepared_requests.Request(elsewhere, msgspec.json.encode(body).decode())


def _arrival(creation: prepared_requests.Request, prepared: prepared_requests.PreparedPod) -> Arrival:
    """Return a creation that the pod's bind and event follow, under the key of the pod that is bound."""
    _, namespace, _, name, _ = prepared.bind.path.rsplit("/", 4)
    assert prepared.event is not None
    return Arrival(f"{namespace}/{name}", creation, (prepared.bind, prepared.event))
