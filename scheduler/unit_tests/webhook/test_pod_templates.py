"""Kubernetes' own controllers at /warn, whatever they contain: never refused, never changed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_scheduler.webhook.pod_templates import GROUPS
from tests.messages import says
from tests.objects import Object, review
from unit_tests import virtual
from unit_tests.webhook.reviews import Client, ask, reviews_counted, serving, with_odd_values

Json = Any
LINES = "0=node1:0\n1=node1:1\n2=node1:2\n"


def template(lines: str | None = LINES, scheduler: str | None = "gpu-scheduler", **spec: Json) -> Object:
    """Return a pod template with a map of three lines."""
    annotations = {} if lines is None else {"gpu-scheduling-map": lines}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none"}], "schedulerName": scheduler, **spec},
    }


def controller(pods: Json = None, annotations: Json = None, **spec: Json) -> Object:
    return {"metadata": {"name": "train", "annotations": annotations}, "spec": {"template": pods or template(), **spec}}


def cron_job(**spec: Json) -> Object:
    return {"metadata": {"name": "night"}, "spec": {"jobTemplate": {"spec": {"template": template(), **spec}}}}


def rolling(surge: Json, unavailable: Json, kind: str = "RollingUpdate") -> Object:
    return {"type": kind, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def reviewed(body: Json, kind: str, **more: Json) -> Object:
    return review(body, **{"kind": {"group": GROUPS.get(kind, ""), "version": "v1", "kind": kind}, **more})


async def warnings_of(client: Client, body: Json, kind: str, **more: Json) -> list[str]:
    """Return the warnings of an answer, which must allow the object and change nothing."""
    answer = await ask(client, "/warn", reviewed(body, kind, **more))
    assert answer.keys() <= {"uid", "allowed", "warnings"}
    assert answer["allowed"] is True
    warnings: list[str] = answer.get("warnings", [])
    assert all(each.isprintable() and len(each.encode()) <= 1000 for each in warnings)
    assert sum(map(len, warnings)) < 4096
    return warnings


# Kind, object, and how the warning begins, if there is one.
EXPECTED: dict[str, tuple[str, Json, tuple[str, ...]]] = {
    "replicas have lines": ("StatefulSet", controller(replicas=3), ()),
    "more replicas than lines": ("StatefulSet", controller(replicas=4), ("IndexNotInMap", "index 3")),
    "one replica, if none are written": ("StatefulSet", controller(), ()),
    "ordinals start at 1": ("StatefulSet", controller(replicas=3, ordinals={"start": 1}), ("IndexNotInMap", "index 3")),
    "a start that is null": ("StatefulSet", controller(replicas=3, ordinals={"start": None}), ()),
    "a ReplicaSet": ("ReplicaSet", controller(replicas=4), ("NoFreeIndex", "4 pods")),
    "a Deployment with too few lines": ("Deployment", controller(replicas=4), ("NoFreeIndex", "4 pods")),
    "a roll-out by default: 25% of 3 is 0": ("Deployment", controller(replicas=3), ("NoFreeIndex", "3 pods")),
    "25% of 4 is 1": ("Deployment", controller(template(LINES + "3=node1:3\n"), replicas=4), ()),
    "a roll-out that removes none": (
        "Deployment",
        controller(replicas=3, strategy=rolling(1, 0)),
        ("NoFreeIndex", "3 pods"),
    ),
    "a roll-out that removes one": ("Deployment", controller(replicas=3, strategy=rolling(1, 1)), ()),
    "a roll-out that removes a third": ("Deployment", controller(replicas=3, strategy=rolling("25%", "34%")), ()),
    "a roll-out that may neither add nor remove": ("Deployment", controller(replicas=3, strategy=rolling(0, "9%")), ()),
    "a percentage that is none": ("Deployment", controller(replicas=3, strategy=rolling("x%", "-1%")), ()),
    "a roll-out by Recreate": ("Deployment", controller(replicas=3, strategy={"type": "Recreate"}), ()),
    "a Job": ("Job", controller(completions=9), ()),
    "an Indexed Job": ("Job", controller(completions=4, completionMode="Indexed"), ("IndexNotInMap", "index 3")),
    "a Job with a bad map": ("Job", controller(template("nonsense")), ("MapInvalid", "line 1")),
    "a CronJob": ("CronJob", cron_job(completions=4, completionMode="Indexed"), ("IndexNotInMap", "index 3")),
    "a DaemonSet, whose number of pods nobody knows": ("DaemonSet", controller(), ()),
    "a DaemonSet with a bad map": ("DaemonSet", controller(template("nonsense")), ("MapInvalid", "line 1")),
    "nothing asked for": ("Job", controller(template(None)), ("NothingRequested",)),
    "a claim that this scheduler does not read": (
        "Job",
        controller(template(resourceClaims=[{"name": "gpu"}])),
        ("Unsupported",),
    ),
    "a variable of the container's own": (
        "StatefulSet",
        controller(template(containers=[{"name": "main", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]}])),
        ("EnvConflict",),
    ),
    "a map on the controller": (
        "Job",
        controller(template(None), {"gpu-scheduling-map": LINES}),
        ("NothingRequested",),
    ),
    "another scheduler": ("StatefulSet", controller(template("nonsense", "volcano")), ()),
    "no scheduler": ("StatefulSet", controller(template("nonsense", None)), ()),
    "a template without a pod": ("StatefulSet", controller({"metadata": {}}), ()),
    "no template": ("StatefulSet", {"metadata": {}, "spec": {"template": None}}, ()),
    "no template of jobs": ("CronJob", {"metadata": {}, "spec": {}}, ()),
    "no specification": ("StatefulSet", {"metadata": {}, "spec": None}, ()),
    "no object": ("StatefulSet", None, ()),
    "nulls wherever there may be some": (
        "StatefulSet",
        {"metadata": None, "spec": {"template": {"metadata": None, "spec": {"schedulerName": "gpu-scheduler"}}}},
        ("NothingRequested",),
    ),
    "a text": ("StatefulSet", "train", ("RequestInvalid",)),
    "a number too large for any computer": ("Job", controller(replicas=10**30), ("RequestInvalid",)),
    "fewer than no replicas": ("StatefulSet", controller(replicas=-1), ("RequestInvalid",)),
    "more replicas than the API allows": ("StatefulSet", controller(replicas=2**31), ("RequestInvalid",)),
    "a map of 70 kB": ("Job", controller(template("0=node1:0\n" * 7_000)), ("MapInvalid",)),
    "thousands of containers": (
        "Job",
        controller(template(containers=[{"name": f"c{number}"} for number in range(5000)])),
        ("RequestInvalid",),
    ),
    "more fields than are read": (
        "Job",
        controller(template(containers=[{"name": f"c{number}"} for number in range(50_000)])),
        ("RequestInvalid",),
    ),
    "foreign fields that are wrong": ("Job", controller(template("0=n:0", "volcano", containers="none")), ()),
    "control characters": ("Job", controller(template("\x00\x1b[2J\u202e")), ("MapInvalid",)),
}


@pytest.mark.promise("warn-1", "warn-2", "warn-3")
@pytest.mark.parametrize(("kind", "body", "said"), EXPECTED.values(), ids=EXPECTED)
async def test_a_controller_is_allowed_with_a_warning_where_its_pods_could_not_be_placed(
    kind: str, body: Json, said: tuple[str, ...]
) -> None:
    """When it is created and when it is changed. The counter has the reason."""
    async with serving() as (client, _, registry):
        for more in ({}, {"operation": "UPDATE", "oldObject": body}):
            warnings = await warnings_of(client, body, kind, **more)

            assert bool(warnings) == bool(said)
            if said:
                says(warnings[0], *said)
        outcome = said[0] if said else "allowed"
        assert reviews_counted(registry, "/warn", outcome) == 2


async def test_each_fault_is_a_warning_of_its_own() -> None:
    """The text, the lines, annotations that no pod gets, and misspelt keys."""
    pods = template(LINES, resourceClaims=[{"name": "gpu"}])
    pods["metadata"]["annotations"]["agentaflow.gpu/memroy"] = "1"
    async with serving() as (client, _, _registry):
        warnings = await warnings_of(
            client, controller(pods, {"agentaflow.gpu/sharing": "any"}, replicas=4), "StatefulSet"
        )

        assert [each.split()[0] for each in warnings] == ["Unsupported:", "IndexNotInMap:", "annotation", "annotation"]


@pytest.mark.parametrize(
    "body",
    [
        review(controller(template("nonsense")), kind={"group": "example.com", "kind": "StatefulSet"}),
        review(controller(template("nonsense")), kind={"group": "apps", "kind": "ControllerRevision"}),
        reviewed(controller(template("nonsense")), "StatefulSet", subResource="status"),
        reviewed(None, "StatefulSet", operation="DELETE", oldObject=controller(template("nonsense"))),
    ],
    ids=["another group", "another kind", "a status", "a deletion"],
)
async def test_foreign_objects_are_allowed_in_silence(body: Object) -> None:
    """A registration that selects too many objects does no harm."""
    async with serving() as (client, _, _registry):
        assert await ask(client, "/warn", body) == {"uid": "review-1", "allowed": True}


ORDINARY = controller(
    template(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
    ),
    {"agentaflow.gpu/count": "1"},
    replicas=4,
    ordinals={"start": 1},
    strategy=rolling("25%", 0),
    completions=4,
    completionMode="Indexed",
    jobTemplate={"spec": {"template": template(), "completions": 1}},
)


@pytest.mark.promise("warn-3")
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(with_odd_values(ORDINARY), st.sampled_from(sorted(GROUPS))), min_size=20, max_size=20))
def test_any_odd_value_is_allowed(given_bodies: list[tuple[Json, str]]) -> None:
    """Whatever value a field has."""

    async def all_of_them() -> None:
        async with serving() as (client, _, _registry):
            for body, kind in given_bodies:
                await warnings_of(client, body, kind)

    virtual.run(all_of_them())
