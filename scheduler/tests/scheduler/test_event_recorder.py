import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler import event_recorder
from gpu_scheduler.scheduler.event_recorder import ApiEventRecorder
from gpu_scheduler.scheduler.ports import EventType, Notice
from tests.kube.server import FakeServer, Reply, connected, until

POD = PodRef("default", "train-0", "uid-1")
STATUS = "/api/v1/namespaces/default/pods/train-0/status"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SCHEDULED = Notice(EventType.NORMAL, "Scheduled", "Binding", "Successfully assigned")


def waiting(note: str) -> Notice:
    """A pod that waits."""
    condition = ScheduledCondition("False", "Unschedulable", note)
    return Notice(EventType.WARNING, "FailedScheduling", "Scheduling", note, condition)


@asynccontextmanager
async def announcing_to(*, busy: bool = False) -> AsyncIterator[tuple[FakeServer, ApiEventRecorder]]:
    """An announcer at work, beside binds that are as many as may be where they are `busy`."""
    async with connected() as (server, api):
        when = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
        recorder = ApiEventRecorder(
            api, controller="gpu-scheduler", instance="replica-0_ab12", wall=lambda: when, busy=lambda: busy
        )
        task = asyncio.create_task(recorder.run())
        try:
            yield server, recorder
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_placed_pod_costs_one_event() -> None:
    """Reported as Kubernetes' own scheduler does, about exactly this pod."""
    async with announcing_to() as (server, recorder):
        server.on("POST", EVENTS, Reply(201))

        assert recorder.record(POD, SCHEDULED)
        await recorder.flush(1)

        (event,) = server.requests
        assert event.body["metadata"]["namespace"] == "default"
        assert event.body["metadata"]["name"].startswith("train-0.")
        assert event.body["reportingController"] == "gpu-scheduler"
        assert event.body["reportingInstance"] == "replica-0_ab12"
        assert event.body["eventTime"] == "2026-11-20T08:30:00.000000Z"
        assert (event.body["type"], event.body["reason"], event.body["action"]) == ("Normal", "Scheduled", "Binding")
        assert event.body["regarding"]["uid"] == "uid-1"


async def test_a_waiting_pod_gets_condition_and_event_with_one_text() -> None:
    """The condition is merged by its type and bound to the uid."""
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(200))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("GpuHeld: GPU 3 of node4 is held"))
        await recorder.flush(1)

        patch, event = server.requests
        assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
        assert patch.body["metadata"] == {"uid": "uid-1"}
        (condition,) = patch.body["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"] == event.body["note"] == "GpuHeld: GPU 3 of node4 is held"


async def test_a_newer_notice_replaces_one_that_still_waits() -> None:
    """Only the last word of a quick succession is written."""
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(200))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("first"))
        recorder.record(POD, waiting("second"))
        await recorder.flush(1)

        assert [each.body["note"] for each in server.asked("POST")] == ["second"]


async def test_a_newer_notice_follows_one_that_is_being_written() -> None:
    """The one under way is not lost, and the newer one is written last."""
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(200, after=0.1))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("first"))
        await until(lambda: server.asked("PATCH"))
        recorder.record(POD, waiting("second"))
        await recorder.flush(2)

        assert server.asked("PATCH")[-1].body["status"]["conditions"][0]["message"] == "second"


async def test_a_condition_is_tried_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the pod's state: an outage must not leave a wrong one behind."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, *[Reply(503)] * 5, Reply(200))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("GpuHeld: held"))
        await recorder.flush(3)

        assert len(server.asked("PATCH")) == 6
        assert len(server.asked("POST")) == 1


async def test_an_event_is_news_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tries."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with announcing_to() as (server, recorder):
        server.on("POST", EVENTS, Reply(503))

        recorder.record(POD, SCHEDULED)
        await recorder.flush(2)

        assert len(server.asked("POST")) == 3


async def test_an_event_whose_answer_was_lost_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may have taken it: the next try has the same name, of which there can be but one."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with announcing_to() as (server, recorder):
        server.on("POST", EVENTS, Reply(504), Reply(409))

        recorder.record(POD, SCHEDULED)
        await recorder.flush(1)

        first, second = server.asked("POST")
        assert first.body == second.body


async def test_two_events_of_a_pod_have_two_names() -> None:
    """Also where the second has the first one's words."""
    async with announcing_to() as (server, recorder):
        server.on("POST", EVENTS, Reply(201))

        for _ in range(2):
            recorder.record(POD, SCHEDULED)
            await recorder.flush(1)

        first, second = server.asked("POST")
        assert first.body["metadata"]["name"] != second.body["metadata"]["name"]


async def test_a_refused_announcement_is_not_repeated() -> None:
    """The pod is gone, or the words are not acceptable: asking again changes nothing."""
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(404))
        server.on("POST", EVENTS, Reply(422, {"message": "note too long"}))

        recorder.record(POD, waiting("GpuHeld: held"))
        await recorder.flush(1)

        assert len(server.requests) == 2


async def test_before_a_bind_no_untrue_condition_is_left_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not written is stopped and what is being written waited for: the bind's own word is last."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.3)
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(503, after=0.1), Reply(200))
        server.on("POST", EVENTS, Reply(201))
        recorder.record(POD, waiting("GpuHeld: held"))
        await until(lambda: server.asked("PATCH"))
        began = asyncio.get_running_loop().time()

        await recorder.withdraw(POD)

        assert asyncio.get_running_loop().time() - began >= 0.05
        await recorder.flush(2)
        assert len(server.asked("PATCH")) == 1


async def test_what_fails_does_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods whose condition the API server refuses for now come back later; others are told meanwhile."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 10)
    async with announcing_to() as (server, recorder):
        server.on("POST", EVENTS, Reply(201))
        for number in range(event_recorder.REASONS_AT_ONCE + 1):
            path = f"/api/v1/namespaces/default/pods/stuck-{number}/status"
            server.on("PATCH", path, Reply(503))
            recorder.record(PodRef("default", f"stuck-{number}", f"uid-{number}"), waiting("GpuHeld: held"))

        recorder.record(PodRef("default", "train-9", "uid-9"), SCHEDULED)

        await until(lambda: server.asked("POST"))


async def test_binds_go_first_and_then_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the binds are: why a pod waits is told after a while, and that another runs after a longer one."""
    monkeypatch.setattr(event_recorder, "REASONS_YIELD", 0.2)
    monkeypatch.setattr(event_recorder, "NEWS_YIELD", 0.6)
    async with announcing_to(busy=True) as (server, recorder):
        server.on("PATCH", STATUS, Reply(200))
        server.on("POST", EVENTS, Reply(201))
        began = asyncio.get_running_loop().time()

        recorder.record(PodRef("default", "train-9", "uid-9"), SCHEDULED)
        recorder.record(POD, waiting("GpuHeld: held"))

        await until(lambda: len(server.asked("POST")) == 1)
        assert asyncio.get_running_loop().time() - began >= 0.2
        await recorder.flush(2)
        assert asyncio.get_running_loop().time() - began >= 0.6
        assert [each.body["regarding"]["name"] for each in server.asked("POST")] == ["train-0", "train-9"]


async def test_a_full_queue_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever announces then asks again later; nothing grows without bound."""
    monkeypatch.setattr(event_recorder, "QUEUE", 1)
    async with connected() as (_, api):
        recorder = ApiEventRecorder(api, controller="gpu-scheduler", instance="replica-0")

        assert recorder.record(POD, SCHEDULED)
        assert recorder.record(POD, SCHEDULED)
        assert not recorder.record(PodRef("default", "train-1", "uid-2"), SCHEDULED)


async def test_a_pod_of_megabytes_is_told_once_and_not_read() -> None:
    """Its answer is the pod itself: sixteen of them at once would be a hundred megabytes."""
    async with announcing_to() as (server, recorder):
        server.on("PATCH", STATUS, Reply(200, {"spec": "x" * 2 * event_recorder.LONGEST}))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("EnvConflict"))
        await recorder.flush(1)

        assert [request.method for request in server.requests] == ["PATCH", "POST"]
