"""The node of one webhook replica is drained: whoever creates pods meanwhile never notices."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from kubernetes import client, config

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify import system
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.clusters import Json

# Enough that the API server keeps connections to both replicas open and has requests on the way at any moment.
CREATORS = 4
# One creation of so many is a real one, so that they don't fill the cluster.
REAL = 50


class Stream:
    """Creates pods of ours as fast as the API server takes them, nearly all as dry runs: admission is the same."""

    def __init__(self, cluster: Cluster, describe: Callable[..., Json]) -> None:
        """Nothing is created before the `with`."""
        # Not kubectl, which asks five times a second at most. The client's methods are typed for its own classes.
        loaded = config.new_client_from_config(str(cluster.kubeconfig), f"kind-{cluster.name}")  # type: ignore[no-untyped-call]
        self._api: Any = client.CoreV1Api(loaded)
        self._describe = describe
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._create, args=(i,)) for i in range(CREATORS)]
        self._counts = [0] * CREATORS
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for those on the way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def count(self) -> int:
        """How many creates have been answered."""
        return sum(self._counts)

    def wait_for(self, more: int) -> None:
        """Wait until so many more have been answered."""
        goal = self.count + more
        eventually(f"{more} more creates", lambda: self.count >= goal, 60)

    def _create(self, creator: int) -> None:
        while not self._stop.is_set():
            number = creator + CREATORS * self._counts[creator]
            # A node that is not there: such pods wait, and no kubelet has to start them.
            (pod,) = self._describe("streamed", [number], "{}=node9:0".format)["items"]
            options = {} if self._counts[creator] % REAL == 0 else {"dry_run": "All"}
            try:
                self._api.create_namespaced_pod(TESTS, pod, _request_timeout=30, _preload_content=False, **options)
            except Exception as error:  # noqa: BLE001 - whatever fails a create is told by the test
                self.failures.append(str(error))
            self._counts[creator] += 1


@pytest.fixture
def drained(cluster: Cluster, healthy: None) -> Iterator[str]:
    """Name the node of one replica of the webhook; make it schedulable again afterwards."""
    node: str = system.replicas(cluster, system.WEBHOOK)[0]["spec"]["nodeName"]
    yield node
    cluster.kubectl("uncordon", node)


@pytest.mark.timeout(400)
def test_drain_of_a_webhooks_node_fails_no_create(
    cluster: Cluster, describe_many: Callable[..., Json], drained: str
) -> None:
    """A replica of the webhook is evicted while pods of ours are created: not one of the creates fails."""
    before = {pod["metadata"]["name"] for pod in system.replicas(cluster, system.WEBHOOK)}
    with Stream(cluster, describe_many) as stream:
        stream.wait_for(100)
        # Only the webhook's pods leave: a drain of everything is the cluster's business, not the webhook's.
        chosen = ("--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={system.WEBHOOK}")
        cluster.kubectl("drain", drained, *chosen, "--timeout=60s")
        system.wait_healthy(cluster)
        stream.wait_for(100)

    assert stream.failures == []
    after = system.replicas(cluster, system.WEBHOOK)
    assert len(before & {pod["metadata"]["name"] for pod in after}) == 1
    assert drained not in {pod["spec"]["nodeName"] for pod in after}
