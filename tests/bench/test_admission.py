from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from bench.admission import uncompleted
from bench.cluster_objects import MappedPods
from bench.reviews import reviews

if TYPE_CHECKING:
    from bench.cluster import ClusterUnderTest

PODS = MappedPods(2, 3)


class Made:
    """A control plane that holds these pods."""

    def __init__(self, pods: list[Any]) -> None:
        self._pods = pods

    def items(self, path: str) -> list[bytes]:
        assert path == "/api/v1/pods"
        return [msgspec.json.encode(pod) for pod in self._pods]


def told(pods: list[Any], *, completed: bool) -> list[str]:
    return list(uncompleted(cast("ClusterUnderTest", Made(pods)), PODS, completed=completed))


def pods(*, admitted: bool) -> list[Any]:
    return [body for _, body in PODS.pod_requests("gpu-scheduler", admitted=admitted)]


@pytest.mark.parametrize("completed", [True, False])
def test_pods_are_looked_at_for_what_they_see(completed: bool) -> None:  # noqa: FBT001 - either way
    """With our webhook exactly their own GPUs, without it nothing; one that is missing is told too."""
    assert told(pods(admitted=completed), completed=completed) == []
    first, second, third = told(pods(admitted=not completed), completed=completed)
    assert first.startswith("w0000-0 sees ")
    assert second.startswith("w0000-1 sees ")
    assert third.endswith(" and not what its line says")
    assert told(pods(admitted=completed)[1:], completed=completed) == ["2 of 3 pods were created"]


def test_another_pods_gpu_is_told() -> None:
    """A literal is not enough."""
    first, second, third = pods(admitted=True)
    assert PODS.place(next(PODS.members())) == ("node-00000", 0)
    first["spec"]["containers"][0]["env"][0]["value"] = "1"
    (sentence,) = told([first, second, third], completed=True)
    assert sentence.startswith("w0000-0 sees [{'name': 'CUDA_VISIBLE_DEVICES', 'value': '1'}")


def test_a_review_asks_about_a_pod_that_nobody_has_completed() -> None:
    """Each has a uid of its own, and is as long as those of an API server."""
    made = [msgspec.json.decode(text) for text in reviews(PODS, "gpu-scheduler")]
    assert len({review["request"]["uid"] for review in made}) == len(made) == PODS.pods
    asked = made[2]["request"]
    assert (asked["operation"], asked["namespace"], asked["name"]) == ("CREATE", "objects-0", "w0000-2")
    assert "env" not in asked["object"]["spec"]["containers"][0]
    # One of 50 lines as kube-apiserver v1.36.3 writes it has 3,199 bytes.
    assert 3000 < len(next(reviews(MappedPods(100, 50), "gpu-scheduler"))) < 3500
