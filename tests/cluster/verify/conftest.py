"""Fixtures of the tests that damage the system: workloads that are deleted after the test, and a healthy system."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster, Json
from tests.cluster.verify.pods import selected
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.cluster.verify.pods import MakePod


@pytest.fixture
def describe_many(cluster: Cluster, make_pod: MakePod) -> Iterator[Callable[..., Json]]:
    """Return a function that describes a list of numbered pods of ours, each with a map. Delete them after the test."""
    templates: dict[str, Json] = {}

    def describe(name: str, numbers: Iterable[int], text: Callable[[int], str]) -> Json:
        if name not in templates:
            templates[name] = make_pod(name, "")
        items = []
        for number in numbers:
            metadata = {
                "name": f"{name}-{number}",
                "namespace": TESTS,
                "labels": {"app": name},
                "annotations": {"gpu-scheduling-map": text(number)},
            }
            items.append({**templates[name], "metadata": metadata})
        return {"apiVersion": "v1", "kind": "List", "items": items}

    yield describe
    for name in templates:
        # One request: kubectl itself deletes five a second.
        cluster.kubectl("delete", "--raw", f"/api/v1/namespaces/{TESTS}/pods?labelSelector=app%3D{name}")
        eventually(f"the pods {name} to be gone", partial(_gone, cluster, name), 90, 0.5)


def _gone(cluster: Cluster, name: str) -> bool:
    return not selected(cluster, f"app={name}")
