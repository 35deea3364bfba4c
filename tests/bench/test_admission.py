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


def reported(pods: list[Any], contender: str) -> list[str]:
    return list(uncompleted(cast("ClusterUnderTest", Made(pods)), PODS, contender))


def pods(*, admitted: bool) -> list[Any]:
    return [body for _, body in PODS.pod_requests("gpu-scheduler", admitted=admitted)]


@pytest.mark.parametrize(("contender", "other"), [("O", "P"), ("P", "O")])
def test_pods_are_checked_for_what_they_see(contender: str, other: str) -> None:
    """With our webhook exactly their own GPUs, without it none; a missing pod is reported too."""
    made = {"O": pods(admitted=True), "P": pods(admitted=False)}
    assert reported(made[contender], contender) == []
    first, second, third = reported(made[other], contender)
    assert first.startswith("w0000-0 sees ")
    assert second.startswith("w0000-1 sees ")
    assert third.endswith(" and not what its line says")
    assert reported(made[contender][1:], contender) == ["2 of 3 pods were created"]


def test_the_bare_handler_gives_every_pod_the_same_gpu() -> None:
    """Pods whose lines name it are right by chance."""
    assert [each.partition(" sees ")[0] for each in reported(pods(admitted=True), "H")] == ["w0000-2"]


def test_another_pods_gpu_is_reported() -> None:
    """A literal value must also be the right one."""
    first, second, third = pods(admitted=True)
    assert PODS.place(next(PODS.members())) == ("node-00000", 0)
    first["spec"]["containers"][0]["env"][0]["value"] = "1"
    (sentence,) = reported([first, second, third], "O")
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
