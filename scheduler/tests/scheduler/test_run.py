"""A whole replica in one process, before an API server that answers from a script."""

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

import aiohttp
import pytest
import trustme

from gpu_scheduler.process import lifecycle
from gpu_scheduler.process.lifecycle import FatalError, UsageError
from gpu_scheduler.scheduler.run import SchedulerProcess, run_scheduler
from gpu_scheduler.settings import RunSettings, WebhookSettings
from gpu_scheduler.webhook.run import run_webhook
from tests.kube.server import FakeServer, Reply, Watch, connected, until
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from gpu_scheduler.kube.http.client import ApiClient
    from tests.objects import Object

# The package's `run` is the command; this is its module.
WIRING = import_module("gpu_scheduler.scheduler.run")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-system/leases"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
PATHS = ("nodes", "persistentvolumeclaims", "persistentvolumes")
MONITORS = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-monitor/leases"
SETTINGS = "/api/v1/namespaces/gpu-scheduler-system/configmaps"
LEASE = {"metadata": {"name": "gpu-scheduler", "namespace": "gpu-scheduler-system", "resourceVersion": "1"}, "spec": {}}
RUNNING: Object = {
    "metadata": {
        "name": "train-0",
        "namespace": "default",
        "uid": "uid-1",
        "annotations": {
            "gpu-scheduling-map": "0=node1:0,1",
            "agentaflow.gpu/assigned-devices": "0,1",
            "agentaflow.gpu/assigned-index": "0",
        },
        "ownerReferences": [{"kind": "StatefulSet", "name": "train", "uid": "uid-0", "controller": True}],
    },
    "spec": {"schedulerName": "gpu-scheduler", "nodeName": "node1", "containers": [{"name": "main"}]},
    "status": {"phase": "Running"},
}
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


WATCHED = ["claims", "classes", "limits", "monitors", "nodes", "pods", "residents", "settings", "volumes"]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def settings(**others: Any) -> RunSettings:
    """A replica's settings on this host."""
    given = {"bind_address": "127.0.0.1", "http_port": free_port(), "kubernetes_namespace": "gpu-scheduler-system"}
    return RunSettings(**{**given, **others})


def script(server: FakeServer, *pods: Object) -> None:
    """A cluster of these pods, and a lease that nobody has."""
    empty = Reply(body={"metadata": {"resourceVersion": "1"}, "items": []})
    for path in (*(f"/api/v1/{name}" for name in PATHS), STORAGE, SETTINGS):
        server.on("GET", path, empty)
        server.on("WATCH", path, Watch())
    server.on("GET", MONITORS, Reply(403))
    server.on("GET", "/api/v1/pods", Reply(body={"metadata": {"resourceVersion": "1"}, "items": list(pods)}))
    server.on("WATCH", "/api/v1/pods", Watch())
    server.on("GET", f"{LEASES}/gpu-scheduler", Reply(404))
    server.on("POST", LEASES, Reply(201, LEASE))
    server.on("PUT", f"{LEASES}/gpu-scheduler", Reply(body=LEASE))


@asynccontextmanager
async def leading(given: RunSettings, *pods: Object) -> AsyncIterator[tuple[SchedulerProcess, str]]:
    """A replica that decides, and where it serves."""
    async with connected() as (server, api):
        script(server, *pods)
        replica, stop = SchedulerProcess(given, api), asyncio.Event()
        task = asyncio.create_task(replica.serve(stop))
        try:
            await until(lambda: task.done() or replica.scheduler._heartbeat is not None)
            yield replica, f"http://127.0.0.1:{given.http_port}"
        finally:
            stop.set()
            await task


async def ask(url: str) -> tuple[int, str]:
    """Status and text."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_a_replica_lists_leads_and_is_ready() -> None:
    """Every resource is listed and watched before anything is decided, and readiness says so."""
    async with leading(settings(), RUNNING) as (replica, url):
        assert await ask(f"{url}/readyz") == (200, "ok")
        assert await ask(f"{url}/livez") == (200, "ok")
        assert replica.leadership.leading
        assert sorted(replica.watches.silences()) == WATCHED
        assert all(silence() < 60 for silence in replica.watches.silences().values())


async def test_the_metrics_tell_what_the_replica_knows() -> None:
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
        ):
            assert line in text.splitlines()
        assert 'gpu_scheduler_watch_silence_seconds{resource="claims"}' in text


async def test_the_ledger_can_be_read_where_debugging_is_allowed() -> None:
    """Who holds what, as the pods name it; by default nobody is told."""
    async with leading(settings(debug_endpoints=True), RUNNING) as (_, url):
        _, text = await ask(f"{url}/debug/ledger")
        assert json.loads(text) == {"strategy": "least_utilized", "holders": [HOLDER]}
    async with leading(settings(), RUNNING) as (_, url):
        assert (await ask(f"{url}/debug/ledger"))[0] == 404


async def test_what_is_taken_in_is_written_where_a_journal_is_wanted(tmp_path: Path) -> None:
    """From the first list on, with the versions that were read; by default there is no file."""
    journal = tmp_path / "journal"
    shown: Object = {**RUNNING, "metadata": {**RUNNING["metadata"], "resourceVersion": "7"}}
    async with leading(settings(decision_journal=journal), shown) as (replica, _):
        assert replica._journal is not None
        assert replica._journal._versions == {"residents": "7", "pods": "7"}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["value"]["ref"]["uid"] for line in lines if line.get("took") == "pod"] == ["uid-1"]


async def test_a_silent_server_is_told() -> None:
    """Readiness names the resources of which nothing was heard, and at the start what was never listed."""
    async with connected() as (_, api):
        watches = SchedulerProcess(settings(), api).watches
        missing = "nodes, monitors, settings, limits, residents, claims, volumes, classes, pods"
        assert watches.unlisted() == f"not listed yet: {missing}"

    async with leading(settings()) as (replica, _):
        watches = replica.watches
        before = watches.silent()
        watches._all["nodes"]._heard -= 400

        assert (before, watches.silent()) == (None, "the API server says nothing of nodes for 400 s")


async def test_a_stuck_decider_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a restart helps then, and the probe says why."""
    async with leading(settings()) as (_, url):
        monkeypatch.setattr(WIRING, "STUCK", -1.0)
        status, text = await ask(f"{url}/livez")

        assert status == 503
        assert "the decider has shown no sign of life for 0 s" in text


async def test_an_unsettled_bind_keeps_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may lead while a bind of ours can still land: the lease is left to expire."""

    async def unsettled(_seconds: float) -> bool:
        return False

    released = []
    async with leading(settings()) as (replica, _):
        monkeypatch.setattr(replica.scheduler, "drain", unsettled)
        monkeypatch.setattr(replica.leadership, "release", lambda: released.append("released"))

    assert released == []


async def test_a_release_that_hangs_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease then expires by itself."""
    monkeypatch.setattr(WIRING, "RELEASE", 0.01)
    async with leading(settings()) as (replica, _):
        monkeypatch.setattr(replica.leadership, "release", lambda: asyncio.sleep(60))
        began = time.monotonic()

    assert time.monotonic() - began < limit(10)


async def test_a_part_that_ends_takes_the_process_with_it() -> None:
    """Everything is to run for ever: the successor starts from scratch."""

    async def fails() -> None:
        raise RuntimeError("a bug")

    async def ends() -> None:
        return

    for part, message in ((fails(), "announcer ended: a bug"), (ends(), "announcer ended: without an error")):
        task = asyncio.create_task(part, name="announcer")
        with pytest.raises(FatalError, match=message):
            await lifecycle.until_stopped(asyncio.Event(), [task])


def command(*errors: Exception) -> Awaitable[None]:
    """What a command does: end, or raise this."""

    async def run_it() -> None:
        for error in errors:
            raise error

    return run_it()


ENDS = {
    "bad input": (UsageError("cannot do that (example: this)"), 2, "cannot do that (example: this)"),
    "an end of its own": (FatalError("announcer ended: a bug"), 1, "announcer ended: a bug"),
}


@pytest.mark.parametrize(("error", "code", "told"), ENDS.values(), ids=ENDS)
def test_exit_codes(error: Exception, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """2 for bad input, 1 for all else, with the sentence on standard error or in the log."""
    with pytest.raises(SystemExit) as caught:
        lifecycle.main_loop(RunSettings, lambda _: command(error))

    assert caught.value.code == code
    captured = capsys.readouterr()
    assert told in captured.err + captured.out


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


async def test_a_signal_ends_the_scheduler_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM: no new decision, the lease given up, and no error."""
    async with connected() as (server, api):
        script(server)

        async def connect(*_: object, **__: object) -> ApiClient:
            return api

        monkeypatch.setattr(WIRING, "connect", connect)
        task = asyncio.create_task(run_scheduler(settings(), None, None))
        await until(lambda: server.asked("POST", LEASES))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, limit(10))


async def test_a_taken_port_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The sentence names the variable that changes it; so it does for a journal that cannot be written."""
    async with connected() as (server, api):
        script(server)

        async def connect(*_: object, **__: object) -> ApiClient:
            return api

        monkeypatch.setattr(WIRING, "connect", connect)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UsageError, match=f"HTTP_PORT={port + 1}"):
                await run_scheduler(settings(http_port=port), None, None)
        with pytest.raises(UsageError, match="cannot use DECISION_JOURNAL"):
            await run_scheduler(settings(decision_journal=tmp_path), None, None)


def certificate(folder: Path) -> None:
    """A pair that lasts."""
    pair = trustme.CA().issue_cert("localhost", not_after=datetime(2031, 5, 6, tzinfo=UTC))
    pair.private_key_pem.write_to_path(str(folder / "tls.key"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))


def answering(folder: Path, **others: Any) -> WebhookSettings:
    """A webhook's settings on this host."""
    given = {"bind_address": "127.0.0.1", "http_port": free_port(), "webhook_port": 0, "certificate_dir": folder}
    return WebhookSettings(**{**given, "drain_period": 0.01, **others})


async def test_a_webhook_is_ready_until_it_is_stopped(tmp_path: Path) -> None:
    """It goes on answering while its endpoint is taken out, and then ends without an error."""
    certificate(tmp_path)
    given = answering(tmp_path)
    task = asyncio.create_task(run_webhook(given))
    for _ in range(1000):
        await asyncio.sleep(0.01)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", given.http_port)) == 0:
                break
    url = f"http://127.0.0.1:{given.http_port}"
    assert await ask(f"{url}/readyz") == (200, "ok")
    assert "gpu_scheduler_certificate_expiry_seconds" in (await ask(f"{url}/metrics"))[1]
    os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(task, limit(10))


async def test_a_webhook_that_cannot_serve_is_bad_input(tmp_path: Path) -> None:
    """Without a certificate, or where somebody has its port."""
    with pytest.raises(UsageError, match="cannot read the serving certificate"):
        await run_webhook(answering(tmp_path))
    certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="WEBHOOK_PORT"):
            await run_webhook(answering(tmp_path, webhook_port=port))
