import pytest

from gpu_scheduler.scheduler.binder import ApiVolumeBinder
from tests.messages import text_of
from unit_tests.fakes import Gate
from unit_tests.kube.server import Reply, connected

CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"


async def test_one_annotation_is_all_that_is_written() -> None:
    """A merge patch leaves everything else of the claim unchanged."""
    async with connected() as (server, api):
        server.on("PATCH", CLAIM, Reply(200, {"kind": "PersistentVolumeClaim"}))

        assert await ApiVolumeBinder(api, Gate()).select("default", "data", "node1") is None

        (sent,) = server.requests
        assert sent.body == {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node1"}}}
        assert sent.headers["Content-Type"] == "application/merge-patch+json"


@pytest.mark.promise("lead-1")
async def test_nothing_is_written_outside_the_leaders_window() -> None:
    """The volume binder checks the fence right before the write. Its result says why nothing was written."""
    async with connected() as (server, api):
        why = await ApiVolumeBinder(api, Gate(open=False)).select("default", "data", "node1")

        assert why == text_of("a Lease no longer allows a write")
        assert server.requests == []


REFUSALS = {
    "a claim that is gone": (Reply(404, {"message": "not found"}), "HTTP 404: not found"),
    "a right that is missing": (Reply(403, {"message": "forbidden"}), "HTTP 403: forbidden"),
    "a conflict": (Reply(409, {"message": "try again"}), "HTTP 409: try again"),
    "a server that is busy": (Reply(429, "slow down"), "HTTP 429: slow down"),
    "a fault without a message": (Reply(500, ""), "HTTP 500: "),
    "a fault with nonsense": (Reply(503, "<html>"), "HTTP 503: <html>"),
}


@pytest.mark.parametrize(("reply", "why"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_returned_and_never_raised(reply: Reply, why: str) -> None:
    """The volume binder tries once. The scheduling loop decides when the next try is due."""
    async with connected() as (server, api):
        server.on("PATCH", CLAIM, reply)

        assert await ApiVolumeBinder(api, Gate()).select("default", "data", "node1") == why
        assert len(server.requests) == 1


async def test_a_missing_answer_is_returned_and_never_raised() -> None:
    """The watch will show whether the annotation was written. Another write of it is harmless."""
    async with connected() as (server, api):
        server.on("PATCH", CLAIM, Reply(200, hang=True))

        why = await ApiVolumeBinder(api, Gate()).select("default", "data", "node1")

        assert why is not None
        assert CLAIM in why


async def test_no_name_leads_to_another_path() -> None:
    """A pod's author chooses the name of the claim."""
    async with connected() as (server, api):
        await ApiVolumeBinder(api, Gate()).select("default", "../secrets/x", "node1")

        (sent,) = server.requests
        assert sent.path.startswith("/api/v1/namespaces/default/persistentvolumeclaims/")
