"""A whole replica in one process, against an API server that answers from a script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
import trustme

from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.process import lifecycle
from gpu_scheduler.process.lifecycle import FatalError, UsageError
from gpu_scheduler.scheduler import event_recorder
from gpu_scheduler.scheduler.access import Missing, needed_rights
from gpu_scheduler.scheduler.ports import EventType, Notice
from gpu_scheduler.scheduler.run import SchedulerProcess, run_scheduler
from gpu_scheduler.settings import RunSettings, WebhookSettings
from gpu_scheduler.webhook.run import run_webhook
from tests import objects
from tests.ports import free_port
from unit_tests.kube.server import FakeServer, Reply, Watch, connected, until
from unit_tests.programs import ask, end_by_sigterm, running, stored, taken_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from tests.objects import Object

# The package's `run` is the command; this is its module.
WIRING = import_module("gpu_scheduler.scheduler.run")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-system/leases"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
GPU_NODES = "/apis/agentaflow.io/v1/gpunodes"
PATHS = ("nodes", "persistentvolumeclaims", "persistentvolumes")
MONITORS = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-monitor/leases"
SETTINGS = "/api/v1/namespaces/gpu-scheduler-system/configmaps"
LIMITS = f"{SETTINGS}?fieldSelector=metadata.name=gpu-scheduler-limits"
OURS = "/api/v1/pods?fieldSelector=spec.schedulerName=gpu-scheduler"
LEASE = {"metadata": {"name": "gpu-scheduler", "namespace": "gpu-scheduler-system", "resourceVersion": "1"}, "spec": {}}
ASSIGNED = {"agentaflow.gpu/assigned-devices": "0,1", "agentaflow.gpu/assigned-index": "0"}
RUNNING = stored(
    objects.pod("train-0", "0=node1:0,1", annotations=ASSIGNED, owner=("StatefulSet", "train"), nodeName="node1"),
    "uid-1",
    {"phase": "Running"},
)
HOLDER = {
    "pod": "default/train-0",
    "uid": "uid-1",
    "node": "node1",
    "devices": ["0", "1"],
    "unnamed": 0,
    "memory": 0,
    "shared": False,
    "index": 0,
    "workload": "StatefulSet/train",
    "assumed": False,
}


KINDS = ["claims", "classes", "foreign_pods", "gpunodes", "limits", "monitors", "nodes", "pods", "settings", "volumes"]


def settings(**others: Any) -> RunSettings:
    given = {"bind_address": "127.0.0.1", "http_port": free_port(), "kubernetes_namespace": "gpu-scheduler-system"}
    return RunSettings(**{**given, **others})


def items(*found: Object) -> Reply:
    return Reply(body={"metadata": {"resourceVersion": "1"}, "items": list(found)})


def script(server: FakeServer, *pods: Object, lease: Reply | None = None) -> None:
    """Script a cluster with these pods, by default with a Lease that no replica holds."""
    empty = items()
    for path in (*(f"/api/v1/{name}" for name in PATHS), STORAGE, GPU_NODES, SETTINGS):
        server.on("GET", path, empty)
        server.on("WATCH", path, Watch())
    server.on("GET", MONITORS, Reply(403))
    server.on("GET", "/api/v1/pods", items(*pods))
    server.on("WATCH", "/api/v1/pods", Watch())
    server.on("GET", f"{LEASES}/gpu-scheduler", lease or Reply(404))
    server.on("POST", LEASES, Reply(201, LEASE))
    server.on("PUT", f"{LEASES}/gpu-scheduler", Reply(body=LEASE))


@asynccontextmanager
async def leading(given: RunSettings, *pods: Object) -> AsyncIterator[tuple[SchedulerProcess, str]]:
    """Run a replica until it decides; yield it and its URL."""
    async with connected() as (server, api):
        script(server, *pods)
        replica = SchedulerProcess(given, api)
        async with running(replica.serve, lambda: replica.scheduler._heartbeat is not None):
            yield replica, f"http://127.0.0.1:{given.http_port}"


async def test_a_replica_lists_leads_and_is_ready() -> None:
    """It lists and watches every resource before it decides, and readiness reports it."""
    began = time.monotonic()
    async with leading(settings(), RUNNING) as (replica, url):
        assert await ask(f"{url}/readyz") == (200, "ok")
        assert await ask(f"{url}/livez") == (200, "ok")
        assert replica.leadership.leading
        assert sorted(replica.watches.silences()) == KINDS
        assert all(seconds() < time.monotonic() - began for seconds in replica.watches.silences().values())


@pytest.mark.promise("lead-3")
async def test_a_new_leader_lists_again_before_it_decides() -> None:
    """The last leader bound a pod that no watch event of the standby has shown yet."""
    held, released = (
        Reply(body={**LEASE, "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}})
        for holder, seconds in (("other_1", 15), ("", 1))
    )
    async with connected() as (server, api):
        script(server, lease=held)
        server.on("GET", OURS, items(), items(RUNNING))
        replica = SchedulerProcess(settings(retry_period=0.05), api)
        async with running(replica.live, lambda: replica.watches.unlisted() is None):
            assert (replica.leadership.leading, list(replica.scheduler.ledger)) == (False, [])

            server.on("GET", f"{LEASES}/gpu-scheduler", released)
            await until(lambda: replica.scheduler._heartbeat is not None)
            assert [holder.devices for holder in replica.scheduler.ledger] == [("0", "1")]


@pytest.mark.promise("quota-6")
async def test_a_leader_that_may_not_read_the_limits_decides_nothing() -> None:
    """A missing right does not lift the limits. As soon as it is granted, the leader decides."""
    async with connected() as (server, api):
        script(server, RUNNING)
        server.on("GET", LIMITS, Reply(403))
        replica = SchedulerProcess(settings(), api)
        async with running(replica.live):
            await until(lambda: replica.leadership.leading and replica.watches.unlisted() == "not listed yet: limits")
            assert replica.scheduler._heartbeat is None

            server.on("GET", LIMITS, items())
            await until(lambda: replica.scheduler._heartbeat is not None)


async def test_the_metrics_show_the_replicas_state() -> None:
    """Gauges are read when they are scraped."""
    async with leading(settings(), RUNNING) as (_, url):
        status, text = await ask(f"{url}/metrics")

        assert status == 200
        for line in (
            "agentaflow_workloads_running 1.0",
            "agentaflow_workloads_pending 0.0",
            "gpu_scheduler_conflicts 0.0",
            "gpu_scheduler_drift 0.0",
            "gpu_scheduler_leader 1.0",
            'scheduler_pending_pods{queue="unschedulable"} 0.0',
            "agentaflow_gpu_total 0.0",
            "agentaflow_gpu_available 0.0",
            "agentaflow_gpu_utilization 0.0",
            'gpu_scheduler_strategy{strategy="least_utilized"} 1.0',
            'gpu_scheduler_strategy{strategy="best_fit"} 0.0',
            "gpu_scheduler_ledger_repairs_total 0.0",
            "gpu_scheduler_leader_transitions 1.0",
            "gpu_scheduler_longest_wait_seconds 0.0",
            "gpu_scheduler_stale_monitors 0.0",
            "gpu_scheduler_unpublished_nodes 0.0",
            'gpu_scheduler_allocated_claims{state="bound"} 0.0',
            'gpu_scheduler_pending_pods{reason="GpuHeld"} 0.0',
            'gpu_scheduler_attempts_total{reason="GpuHeld"} 0.0',
            'gpu_scheduler_binds_total{strategy="map"} 0.0',
        ):
            assert line in text.splitlines()
        assert 'gpu_scheduler_watch_silence_seconds{resource="claims"}' in text


async def test_the_ledger_can_be_read_where_debugging_is_allowed() -> None:
    """It lists which pod holds which devices, as the pods name them. By default the path does not exist."""
    async with leading(settings(debug_endpoints=True), RUNNING) as (_, url):
        _, text = await ask(f"{url}/debug/ledger")
        assert json.loads(text) == {"strategy": "least_utilized", "holders": [HOLDER], "claims": []}
    async with leading(settings(), RUNNING) as (_, url):
        assert (await ask(f"{url}/debug/ledger"))[0] == 404


@pytest.mark.parametrize("leads", [True, False])
async def test_progress_says_what_was_seen_and_what_is_due(*, leads: bool) -> None:
    """A leader has decided on its pod and written why it waits. A standby decides nothing, so the pod stays due."""
    waiting = {**RUNNING, "spec": {**RUNNING["spec"], "nodeName": None}, "status": {}}
    waiting["metadata"] = {**RUNNING["metadata"], "annotations": {"gpu-scheduling-map": "0=node1:0,1"}}
    held = Reply(body={**LEASE, "spec": {"holderIdentity": "other_1", "leaseDurationSeconds": 15}})
    versions = {**dict.fromkeys(KINDS, "1"), "monitors": None}
    due = {"active": int(not leads), "writes": 0, "notices": 0, "cordons": 0}
    given = settings()
    async with connected() as (server, api):
        script(server, waiting, lease=None if leads else held)
        server.on("PATCH", "/api/v1/namespaces/default/pods/train-0/status", Reply())
        server.on("POST", "/apis/events.k8s.io/v1/namespaces/default/events", Reply(201))
        replica = SchedulerProcess(given, api)
        async with running(replica.serve):
            await until(lambda: replica.watches.unlisted() is None and replica.progress()["due"] == due)
            assert (replica.scheduler.attempts > 0) == leads
            _, text = await ask(f"http://127.0.0.1:{given.http_port}/progress")

    assert json.loads(text) == {"versions": versions, "due": due}


async def test_received_objects_are_written_to_the_journal(tmp_path: Path) -> None:
    """From the first list on, with the resource versions that were read."""
    journal = tmp_path / "journal"
    shown: Object = {**RUNNING, "metadata": {**RUNNING["metadata"], "resourceVersion": "7"}}
    async with leading(settings(decision_journal=journal), shown) as (replica, _):
        assert replica._journal is not None
        assert replica._journal._versions == {"foreign_pods": "7", "pods": "7"}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["value"]["ref"]["uid"] for line in lines if line.get("received") == "pod"] == ["uid-1"]


async def test_a_server_that_sends_nothing_is_reported() -> None:
    """Readiness names the resources without a response, and at the start those that were never listed."""
    async with connected() as (_, api):
        watches = SchedulerProcess(settings(), api).watches
        missing = "nodes, gpunodes, monitors, settings, limits, foreign_pods, claims, volumes, classes, pods"
        assert watches.unlisted() == f"not listed yet: {missing}"

    async with leading(settings()) as (replica, _):
        watches = replica.watches
        before = watches.silent()
        watches._all["nodes"]._last_response -= 400

        assert (before, watches.silent()) == (None, "no data from the API server about nodes for 400 s")


async def test_a_stuck_scheduling_loop_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a restart helps then, and the probe says why."""
    async with leading(settings()) as (_, url):
        monkeypatch.setattr(WIRING, "STUCK", -1.0)
        status, text = await ask(f"{url}/livez")

        assert status == 503
        assert "the scheduling loop has not run for " in text


@pytest.mark.promise("lead-7")
async def test_no_condition_is_sent_after_the_lease_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader may have bound the pod. The condition waited for its next try; a bound pod's event is sent."""
    monkeypatch.setattr(event_recorder, "BACKOFF_FIRST", 0.05)
    async with connected() as (server, api):
        metadata = {**RUNNING["metadata"], "name": "train-1", "uid": "uid-2", "annotations": {}}
        script(server, {"metadata": metadata, "spec": {"schedulerName": "gpu-scheduler", "containers": []}})
        status = "/api/v1/namespaces/default/pods/train-1/status"
        events = "/apis/events.k8s.io/v1/namespaces/default/events"
        server.on("PATCH", status, Reply(503))
        server.on("POST", events, Reply(201))
        replica = SchedulerProcess(settings(), api)
        sent_at_release: list[int] = []

        async def release() -> None:
            sent_at_release.append(len(server.asked("PATCH")))

        async with running(replica.live, lambda: server.asked("PATCH", status)):
            assigned = Notice(EventType.NORMAL, "Scheduled", "Binding", "assigned")
            replica.event_recorder.record(PodRef("default", "train-0", "uid-1"), assigned)
            monkeypatch.setattr(replica.leadership, "release", release)

        assert sent_at_release == [len(server.asked("PATCH"))]
        assert [event.body["regarding"]["name"] for event in server.asked("POST", events)] == ["train-0"]


async def test_a_part_that_ends_ends_the_process() -> None:
    """Every part runs until the stop. After a failure, the next process starts from scratch."""

    async def fails() -> None:
        raise RuntimeError("a bug")

    async def ends() -> None:
        return

    for part, message in ((fails(), "event recorder ended: a bug"), (ends(), "event recorder ended: without an error")):
        task = asyncio.create_task(part, name="event recorder")
        with pytest.raises(FatalError, match=message):
            await lifecycle.until_stopped(asyncio.Event(), [task])


def command(*errors: Exception) -> Coroutine[Any, Any, None]:
    """Return a command that ends, or raises the error."""

    async def run_it() -> None:
        for error in errors:
            raise error

    return run_it()


ENDS = {
    "bad input": (UsageError("cannot do that (example: this)"), 2, "cannot do that (example: this)"),
    "a fatal error": (FatalError("event recorder ended: a bug"), 1, "event recorder ended: a bug"),
}


@pytest.mark.parametrize(("error", "code", "expected"), ENDS.values(), ids=ENDS)
def test_exit_codes(error: Exception, code: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """2 for bad input, 1 for all else, with the sentence on standard error or in the log."""
    with pytest.raises(SystemExit) as caught:
        lifecycle.main_loop(RunSettings, lambda _: command(error))

    assert caught.value.code == code
    captured = capsys.readouterr()
    assert expected in captured.err + captured.out


def test_settings_that_cannot_be_used_end_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started, and the sentence names the variable."""
    monkeypatch.setenv("POD_INITIAL_BACKOFF", "20s")
    with pytest.raises(SystemExit) as caught:
        lifecycle.main_loop(RunSettings, lambda _: command())

    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        'cannot use POD_INITIAL_BACKOFF, POD_MAX_BACKOFF "20s, 10s": the first must not exceed the second '
        "(example: POD_INITIAL_BACKOFF=1s POD_MAX_BACKOFF=10s)\n"
    )


async def test_a_taken_port_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The sentence names the variable to change. The same holds for a journal that cannot be written."""
    async with connected() as (server, api):
        script(server)
        with taken_port(monkeypatch, WIRING, api) as port:
            await run_scheduler(settings(http_port=port), None, None)
        with pytest.raises(UsageError, match="cannot use DECISION_JOURNAL"):
            await run_scheduler(settings(decision_journal=tmp_path), None, None)


def certificate(folder: Path) -> None:
    """Write a certificate and its key, valid until 2031."""
    pair = trustme.CA().issue_cert("localhost", not_after=datetime(2031, 5, 6, tzinfo=UTC))
    pair.private_key_pem.write_to_path(str(folder / "tls.key"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))


def answering(folder: Path, **others: Any) -> WebhookSettings:
    given = {"bind_address": "127.0.0.1", "http_port": free_port(), "webhook_port": 0, "certificate_dir": folder}
    return WebhookSettings(**{**given, "drain_period": 0.01, **others})


def is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_webhook_is_ready_until_it_is_stopped(tmp_path: Path) -> None:
    """It keeps answering while its endpoint is removed, and then ends without an error."""
    certificate(tmp_path)
    given = answering(tmp_path)
    task = asyncio.create_task(run_webhook(given))
    await until(lambda: is_served(given.http_port))
    url = f"http://127.0.0.1:{given.http_port}"
    assert await ask(f"{url}/readyz") == (200, "ok")
    assert "gpu_scheduler_certificate_expiry_seconds" in (await ask(f"{url}/metrics"))[1]
    os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(task, 10)


async def test_a_webhook_that_cannot_serve_is_bad_input(tmp_path: Path) -> None:
    """It has no certificate, or another process has its port."""
    with pytest.raises(UsageError, match="cannot read the serving certificate"):
        await run_webhook(answering(tmp_path))
    certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="WEBHOOK_PORT"):
            await run_webhook(answering(tmp_path, webhook_port=port))


DENIED = {
    right.use: right
    for right in needed_rights(RunSettings(kubernetes_namespace="gpu-scheduler-system"), leader_elect=False)
    if right.missing is not Missing.REFUSE
}


@pytest.mark.promise("lead-8")
async def test_without_optional_rights_it_is_ready_and_sends_nothing_that_needs_them() -> None:
    """The right to list the monitors' Leases alone is tried again."""
    given = settings()
    async with connected() as (server, api):
        server.on("GET", "/api/v1/nodes", items())
        server.on("GET", MONITORS, Reply(403))
        server.on("GET", "/api/v1/pods", items(RUNNING))
        server.on("WATCH", "/api/v1/pods", Watch())
        replica = SchedulerProcess(given, api, denied=DENIED, leader_elect=False)
        async with running(replica.serve, lambda: replica.scheduler._heartbeat is not None):
            assert await ask(f"http://127.0.0.1:{given.http_port}/readyz") == (200, "ok")
            assert replica.leadership.leading

        assert {each.path for each in server.requests} == {"/api/v1/nodes", "/api/v1/pods", MONITORS}
        assert server.asked("WATCH", "/api/v1/nodes") == []


async def test_a_pod_of_the_installation_starts_without_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with a kubeconfig the API server is asked which rights are missing."""
    async with connected() as (server, api):
        script(server)
        monkeypatch.setattr(WIRING, "connect", AsyncMock(return_value=api))
        await end_by_sigterm(run_scheduler(settings(), None, None), lambda: server.asked("POST", LEASES))

        assert server.asked("POST", REVIEWS) == []


@pytest.mark.promise("lead-8")
async def test_without_the_rights_that_it_must_have_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends questions only. Without an election, the sentence names no Lease."""
    for leader_elect in (True, False):
        async with connected() as (server, api):
            server.on("POST", REVIEWS, Reply(201, {"status": {"allowed": False}}))
            server.on("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Reply(403))
            server.on("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", Reply(403))
            monkeypatch.setattr(WIRING, "connect", AsyncMock(return_value=api))

            with pytest.raises(UsageError, match='cannot schedule as "USER": it may not list, watch pods; ') as error:
                await run_scheduler(settings(), "kubeconfig", None, leader_elect=leader_elect)

            assert ("--leader-elect=false" in str(error.value)) is leader_elect
            assert [each.path for each in server.requests if each.method != "POST"] == ["/apis/agentaflow.io/v1"]
