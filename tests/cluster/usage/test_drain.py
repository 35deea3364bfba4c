"""The node of one webhook replica is drained: no create of a pod fails meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.creating import Stream
from tests.cluster.verify import system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.clusters import Cluster, Json

# Enough that the API server keeps connections to both replicas open and always has requests in flight.
CREATORS = 4


@pytest.fixture
def drained(cluster: Cluster, healthy: None) -> Iterator[str]:
    """Yield the node of one replica of the webhook; uncordon it afterwards."""
    node: str = system.replicas(cluster, system.WEBHOOK)[0]["spec"]["nodeName"]
    yield node
    cluster.kubectl("uncordon", node)


@pytest.mark.timeout(400)
@pytest.mark.promise("hook-1")
def test_drain_of_a_webhooks_node_fails_no_create(
    cluster: Cluster, describe_many: Callable[..., Json], drained: str
) -> None:
    """A replica of the webhook is evicted while pods of ours are created: not one of the creates fails."""
    before = {pod["metadata"]["name"] for pod in system.replicas(cluster, system.WEBHOOK)}

    def describe(number: int) -> Json:
        # A node that does not exist: such pods wait, and no kubelet has to start them.
        pod: Json = describe_many("streamed", [number], "{}=node9:0".format)["items"][0]
        return pod

    with Stream(cluster, describe, creators=CREATORS) as stream:
        stream.wait_for(100)
        # Only the webhook's pods are evicted: the test is about the webhook, not about a drain of other workloads.
        chosen = ("--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={system.WEBHOOK}")
        cluster.kubectl("drain", drained, *chosen, "--timeout=60s")
        system.wait_healthy(cluster)
        stream.wait_for(100)

    assert stream.failures == []
    after = system.replicas(cluster, system.WEBHOOK)
    assert len(before & {pod["metadata"]["name"] for pod in after}) == 1
    assert drained not in {pod["spec"]["nodeName"] for pod in after}
