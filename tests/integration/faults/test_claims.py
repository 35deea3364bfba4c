"""Faults of the three writes that give a pod its GPUs with `isolation: dra`: lost, refused and late ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.faults.proxied_replica import BINDING, CALL_TIMEOUT
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.proxy_faults import Answer, Cut, Delay, Fault, Hang
from tests.integration.isolated import GPUS, NODES, IsolatedCluster, devices_of, replicas, running, uuid
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.faults.proxy_faults import Act
    from tests.integration.namespace import Namespace

WRITES: Final = {
    "the claim": ("POST", r"/resourceclaims\?"),
    "its allocation": ("PATCH", r"/resourceclaims/[^/]+/status\?"),
    "the Binding": ("POST", BINDING),
}
ACTS: Final[dict[str, Act]] = {
    "comes, and its answer is lost": Cut(delivered=True),
    "is lost": Cut(delivered=False),
    "comes, and is not answered": Hang(delivered=True),
    "comes two seconds after its time-out": Delay(CALL_TIMEOUT + 2),
    "comes, and is answered with 500": Answer(500, delivered=True),
}
FAULTS: Final[dict[str, tuple[str, str, Act]]] = {
    f"{write} {what}": (verb, path, act) for write, (verb, path) in WRITES.items() for what, act in ACTS.items()
}
BACK_OFF: Final = {"POD_INITIAL_BACKOFF": "200ms", "POD_MAX_BACKOFF": "1s"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    """The cluster without our scheduler."""
    yield from running(tmp_path_factory.mktemp("isolated"))


@pytest.fixture
def proxy(cluster: IsolatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """The proxy through which our scheduler reaches the API server."""
    folder = tmp_path_factory.mktemp("proxy")
    proxy = FaultProxy(cluster.plane, folder)
    scheduler = cluster.start_scheduler(folder, proxy=proxy.port, **BACK_OFF)
    try:
        scheduler.wait_ready()
        yield proxy
    finally:
        scheduler.process.stop()
        proxy.close()


@pytest.mark.promise("isolate-2", "isolate-7")
def test_each_pod_gets_its_gpu_whatever_write_fails(cluster: IsolatedCluster, proxy: FaultProxy) -> None:
    """One pod for each fault, all at once, and no claim is left behind when they are gone."""
    with ExitStack() as faults:
        pods = {}
        for number, (name, (verb, path, act)) in enumerate(FAULTS.items()):
            namespace = cluster.namespace()
            place = NODES[number // GPUS], number % GPUS
            faults.enter_context(proxy.breaking(Fault(verb, rf"/namespaces/{namespace.name}{path}", act)))
            _create(namespace, *place)
            pods[name] = namespace, place
        for name, (namespace, _) in pods.items():
            eventually(f"{name}: the pod is bound", namespace.count_bound, seconds=40)
        found = {name: _found(cluster, namespace) for name, (namespace, _) in pods.items()}

    assert found == {
        name: (node, uuid(node, index), [f"{node}/gpu-{index}"]) for name, (_, (node, index)) in pods.items()
    }
    assert len(cluster.allocated()) == len(pods)
    for namespace, _ in pods.values():
        cluster.clear(namespace)
    assert cluster.allocated() == {}


def _create(namespace: Namespace, node: str, index: int) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace.name}/statefulsets"
    namespace.kube.create(path, replicas(f"0={node}:{index}\n", 1))


def _found(cluster: IsolatedCluster, namespace: Namespace) -> tuple[str, str, list[str]]:
    """Return node and variable of the namespace's pod, and what its claim, reserved for it, is allocated."""
    pod: Any = namespace.read("train-0")
    (claim,) = cluster.claims(namespace.name).values()
    assert pod["metadata"]["uid"] in [each["uid"] for each in claim["status"]["reservedFor"]]
    given = pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"]
    return pod["spec"]["nodeName"], given, devices_of(claim)
