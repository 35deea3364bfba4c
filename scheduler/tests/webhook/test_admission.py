import re
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from gpu_scheduler.webhook import admission
from tests.objects import Object, review
from tests.webhook.reviews import ask, patched, pod, serving


async def test_a_patch_makes_the_pod_right_and_a_second_one_is_not_needed() -> None:
    """Applied twice equals applied once, and /validate agrees with the result only."""
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
        assert refused["status"]["message"].startswith("EnvNotInjected: ")


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (pod("0=node1:x\n"), 400, "MapInvalid: cannot read placement map, line 1:"),
        (pod(name="train-7"), 400, "IndexNotInMap: "),
        (
            pod(containers=[{"name": "main", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "9"}]}]),
            403,
            "EnvConflict: ",
        ),
    ],
    ids=["a bad map", "an index without a line", "a variable of its own"],
)
async def test_a_refusal_has_a_code_a_reason_and_the_parsers_sentence(body: Object, code: int, word: str) -> None:
    """The same words from both paths."""
    async with serving() as (client, _, registry):
        for path in ("/mutate", "/validate"):
            response = await ask(client, path, review(body))

            assert response["allowed"] is False
            assert response["status"]["code"] == code
            assert response["status"]["message"].startswith(word)
        labels = {"path": "/mutate", "outcome": word.partition(":")[0]}
        assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1


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
async def test_what_is_not_ours_passes_untouched(body: Object) -> None:
    """Whoever registers us for too much does no harm."""
    async with serving() as (client, _, _registry):
        for path in ("/mutate", "/validate"):
            assert await ask(client, path, body) == {"uid": "review-1", "allowed": True}


async def test_an_unreadable_pod_is_refused_not_crashed_on() -> None:
    """A well-formed review of something odd gets a review back."""
    async with serving() as (client, _, _registry):
        response = await ask(client, "/mutate", review({"metadata": 5}))

        assert response["allowed"] is False
        assert response["status"]["code"] == 400
        assert response["status"]["message"] == (
            "RequestInvalid: cannot read the pod: Expected `object`, got `int` - at `$.metadata`; "
            "write it as the API defines it: kubectl explain pod --recursive"
        )


@pytest.mark.parametrize("body", [b"", b"[]", b'{"request": null}', b"\xff\xfe", b'{"request": {"uid": 5}}'])
async def test_what_is_no_review_gets_a_400_and_a_sentence(body: bytes) -> None:
    """Never a 500."""
    async with serving() as (client, _, _registry):
        async with client.post("/mutate", data=body) as response:
            assert response.status == 400
            assert (await response.text()).startswith("cannot read AdmissionReview: ")
        async with client.get("/mutate") as response:
            assert response.status == 405


async def test_a_pod_that_takes_any_line_reads_our_annotation() -> None:
    """Its name is yet to be made up at /mutate, and is there at /validate: both say the same of it."""
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
    """An update of the subresource is looked at as a creation is."""
    async with serving() as (client, _, _registry):
        old = patched(pod(), await ask(client, "/mutate", review(pod())))
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
        about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
        right = patched(new, await ask(client, "/mutate", review(new, **about)))

        assert right["spec"]["ephemeralContainers"][0]["env"] == old["spec"]["containers"][0]["env"]
        assert (await ask(client, "/validate", review(right, **about)))["allowed"]
        assert not (await ask(client, "/validate", review(new, **about)))["allowed"]


async def test_a_body_beyond_measure_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded whoever sends."""
    monkeypatch.setattr(admission, "MAX_BODY", 1000)
    async with serving() as (client, _, _registry), client.post("/mutate", data=b"x" * 2000) as response:
        assert response.status == 413


async def test_a_body_of_unknown_length_is_not_read() -> None:
    """The API server announces every length; memory cannot be kept for what nobody knows."""

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"

    async with serving() as (client, _, _registry), client.post("/mutate", data=drip()) as response:
        assert response.status == 411


async def test_a_pod_of_too_many_fields_is_refused_before_it_is_read() -> None:
    """60,000 containers cost 0.4 s of everybody's time; the author reads how many are too many."""
    giant = pod(containers=[{"name": f"c{number}", "image": "none"} for number in range(60_000)])
    async with serving() as (client, _, registry):
        for path in ("/mutate", "/validate"):
            response = await ask(client, path, review(giant))

            assert not response["allowed"]
            assert re.fullmatch(
                r"RequestInvalid: cannot review a pod of 1200\d\d fields: at most 40000 are read; split it .*",
                response["status"]["message"],
            )
        labels = {"path": "/mutate", "outcome": "RequestInvalid"}
        assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1


async def test_a_large_pod_is_reviewed_as_any_other() -> None:
    """As many containers and variables as an honest pod has, and a text as long as etcd takes it."""
    variables = [{"name": f"V{number}", "value": "x:y"} for number in range(40)]
    containers = [{"name": f"c{number}", "image": "none", "env": list(variables)} for number in range(60)]
    containers[0]["args"] = ["x" * 1_500_000]
    async with serving() as (client, _, _registry):
        large = pod(containers=containers)
        right = patched(large, await ask(client, "/mutate", review(large)))
        assert (await ask(client, "/validate", review(right)))["allowed"]


async def test_what_a_forged_review_says_is_cut_in_our_log() -> None:
    """Whoever sends a review of his own making chooses its names, and has no line as long as a body."""
    forged = review(pod("nonsense"), name="n" * 100_000, namespace="m" * 100_000)
    async with serving() as (client, _, _registry):
        with capture_logs() as lines:
            assert not (await ask(client, "/mutate", forged))["allowed"]
        (line,) = lines
        assert len(str(line)) < 3_000
        async with client.post("/mutate", json=review(pod(), uid="u" * 1000)) as response:
            assert response.status == 400


async def test_a_draining_replica_sends_its_callers_elsewhere() -> None:
    """It still answers, and asks for the connection to be closed."""
    async with serving() as (client, webhook, _registry):
        webhook.draining = True
        async with client.post("/mutate", json=review(pod())) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
