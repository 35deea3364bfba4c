"""Whatever a pod contains, the webhook sends a typed response with a printable message."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import text_of
from tests.objects import Object, review
from unit_tests import virtual
from unit_tests.webhook.reviews import MAP, Client, ask, pod, refusal_of, reviews_counted, serving, with_odd_values

Json = Any
NULLS: Object = {
    "metadata": dict.fromkeys(("name", "labels", "annotations", "ownerReferences", "managedFields", "generateName")),
    "spec": {
        "schedulerName": "gpu-scheduler",
        **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "schedulingGates", "volumes")),
        **dict.fromkeys(("affinity", "tolerations", "resourceClaims", "topologySpreadConstraints", "nodeSelector")),
    },
    "status": None,
}


def annotated(**annotations: str) -> Object:
    body = pod()
    body["metadata"]["annotations"].update({f"agentaflow.gpu/{key}": value for key, value in annotations.items()})
    return body


def named(name: str) -> Object:
    return pod(containers=[{"name": name, "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": name}]}])


# Pod → reason of its refusal, or None if it is allowed.
CORPUS: dict[str, tuple[Json, str | None]] = {
    "nulls wherever there may be some": (NULLS, None),
    "nulls, and a map": ({**NULLS, "metadata": {"name": "train-0", "annotations": {"gpu-scheduling-map": MAP}}}, None),
    "a null among the containers": (pod(containers=[None]), "RequestInvalid"),
    "a null as a container's name": (pod(containers=[{"name": None}]), "RequestInvalid"),
    "a null as an annotation": ({**pod(), "metadata": {"annotations": {"a": None}}}, "RequestInvalid"),
    "a null among the variables": (pod(containers=[{"name": "main", "env": [None]}]), "RequestInvalid"),
    "null variables": (pod(containers=[{"name": "main", "env": None}]), None),
    "a variable that is null": (
        pod(containers=[{"name": "m", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": None, "valueFrom": None}]}]),
        "EnvConflict",
    ),
    "a variable from nowhere": (
        pod(containers=[{"name": "m", "env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {}}]}]),
        "EnvConflict",
    ),
    "a number as the map": ({**pod(), "metadata": {"annotations": {"gpu-scheduling-map": 5}}}, "RequestInvalid"),
    "no spec": ({"metadata": {}}, "RequestInvalid"),
    "no metadata": ({"spec": {"schedulerName": "gpu-scheduler"}}, "RequestInvalid"),
    "an empty object": ({}, "RequestInvalid"),
    "unknown fields everywhere": (
        {
            "apiVersion": "v9",
            "metadata": {"name": "train-0", "annotations": {"gpu-scheduling-map": MAP}, "x": {"y": [1, None]}},
            "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "m", "new": [{}]}], "new": {"a": 1}},
            "status": {"phase": "New", "new": 1},
            "new": [[[]]],
        },
        None,
    ),
    "a map of 256 kB": (pod("0=node1:0\n" * 25_600), "MapInvalid"),
    "a map of one endless line": (pod("0=node1:" + "0," * 30_000), "MapInvalid"),
    "a map of 256 kB of a character of four bytes": (pod("\U0001f600" * 65_536), "MapInvalid"),
    "a map of control characters": (pod("\x00\x1b[2J\u202e\u2028"), "MapInvalid"),
    "an index of 256 kB": (annotated(index="9" * 262_144), "IndexUnknown"),
    "an observer of 256 kB": (annotated(observer="\u00e9" * 131_072), "RequestInvalid"),
    "sharing with control characters": (annotated(sharing='any"\x00\x1b[31m\n'), "RequestInvalid"),
    "a count of 256 kB, and no map": (
        {**pod(None), "metadata": {"annotations": {"agentaflow.gpu/count": "9" * 262_144}}},
        "RequestInvalid",
    ),
    "a foreign annotation of 256 kB": (annotated(note="x" * 262_144), None),
    "a thousand unknown annotations of ours": (
        annotated(**{f"{number}{'x' * 57}": "1" for number in range(1000)}),
        None,
    ),
    "unknown annotations of ours with control characters": (annotated(**{'cou\x00"\x1b[31m\nt': "1"}), None),
    "an unknown annotation with a key of 256 kB": (annotated(**{"count" * 52_000: "1"}), None),
    "unknown annotations beside an invalid one": (annotated(cuont="1", sharing="x"), "RequestInvalid"),
    "a container's name in other alphabets": (named("\u7bb1\u202e\U0001f4e6"), "EnvConflict"),
    "a container's name of control characters": (named("\x00\n\r\x1b[31m\x7f"), "EnvConflict"),
    "a container's name of 256 kB": (named("\u00fc" * 131_072), "EnvConflict"),
    "a pod's name of control characters": (pod(name="\x00\n\x1b[31m-0"), None),
    "a pod's name of 256 kB": (pod(name="a" * 262_144 + "-0"), None),
    "a pod's name with a number of 256 kB": (pod(name="a-" + "1" * 262_144), None),
    "thousands of containers": (pod(containers=[{"name": f"c{number}"} for number in range(5000)]), "RequestInvalid"),
}


def deep(depth: int) -> bytes:
    """Return a review of a pod with an unread field that nests this deep."""
    body = json.dumps(review({"metadata": {"name": "train-0", "managedFields": "HERE"}, "spec": {}}))
    return body.replace('"HERE"', '{"f:a":' * depth + "1" + "}" * depth).encode()


async def responses(client: Client, body: Json) -> tuple[Object, Object]:
    return await ask(client, "/mutate", review(body)), await ask(client, "/validate", review(body))


def check(mutated: Object, validated: Object) -> str | None:
    """Check that both responses are typed and agree; return the reason of the refusal."""
    # Both paths review the pod; only the first one warns.
    warnings = mutated.pop("warnings", ())
    assert len(warnings) <= 3
    assert all(each.isprintable() and len(each) < 300 for each in warnings)
    if mutated["allowed"]:
        if "patch" not in mutated:
            assert mutated == validated
            return None
        assert refusal_of(validated).startswith("EnvNotInjected: ")
        return None
    assert mutated == validated
    assert mutated["status"]["code"] in {400, 403}
    return refusal_of(mutated).partition(":")[0]


@pytest.mark.parametrize(("body", "reason"), CORPUS.values(), ids=CORPUS)
async def test_a_hostile_pod_gets_a_typed_response(body: Json, reason: str | None) -> None:
    """Allowed, or refused with one sentence of at most 1,000 bytes, the same from both paths; never a 500."""
    async with serving() as (client, _, _registry):
        assert reason == check(*await responses(client, body))


async def test_a_hostile_debugged_pod_gets_a_typed_response() -> None:
    """Also if the old pod cannot be read."""
    async with serving() as (client, _, _registry):
        unreadable: list[Json] = [{}, [], {"metadata": 5}, {**pod(), "spec": {"ephemeralContainers": [None]}}]
        for old in unreadable:
            about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
            body = pod(ephemeralContainers=[{"name": "debugger"}])
            mutated = await ask(client, "/mutate", review(body, **about))

            assert mutated == await ask(client, "/validate", review(body, **about))
            assert mutated["status"]["message"].startswith(UNREADABLE)


UNREADABLE = text_of("a pod cannot be read")
BROKEN = {
    "text that is not UTF-8": json.dumps(review(pod(name="HERE"))).encode().replace(b"HERE", b"\xff\xfe"),
    "half a character": json.dumps(review(pod(name="HERE"))).encode().replace(b"HERE", b"\\ud800"),
    "a request that is cut off": json.dumps(review(pod())).encode()[:-40],
    "nesting that is far too deep": deep(100_000),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
async def test_an_undecodable_review_is_a_bad_request(body: bytes) -> None:
    """A refusal if the review itself can be read, or else status 400; both have a message."""
    async with serving() as (client, _, registry):
        async with client.post("/mutate", data=body) as response:
            text = await response.text()
            assert response.status in {200, 400}
            if response.status == 200:
                text = json.loads(text)["response"]["status"]["message"]
            assert text.startswith((UNREADABLE, "cannot read AdmissionReview: "))
            assert len(text.encode()) <= 1000
        counts = (reviews_counted(registry, "/mutate", outcome) for outcome in ("RequestInvalid", "malformed"))
        assert sum(count or 0 for count in counts) == 1


LATER = {"fieldRef": {"fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}}
ORDINARY = pod(
    containers=[{"name": "main", "env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": LATER}]}],
    initContainers=[{"name": "first", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}}],
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
    tolerations=[{"key": "a", "operator": "Exists"}],
    schedulingGates=[{"name": "gate"}],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
)
ORDINARY["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]


@settings(max_examples=15, deadline=None)
@given(st.lists(with_odd_values(ORDINARY), min_size=20, max_size=20))
def test_any_odd_value_gets_a_typed_response(bodies: list[Json]) -> None:
    """Whatever value a field has, the webhook sends a review as response."""

    async def all_of_them() -> None:
        async with serving() as (client, _, _registry):
            for body in bodies:
                check(*await responses(client, body))

    virtual.run(all_of_them())
