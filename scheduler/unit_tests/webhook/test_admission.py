import logging
import re
from collections.abc import AsyncIterator

import pytest

from gpu_scheduler.core.pods.request import COUNT_IGNORED
from gpu_scheduler.webhook import admission
from tests import objects
from tests.messages import says, text_of
from tests.objects import Object, review
from unit_tests.webhook.reviews import MAP, ask, patched, pod, reviews_counted, serving


@pytest.mark.promise("hook-4")
async def test_a_patch_is_complete_and_needed_once() -> None:
    """A second review adds nothing, and /validate accepts only the patched pod."""
    async with serving() as (client, _, _registry):
        first = await ask(client, "/mutate", review(pod()))
        right = patched(pod(), first)
        again = await ask(client, "/mutate", review(right))

        assert first["allowed"]
        assert right["spec"]["containers"][0]["env"] == [
            {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
            {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        ]
        assert (again["allowed"], "patch" in again) == (True, False)
        assert (await ask(client, "/validate", review(right)))["allowed"]
        refused = await ask(client, "/validate", review(pod()))
        says(refused["status"]["message"], "EnvNotInjected")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (pod("0=node1:x\n"), 400, f"MapInvalid: {text_of('a line of a map breaks a rule').partition('{')[0]}1: "),
        (pod(name="train-7"), 400, "IndexNotInMap: "),
        (
            pod(containers=[{"name": "main", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "9"}]}]),
            403,
            "EnvConflict: ",
        ),
    ],
    ids=["a bad map", "an index without a line", "a variable of its own"],
)
async def test_a_refusal_has_a_code_a_reason_and_the_parsers_message(body: Object, code: int, message: str) -> None:
    """The message is the same from both paths."""
    async with serving() as (client, _, registry):
        for path in ("/mutate", "/validate"):
            response = await ask(client, path, review(body))

            assert response["allowed"] is False
            assert response["status"]["code"] == code
            assert response["status"]["message"].startswith(message)
        assert reviews_counted(registry, "/mutate", message.partition(":")[0]) == 1


@pytest.mark.parametrize(
    "body",
    [
        review(pod("nonsense", schedulerName="default-scheduler")),
        review(pod("nonsense"), kind={"kind": "Deployment"}),
        review(pod("nonsense"), operation="UPDATE"),
        review(None, operation="DELETE", oldObject=pod("nonsense")),
        review(pod(None)),
    ],
    ids=["another scheduler's pod", "no pod", "an update", "a deletion", "no map"],
)
async def test_foreign_objects_are_allowed_unchanged(body: Object) -> None:
    """A webhook configuration that selects too many objects does no harm."""
    async with serving() as (client, _, _registry):
        for path in ("/mutate", "/validate"):
            assert await ask(client, path, body) == {"uid": "review-1", "allowed": True}


UNKNOWN = {"agentaflow.gpu/memroy": "8192", "gpu-schedulling-map": "0=node1:0"}
WARNINGS = [
    'annotation "agentaflow.gpu/memroy" is unknown: did you mean agentaflow.gpu/memory?',
    'annotation "gpu-schedulling-map" is unknown: did you mean gpu-scheduling-map?',
]
MISSPELT = {
    "a pod with a map": (objects.pod("train-0", MAP, annotations=UNKNOWN), True),
    "a pod that asks for nothing": (objects.pod("train-0", annotations=UNKNOWN), True),
    "a refused pod": (objects.pod("train-0", "nonsense", annotations=UNKNOWN), False),
}


@pytest.mark.promise("text-13")
@pytest.mark.parametrize(("body", "allowed"), MISSPELT.values(), ids=MISSPELT)
async def test_a_misspelt_annotation_causes_a_warning(body: Object, allowed: bool) -> None:  # noqa: FBT001
    """Admitted or refused: the missing annotation may be why. `kubectl` prints each warning once."""
    async with serving() as (client, _, _registry):
        response = await ask(client, "/mutate", review(body))

        assert response["allowed"] is allowed
        assert response["warnings"] == WARNINGS
        assert "warnings" not in await ask(client, "/validate", review(patched(body, response)))


@pytest.mark.promise("text-13")
async def test_a_count_beside_a_map_causes_a_warning() -> None:
    """The map decides, so the count means nothing."""
    async with serving() as (client, _, _registry):
        both = objects.pod("train-0", MAP, annotations={"agentaflow.gpu/count": "2"})
        response = await ask(client, "/mutate", review(both))

        assert response["allowed"] is True
        assert response["warnings"] == [COUNT_IGNORED]


async def test_who_debugs_a_pod_is_not_warned() -> None:
    """The annotations are not theirs, and nobody can change those of an existing pod."""
    async with serving() as (client, _, _registry):
        old = objects.pod("train-0", MAP, objects.literal("0,1"), annotations=UNKNOWN)
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
        about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
        response = await ask(client, "/mutate", review(new, **about))

        assert (response["allowed"], "warnings" in response) == (True, False)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"request": null}', b"\xff\xfe", b'{"request": {"uid": 5}}'])
async def test_an_invalid_review_gets_a_400_and_a_message(body: bytes) -> None:
    """Never a 500."""
    async with serving() as (client, _, _registry):
        async with client.post("/mutate", data=body) as response:
            assert response.status == 400
            assert (await response.text()).startswith("cannot read AdmissionReview: ")
        async with client.get("/mutate") as response:
            assert response.status == 405


async def test_a_pod_that_takes_any_line_reads_our_annotation() -> None:
    """The pod has no name yet at /mutate, and has one at /validate: both give the same result."""
    generated = pod(name="")
    generated["metadata"]["generateName"] = "web-"
    async with serving() as (client, _, _registry):
        right = patched(generated, await ask(client, "/mutate", review(generated)))
        right["metadata"]["name"] = "web-24567"

        assert right["spec"]["containers"][0]["env"][0] == {
            "name": "CUDA_VISIBLE_DEVICES",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}},
        }
        assert await ask(client, "/mutate", review(right)) == {"uid": "review-1", "allowed": True}
        assert await ask(client, "/validate", review(right)) == {"uid": "review-1", "allowed": True}


async def test_a_debug_container_is_completed_and_then_valid() -> None:
    """An update of the subresource is reviewed like a creation."""
    async with serving() as (client, _, _registry):
        old = patched(pod(), await ask(client, "/mutate", review(pod())))
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
        about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
        right = patched(new, await ask(client, "/mutate", review(new, **about)))

        assert right["spec"]["ephemeralContainers"][0]["env"] == old["spec"]["containers"][0]["env"]
        assert (await ask(client, "/validate", review(right, **about)))["allowed"]
        assert not (await ask(client, "/validate", review(new, **about)))["allowed"]


async def test_a_body_over_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded for every client."""
    monkeypatch.setattr(admission, "MAX_BODY", 1000)
    async with serving() as (client, _, _registry), client.post("/mutate", data=b"x" * 2000) as response:
        assert response.status == 413


async def test_a_body_of_unknown_length_is_not_read() -> None:
    """The API server sends every length. Memory cannot be reserved for an unknown length."""

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"

    async with serving() as (client, _, _registry), client.post("/mutate", data=drip()) as response:
        assert response.status == 411


@pytest.mark.promise("serve-3")
async def test_a_pod_of_too_many_fields_is_refused_before_it_is_read() -> None:
    """60,000 containers would delay all other reviews by 0.4 s. The message gives the largest number of fields."""
    giant = pod(containers=[{"name": f"c{number}", "image": "none"} for number in range(60_000)])
    async with serving() as (client, _, registry):
        for path in ("/mutate", "/validate"):
            response = await ask(client, path, review(giant))

            assert not response["allowed"]
            assert re.fullmatch(
                r"RequestInvalid: cannot review a pod of 1200\d\d fields: at most 40000 are read; split it .*",
                response["status"]["message"],
            )
        assert reviews_counted(registry, "/mutate", "RequestInvalid") == 1


async def test_a_large_pod_is_reviewed_as_any_other() -> None:
    """As many containers and variables as an honest pod has, and a text as long as etcd takes it."""
    variables = [{"name": f"V{number}", "value": "x:y"} for number in range(40)]
    containers = [{"name": f"c{number}", "image": "none", "env": list(variables)} for number in range(60)]
    containers[0]["args"] = ["x" * 1_500_000]
    async with serving() as (client, _, _registry):
        large = pod(containers=containers)
        right = patched(large, await ask(client, "/mutate", review(large)))
        assert (await ask(client, "/validate", review(right)))["allowed"]


async def test_a_forged_review_is_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The client chooses the names in a forged review. A log line stays shorter than a body."""
    forged = review(pod("nonsense"), name="n" * 100_000, namespace="m" * 100_000)
    async with serving() as (client, _, _registry):
        caplog.set_level(logging.INFO, "gpu_scheduler.webhook")
        assert not (await ask(client, "/mutate", forged))["allowed"]
        (line,) = caplog.records
        assert len(str(line.__dict__)) < 3_000
        async with client.post("/mutate", json=review(pod(), uid="u" * 1000)) as response:
            assert response.status == 400


async def test_a_draining_replica_closes_its_connections() -> None:
    """It still responds, and asks the client to close the connection."""
    async with serving() as (client, webhook, _registry):
        webhook.draining = True
        async with client.post("/mutate", json=review(pod())) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
