import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.http.client import CALL_TIMEOUT, ApiClient, ApiResponse, NoResponseError, NotSentError
from gpu_scheduler.scheduler import event_recorder
from gpu_scheduler.scheduler.event_recorder import ApiEventRecorder
from gpu_scheduler.scheduler.ports import EventType, Notice
from unit_tests.kube.server import FakeServer, Reply, connected, until
from unit_tests.virtual import settle

POD = PodRef("default", "train-0", "uid-1")
STATUS = "/api/v1/namespaces/default/pods/train-0/status"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SCHEDULED = Notice(EventType.NORMAL, "Scheduled", "Binding", "Successfully assigned")


def waiting(note: str) -> Notice:
    condition = ScheduledCondition("False", "Unschedulable", note)
    return Notice(EventType.WARNING, "FailedScheduling", "Scheduling", note, condition)


@asynccontextmanager
async def running_recorder(
    *conditions: Reply, events: tuple[Reply, ...] = (Reply(201),), **others: Any
) -> AsyncIterator[tuple[FakeServer, ApiEventRecorder]]:
    """Run an event recorder. The API server answers so to the conditions of train-0 and to events."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, *(conditions or (Reply(200),)))
        server.on("POST", EVENTS, *events)
        wall = lambda: datetime(2026, 11, 20, 8, 30, tzinfo=UTC)  # noqa: E731 - a fixed time
        recorder = ApiEventRecorder(api, controller="gpu-scheduler", instance="replica-0_ab12", wall=wall, **others)
        async with recording(recorder):
            yield server, recorder


@asynccontextmanager
async def recording(recorder: ApiEventRecorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_placed_pod_costs_one_event() -> None:
    """Reported as Kubernetes' own scheduler does, about exactly this pod."""
    async with running_recorder() as (server, recorder):
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


@pytest.mark.promise("text-1", "text-2")
async def test_a_waiting_pod_gets_condition_and_event_with_one_text() -> None:
    """The condition is merged by its type and bound to the uid."""
    async with running_recorder() as (server, recorder):
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
    """Of several notices in quick succession, only the last is written."""
    async with running_recorder() as (server, recorder):
        recorder.record(POD, waiting("first"))
        recorder.record(POD, waiting("second"))
        await recorder.flush(1)

        assert [each.body["note"] for each in server.asked("POST")] == ["second"]


async def test_a_newer_notice_follows_one_that_is_being_written() -> None:
    """The one under way is not lost, and the newer one is written last."""
    answered = asyncio.Event()
    async with running_recorder(Reply(200, after=answered)) as (server, recorder):
        recorder.record(POD, waiting("first"))
        await until(lambda: server.asked("PATCH"))
        recorder.record(POD, waiting("second"))
        answered.set()
        await recorder.flush(2)

        assert server.asked("PATCH")[-1].body["status"]["conditions"][0]["message"] == "second"


@pytest.mark.promise("text-1")
async def test_a_condition_is_tried_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the pod's state: an outage must not leave a wrong one behind."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with running_recorder(*[Reply(503)] * 5, Reply(200)) as (server, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        await recorder.flush(3)

        assert len(server.asked("PATCH")) == 6
        assert len(server.asked("POST")) == 1


async def test_an_event_is_given_up_after_three_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event only informs: unlike the condition, it is not the pod's state."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with running_recorder(events=(Reply(503),)) as (server, recorder):
        recorder.record(POD, SCHEDULED)
        await recorder.flush(2)

        assert len(server.asked("POST")) == 3


@pytest.mark.promise("text-8")
async def test_an_event_whose_answer_was_lost_is_not_recorded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may have stored it. The next try has the same name, which can exist only once."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with running_recorder(events=(Reply(504), Reply(409))) as (server, recorder):
        recorder.record(POD, SCHEDULED)
        await recorder.flush(1)

        first, second = server.asked("POST")
        assert first.body == second.body


async def test_two_events_of_a_pod_have_two_names() -> None:
    """Even if both have the same text."""
    async with running_recorder() as (server, recorder):
        for _ in range(2):
            recorder.record(POD, SCHEDULED)
            await recorder.flush(1)

        first, second = server.asked("POST")
        assert first.body["metadata"]["name"] != second.body["metadata"]["name"]


async def test_a_refused_notice_is_not_repeated() -> None:
    """The pod is gone, or the text is invalid: another try changes nothing."""
    async with running_recorder(Reply(404), events=(Reply(422, {"message": "note too long"}),)) as (server, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        await recorder.flush(1)

        assert len(server.requests) == 2


async def test_before_a_bind_no_untrue_condition_is_left_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that waits is cancelled, and one in flight is waited for: the bind writes the condition last."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.3)
    answered = asyncio.Event()
    async with running_recorder(Reply(503, after=answered), Reply(200)) as (server, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        await until(lambda: server.asked("PATCH"))

        withdrawal = asyncio.create_task(recorder.withdraw(POD))
        await settle()
        assert not withdrawal.done()
        answered.set()
        await withdrawal
        await recorder.flush(2)
        assert len(server.asked("PATCH")) == 1


class SilentApi(ApiClient):
    """An API server that answers nothing, and a connection that opens when a test says so."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.sent: list[str] = []

    async def call(  # type: ignore[override] # noqa: PLR0913 - the parts that the recorder uses
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        content_type: str = "",
        guard: Callable[[], bool] | None = None,
        most: int = 0,
        timeout: float = CALL_TIMEOUT,  # noqa: ASYNC109 - as in its base class
    ) -> ApiResponse:
        """Open the connection, ask the guard, and wait for an answer until the time-out."""
        del body, content_type, most
        try:
            async with asyncio.timeout(timeout):
                await self.opened.wait()
                if guard is not None and not guard():
                    raise NotSentError(path)
                self.sent.append(method)
                await asyncio.Event().wait()
        except TimeoutError as error:
            raise NoResponseError(path) from error
        raise AssertionError


@asynccontextmanager
async def silent_recorder() -> AsyncIterator[tuple[SilentApi, ApiEventRecorder]]:
    api = SilentApi()
    recorder = ApiEventRecorder(api, controller="gpu-scheduler", instance="replica-0")
    async with recording(recorder):
        yield api, recorder


@pytest.mark.parametrize("withdraws", ["one", "all"])
async def test_a_bind_waits_for_a_condition_that_is_sent_for_one_time_out_at_most(withdraws: str) -> None:
    """It waits for no event and no retry. A replica that stops waits for all conditions together as long as for one."""
    async with silent_recorder() as (api, recorder):
        api.opened.set()
        for number in range(event_recorder.WAITING_WORKERS + 1):
            recorder.record(PodRef("default", f"train-{number}", f"uid-{number}"), waiting("GpuHeld: held"))
        await until(lambda: api.sent)
        began = asyncio.get_running_loop().time()

        if withdraws == "one":
            assert await recorder.withdraw(PodRef("default", "train-0", "uid-0"))
        else:
            await recorder.withdraw_all()
        assert 0 < asyncio.get_running_loop().time() - began <= CALL_TIMEOUT == 3

        if withdraws == "all":
            await asyncio.sleep(60)
            assert api.sent == ["PATCH"] * event_recorder.WAITING_WORKERS


@pytest.mark.parametrize("newer", [False, True], ids=["the only one", "replaced"])
async def test_a_bind_does_not_wait_for_a_condition_that_is_not_sent_yet(*, newer: bool) -> None:
    """Its connection may take seconds to open. Then the condition is not sent, and not even an older one."""
    async with silent_recorder() as (api, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        await asyncio.sleep(0.1)
        if newer:
            recorder.record(POD, waiting("GpuHeld: held by another"))
        began = asyncio.get_running_loop().time()

        assert await recorder.withdraw(POD)
        assert asyncio.get_running_loop().time() == began

        api.opened.set()
        await asyncio.sleep(60)
        assert "PATCH" not in api.sent


async def test_a_leader_that_stops_sends_no_condition_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition in flight is waited for. The others are dropped with their events, and events of binds are sent."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.3)
    answered = asyncio.Event()
    async with running_recorder(Reply(200, after=answered)) as (server, recorder):
        failing = PodRef("default", "train-9", "uid-9")
        server.on("PATCH", STATUS.replace("train-0", "train-9"), Reply(503))
        recorder.record(failing, waiting("GpuHeld: held"))
        recorder.record(POD, waiting("GpuHeld: held"))
        await until(lambda: len(server.asked("PATCH")) == 2)

        stop = asyncio.create_task(recorder.withdraw_all())
        await settle()
        assert not stop.done()
        assert not recorder.record(PodRef("default", "train-2", "uid-2"), waiting("GpuHeld: held"))
        assert recorder.record(PodRef("default", "train-3", "uid-3"), SCHEDULED)
        answered.set()
        await stop
        await recorder.flush(5)
        await asyncio.sleep(60)

        assert len(server.asked("PATCH")) == 2
        events = [each.body["regarding"]["name"] for each in server.asked("POST")]
        assert sorted(events) == ["train-0", "train-3"]


@pytest.mark.promise("lead-7")
async def test_a_replica_that_no_longer_leads_sends_no_condition() -> None:
    """It was stopped for a while, and its successor may have bound the pod."""
    leads = [True]
    async with running_recorder(may_write=lambda: leads[0]) as (server, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        leads[0] = False
        await recorder.flush(2)

        assert server.requests == []


async def test_a_condition_is_sent_again_after_the_credentials_were_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 401 the API client reads them again, and does not repeat such a request by itself."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.005)
    async with running_recorder(Reply(401), Reply(200)) as (server, recorder):
        recorder.record(POD, waiting("GpuHeld: held"))
        await recorder.flush(2)

        assert [request.method for request in server.requests] == ["PATCH", "PATCH", "POST"]


async def test_a_failing_notice_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions that the API server refuses for now are retried later. Other notices are written meanwhile."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 10)
    async with running_recorder() as (server, recorder):
        for number in range(event_recorder.WAITING_WORKERS + 1):
            path = f"/api/v1/namespaces/default/pods/stuck-{number}/status"
            server.on("PATCH", path, Reply(503))
            recorder.record(PodRef("default", f"stuck-{number}", f"uid-{number}"), waiting("GpuHeld: held"))

        recorder.record(PodRef("default", "train-9", "uid-9"), SCHEDULED)

        await until(lambda: server.asked("POST"))


@pytest.mark.promise("text-18")
async def test_pods_that_are_active_go_first_and_none_that_comes_later() -> None:
    """The loop stays busy. Each notice is written after the attempts that were due when it came."""
    attempts = {"made": 10, "due": 12}
    async with running_recorder(
        attempts_due=lambda: attempts["due"], binds_first=lambda due: attempts["made"] < due
    ) as (server, recorder):
        server.on("PATCH", STATUS, Reply(200))
        server.on("POST", EVENTS, Reply(201))

        recorder.record(POD, waiting("GpuHeld: held"))
        recorder.record(PodRef("default", "train-9", "uid-9"), SCHEDULED)
        attempts["due"] = 14
        recorder.record(POD, waiting("GpuHeld: held by another"))
        recorder.record(PodRef("default", "train-8", "uid-8"), SCHEDULED)

        for made, written in ((11, []), (13, ["train-0", "train-9"]), (14, ["train-0", "train-8", "train-9"])):
            attempts["made"] = made
            await asyncio.sleep(4 * event_recorder.POLL)
            assert sorted(each.body["regarding"]["name"] for each in server.asked("POST")) == written


async def test_a_full_queue_refuses_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller records it again later. The queue does not grow without bound."""
    monkeypatch.setattr(event_recorder, "QUEUE", 1)
    async with connected() as (_, api):
        recorder = ApiEventRecorder(api, controller="gpu-scheduler", instance="replica-0")

        assert recorder.record(POD, SCHEDULED)
        assert recorder.record(POD, SCHEDULED)
        assert not recorder.record(PodRef("default", "train-1", "uid-2"), SCHEDULED)


async def test_a_pod_of_megabytes_is_recorded_once_and_not_read() -> None:
    """The API server answers with the pod itself. Sixteen such answers at once would take a hundred megabytes."""
    async with running_recorder(Reply(200, {"spec": "x" * 2 * event_recorder.MAX_ANSWER_BYTES})) as (server, recorder):
        recorder.record(POD, waiting("EnvConflict"))
        await recorder.flush(1)

        assert [request.method for request in server.requests] == ["PATCH", "POST"]


@pytest.mark.parametrize(("events", "conditions"), [(True, False), (False, True), (False, False)])
async def test_what_it_has_no_right_to_write_is_never_sent(*, events: bool, conditions: bool) -> None:
    """The rest is. What was not written counts as recorded, so that nothing is tried again."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, Reply())
        server.on("POST", EVENTS, Reply(201))
        recorder = ApiEventRecorder(
            api, controller="gpu-scheduler", instance="replica-0", events=events, conditions=conditions
        )
        async with recording(recorder):
            assert all([recorder.record(POD, waiting("GpuHeld: …")), recorder.record(POD, SCHEDULED)])
            await recorder.flush(1)

        assert len(server.asked("PATCH")) == conditions
        assert len(server.asked("POST")) == 2 * events
