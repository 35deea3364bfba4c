import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from gpu_scheduler import settings
from gpu_scheduler.controller import run as controller_run
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.process.lifecycle import UsageError
from gpu_scheduler.scheduler import run as scheduler_run
from gpu_scheduler.settings import (
    LeaderSettings,
    MonitorSettings,
    RunSettings,
    SettingsError,
    WebhookSettings,
    read_settings,
)
from tests.messages import text_of

COMMANDS = [
    pytest.param(scheduler_run, RunSettings, "run_scheduler", id="run"),
    pytest.param(controller_run, LeaderSettings, "run_controller", id="controller"),
]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (RunSettings, WebhookSettings, MonitorSettings):
        for each in fields(kind):
            monkeypatch.delenv(each.name.upper(), raising=False)


@pytest.mark.promise("wait-4")
def test_a_waiting_pod_is_tried_again_after_five_minutes() -> None:
    """Unless the operator sets another time."""
    assert read_settings(RunSettings).pod_resync == 300


def test_durations_are_written_as_go_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes, milliseconds, and both together."""
    monkeypatch.setenv("AUDIT_INTERVAL", "1m30s")
    monkeypatch.setenv("RETRY_PERIOD", "400ms")

    run = read_settings(RunSettings)

    assert (run.audit_interval, run.retry_period) == (90, 0.4)


def refusal(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], kind: type = RunSettings) -> str:
    """Return the sentence with which these variables are refused."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        read_settings(kind)
    return str(caught.value)


DURATION = text_of("setting: a duration")
STRATEGIES = "must be one of least_utilized, best_fit, priority, round_robin"
GOAL = text_of("setting: a percentage")


@pytest.mark.parametrize(
    ("variable", "value", "rule", "example"),
    [
        ("LOG_LEVEL", "LOUD", "must be one of DEBUG, INFO, WARNING, ERROR", "INFO"),
        ("SCHEDULING_INTERVAL", "soon", DURATION, "5s"),
        ("SCHEDULING_INTERVAL", "0s", DURATION, "5s"),
        ("SCHEDULING_INTERVAL", "5", DURATION, "5s"),
        ("GPU_SHARING", "maybe", "must be one of same-workload, any, none", "same-workload"),
        ("SCHEDULING_STRATEGY", "fastest", STRATEGIES, "least_utilized"),
        ("GPU_UTILIZATION_GOAL", "101", GOAL, "80"),
        ("GPU_UTILIZATION_GOAL", "most", GOAL, "80"),
        ("SCHEDULER_NAME", "My One", text_of("setting: a schedulerName"), "gpu-scheduler"),
        ("HTTP_PORT", "99999", "must be a TCP port, 0 to 65535", "8080"),
        ("HTTP_PORT", "-1", "must be a TCP port, 0 to 65535", "8080"),
        (
            "DEBUG_ENDPOINTS",
            "yes",
            text_of("setting: debug endpoints"),
            "true",
        ),
    ],
)
def test_a_bad_value_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rule: str, example: str
) -> None:
    """Variable, value, rule, and an example that works."""
    sentence = f'cannot use {variable} "{value}": {rule} (example: {variable}={example})'
    assert refusal(monkeypatch, {variable: value}) == sentence


def test_a_bad_port_of_the_webhook_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inventory sets WEBHOOK_PORT, so an error names that variable."""
    assert refusal(monkeypatch, {"WEBHOOK_PORT": "https"}, WebhookSettings) == (
        'cannot use WEBHOOK_PORT "https": must be a TCP port, 0 to 65535 (example: WEBHOOK_PORT=8443)'
    )


LEASES = {
    "a renew deadline after the Lease's end": ("2s", "20s", "15s"),
    "a gap shorter than a second": ("2s", "10s", "10999ms"),
    "a retry period that leaves time for one renewal only": ("8s", "10s", "15s"),
}


@pytest.mark.parametrize(("retry", "renew", "duration"), LEASES.values(), ids=LEASES)
def test_lease_times_have_to_nest(monkeypatch: pytest.MonkeyPatch, retry: str, renew: str, duration: str) -> None:
    """A leader's writes must be over before another replica may acquire the Lease."""
    sentence = refusal(monkeypatch, {"RETRY_PERIOD": retry, "RENEW_DEADLINE": renew, "LEASE_DURATION": duration})

    assert sentence.startswith("cannot use RETRY_PERIOD, RENEW_DEADLINE, LEASE_DURATION ")
    assert "1.5 x retry < renew and renew + 1s <= lease" in sentence
    assert sentence.endswith("(example: RETRY_PERIOD=2s RENEW_DEADLINE=10s LEASE_DURATION=15s)")


@pytest.mark.parametrize(
    ("renew", "duration", "gap"), [("10s", "15s", 5), ("2s", "3s", 1), ("10100ms", "11100ms", 1), ("10s", "11s", 1)]
)
def test_a_short_lease_is_possible(monkeypatch: pytest.MonkeyPatch, renew: str, duration: str, gap: float) -> None:
    """The time-outs of sockets and binds follow from its gap (see kube/test_client.py)."""
    monkeypatch.setenv("RETRY_PERIOD", "400ms")
    monkeypatch.setenv("RENEW_DEADLINE", renew)
    monkeypatch.setenv("LEASE_DURATION", duration)

    assert read_settings(RunSettings).lease_gap == gap


@pytest.mark.promise("lead-2")
@pytest.mark.parametrize(("module", "kind", "command"), COMMANDS)
async def test_a_command_with_leader_election_connects_with_its_leases_gap(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, kind: type[RunSettings], command: str
) -> None:
    """The client derives the time-outs of its sockets and writes from it."""
    gaps = []

    async def connect(*_: object, lease_gap: float, **__: object) -> None:
        gaps.append(lease_gap)
        raise ClientConfigError("enough")

    monkeypatch.setattr(module, "connect", connect)
    with pytest.raises(UsageError, match="enough"):
        await getattr(module, command)(kind(lease_duration=8, renew_deadline=6), None, None)
    assert gaps == [2]


@pytest.mark.promise("lead-5")
def test_the_interval_must_leave_time_to_report_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer one would break the promise to report a GPU that is held twice within 30 s."""
    monkeypatch.setenv("SCHEDULING_INTERVAL", "20s")
    assert read_settings(RunSettings).scheduling_interval == 20

    sentence = refusal(monkeypatch, {"SCHEDULING_INTERVAL": "20001ms"})
    assert sentence.startswith('cannot use SCHEDULING_INTERVAL "20.001s": ')
    assert " 20s, " in sentence
    assert sentence.endswith("(example: SCHEDULING_INTERVAL=5s)")


def test_every_bad_value_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, so that one restart is enough."""
    assert len(refusal(monkeypatch, {"LOG_LEVEL": "LOUD", "HTTP_PORT": "no"}).splitlines()) == 2


def test_the_lease_lives_in_the_pods_own_namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service account's volume or the variable gives it; outside a cluster it is the product's namespace."""
    own = tmp_path / "namespace"
    own.write_text("team-a", encoding="ascii")
    monkeypatch.setattr(settings, "NAMESPACE_FILE", own)
    assert read_settings(RunSettings).kubernetes_namespace == "team-a"

    monkeypatch.setenv("KUBERNETES_NAMESPACE", "team-b")
    assert read_settings(RunSettings).kubernetes_namespace == "team-b"

    monkeypatch.delenv("KUBERNETES_NAMESPACE")
    own.unlink()
    assert read_settings(RunSettings).kubernetes_namespace == "gpu-scheduler-system"


def test_a_long_value_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may have any value."""
    assert refusal(monkeypatch, {"LOG_LEVEL": "L" * 500}).startswith(f'cannot use LOG_LEVEL "{"L" * 80}": must')


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("False", False), ("", False)])
def test_a_flag_is_true_or_false(monkeypatch: pytest.MonkeyPatch, text: str, flag: bool) -> None:  # noqa: FBT001 - a table's column
    """In either case of letters; an empty variable counts as not set."""
    monkeypatch.setenv("DEBUG_ENDPOINTS", text)

    assert read_settings(RunSettings).debug_endpoints is flag


def test_there_is_no_journal_unless_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """DECISION_JOURNAL names the file."""
    assert read_settings(RunSettings).decision_journal is None

    monkeypatch.setenv("DECISION_JOURNAL", "/tmp/journal")  # noqa: S108 - nothing is written

    assert read_settings(RunSettings).decision_journal == Path("/tmp/journal")  # noqa: S108 - likewise


def test_a_monitor_must_know_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """NODE_NAME has no default; all other settings have one."""
    sentence = refusal(monkeypatch, {}, MonitorSettings)
    assert sentence.startswith('cannot use NODE_NAME "": ')
    assert sentence.endswith(" (example: NODE_NAME=node1)")

    monkeypatch.setenv("NODE_NAME", "node1")
    monitor = read_settings(MonitorSettings)
    assert (monitor.node_name, monitor.monitor_source, monitor.monitor_interval) == ("node1", "nvml", 15)
    assert monitor.gpu_utilization_goal == 80


@pytest.mark.parametrize("source", ["dcgm", "NVML"])
def test_a_monitor_knows_two_sources(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Any other source is refused."""
    sentence = refusal(monkeypatch, {"NODE_NAME": "node1", "MONITOR_SOURCE": source}, MonitorSettings)

    assert re.match(rf'cannot use MONITOR_SOURCE "{source}": must be nvml, .* \(example: ', sentence)
