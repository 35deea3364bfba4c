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
    """A fake control plane with these pods."""

    def __init__(self, pods: list[Any]) -> None:
        self._pods = pods

    def items(self, path: str) -> list[bytes]:
        assert path == "/api/v1/pods"
        return [msgspec.json.encode(pod) for pod in self._pods]


def reported(pods: list[Any], *, completed: bool) -> list[str]:
    return list(uncompleted(cast("ClusterUnderTest", Made(pods)), PODS, completed=completed))


def pods(*, admitted: bool) -> list[Any]:
    return [body for _, body in PODS.pod_requests("gpu-scheduler", admitted=admitted)]


@pytest.mark.parametrize("completed", [True, False])
def test_pods_are_checked_for_what_they_see(completed: bool) -> None:  # noqa: FBT001 - either way
    """With our webhook exactly their own GPUs, without it none; a missing pod is reported too."""
    assert reported(pods(admitted=completed), completed=completed) == []
    first, second, third = reported(pods(admitted=not completed), completed=completed)
    assert first.startswith("w0000-0 sees ")
    assert second.startswith("w0000-1 sees ")
    assert third.endswith(" and not what its line says")
    assert reported(pods(admitted=completed)[1:], completed=completed) == ["2 of 3 pods were created"]


def test_another_pods_gpu_is_reported() -> None:
    """A literal value must also be the right one."""
    first, second, third = pods(admitted=True)
    assert PODS.place(next(PODS.members())) == ("node-00000", 0)
    first["spec"]["containers"][0]["env"][0]["value"] = "1"
    (sentence,) = reported([first, second, third], completed=True)
    assert sentence.startswith("w0000-0 sees [{'name': 'CUDA_VISIBLE_DEVICES', 'value': '1'}")


def test_a_review_contains_an_unpatched_pod() -> None:
    """Each review has a uid of its own, and is as long as an API server's."""
    made = [msgspec.json.decode(text) for text in reviews(PODS, "gpu-scheduler")]
    assert len({review["request"]["uid"] for review in made}) == len(made) == PODS.pods
    asked = made[2]["request"]
    assert (asked["operation"], asked["namespace"], asked["name"]) == ("CREATE", "objects-0", "w0000-2")
    assert "env" not in asked["object"]["spec"]["containers"][0]
    # A review with a map of 50 lines has 3,199 bytes as kube-apiserver v1.36.3 writes it.
    assert 3000 < len(next(reviews(MappedPods(100, 50), "gpu-scheduler"))) < 3500
