"""Events as they are sent to the API server."""

from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

from gpu_scheduler.kube.events import NORMAL, Event, Events, ObjectRef
from gpu_scheduler.kube.http.client import ApiClient, NoResponseError
from unit_tests.kube.server import Reply, connected

PATH = "/apis/events.k8s.io/v1/namespaces/ml/events"
TUNE = ObjectRef("agentaflow.io/v1", "GPUWorkload", "ml", "tune", "uid-1")
STARTED = Event(NORMAL, "Started", "Running", "pod tune-0 runs")


async def test_an_event_has_the_fields_that_kubernetes_asks_for() -> None:
    """Its name is the object's, with a number that never repeats."""
    async with connected() as (server, api):
        server.on("POST", PATH, Reply(201, body={}))
        events = Events(api, controller="c", instance="i" * 200, wall=lambda: datetime(2026, 1, 2, 3, tzinfo=UTC))
        await events.create(TUNE, STARTED)
        await events.create(TUNE, STARTED)
        first, second = (request.body for request in server.asked("POST"))

    names = {first["metadata"].pop("name"), second["metadata"].pop("name")}
    assert len(names) == 2
    assert all(name.startswith("tune.") for name in names)
    assert first == second
    assert first == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ml"},
        "eventTime": "2026-01-02T03:00:00.000000Z",
        "type": "Normal",
        "reason": "Started",
        "action": "Running",
        "note": "pod tune-0 runs",
        "reportingController": "c",
        "reportingInstance": "i" * 128,
        "regarding": {
            "apiVersion": "agentaflow.io/v1",
            "kind": "GPUWorkload",
            "namespace": "ml",
            "name": "tune",
            "uid": "uid-1",
        },
    }


@pytest.mark.parametrize("reply", [Reply(403, body={"message": "no"}), Reply(500, body={})], ids=["refused", "fault"])
async def test_an_event_that_cannot_be_written_is_logged(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    """It is news: nothing depends on it, and it is not tried again."""
    async with connected() as (server, api):
        server.on("POST", PATH, reply)
        await Events(api, controller="c", instance="i", wall=lambda: datetime.now(UTC)).create(TUNE, STARTED)
        assert len(server.asked("POST")) == 1
    assert "An event could not be written" in caplog.text


async def test_a_silent_api_server_costs_the_event(caplog: pytest.LogCaptureFixture) -> None:
    """After the time-out of a request."""
    api = Mock(spec=ApiClient)
    api.call.side_effect = NoResponseError("no answer within 3 s")
    await Events(api, controller="c", instance="i", wall=lambda: datetime.now(UTC)).create(TUNE, STARTED)
    assert "An event could not be written" in caplog.text
