import pytest

from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import workload_of
from gpu_scheduler.core.refs import Owner

HASH = {"pod-template-hash": "5d9f7c"}
KEYS = {
    "a StatefulSet counts as itself": (Owner("StatefulSet", "web"), {}, ("StatefulSet", "web")),
    "a Deployment's ReplicaSet counts as the Deployment": (
        Owner("ReplicaSet", "web-5d9f7c"),
        HASH,
        ("Deployment", "web"),
    ),
    "a ReplicaSet of another hash counts as itself": (
        Owner("ReplicaSet", "web-aaaaa"),
        HASH,
        ("ReplicaSet", "web-aaaaa"),
    ),
    "a ReplicaSet without a hash counts as itself": (
        Owner("ReplicaSet", "web-5d9f7c"),
        {},
        ("ReplicaSet", "web-5d9f7c"),
    ),
    "an empty hash counts as no hash": (Owner("ReplicaSet", "web-"), {"pod-template-hash": ""}, ("ReplicaSet", "web-")),
    "a Job that ends like a hash counts as itself": (Owner("Job", "web-5d9f7c"), HASH, ("Job", "web-5d9f7c")),
    "bare pods of one map are one workload": (None, {}, ("", "")),
}


@pytest.mark.promise("index-7", "index-8")
@pytest.mark.parametrize(("owner", "labels", "expected"), KEYS.values(), ids=KEYS)
def test_workload(owner: Owner | None, labels: dict[str, str], expected: tuple[str, str]) -> None:
    """A workload is identified by namespace, top controller and parsed map."""
    placement_map = parse_placement_map("0=a:0")
    workload = workload_of(PodText("b", "web-0", owner=owner, labels=labels), placement_map)

    assert ("b", *expected, placement_map.digest) == (
        workload.namespace,
        workload.owner_kind,
        workload.owner_name,
        workload.map,
    )


NAMED = {
    "a controller, as kubectl names it": (Owner("ReplicaSet", "web-5d9f7c"), "Deployment/web"),
    "bare pods have none": (None, ""),
}


@pytest.mark.parametrize(("owner", "name"), NAMED.values(), ids=NAMED)
def test_a_workload_is_written_as_its_controller(owner: Owner | None, name: str) -> None:
    """The ledger shows a workload so."""
    given = PodText("b", "web-0", owner=owner, labels=HASH)

    assert name == str(workload_of(given, parse_placement_map("0=a:0")))
