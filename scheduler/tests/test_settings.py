from dataclasses import fields
from pathlib import Path

import pytest

from gpu_scheduler import settings
from gpu_scheduler.settings import MonitorSettings, RunSettings, SettingsError, WebhookSettings, read_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (RunSettings, WebhookSettings, MonitorSettings):
        for each in fields(kind):
            monkeypatch.delenv(each.name.upper(), raising=False)


def test_the_shipped_values() -> None:
    """What the requirements promise to whoever sets nothing."""
    run = read_settings(RunSettings)

    assert (run.scheduler_name, run.log_level, run.gpu_sharing) == ("gpu-scheduler", "INFO", "same-workload")
    assert (run.scheduling_interval, run.http_port) == (5, 8080)
    assert (run.scheduling_strategy, run.gpu_utilization_goal) == ("least_utilized", 80)
    assert run.monitor_namespace == "gpu-scheduler-monitor"
    assert (run.lease_duration, run.renew_deadline, run.retry_period) == (15, 10, 2)
    assert read_settings(WebhookSettings).webhook_port == 8443


def test_durations_are_written_as_go_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes, milliseconds, and both together."""
    monkeypatch.setenv("SCHEDULING_INTERVAL", "1m30s")
    monkeypatch.setenv("RETRY_PERIOD", "400ms")

    run = read_settings(RunSettings)

    assert (run.scheduling_interval, run.retry_period) == (90, 0.4)


DURATION = "must be a positive Go duration"
STRATEGIES = "must be one of least_utilized, best_fit, priority, round_robin"
GOAL = "must be a percentage, 0 to 100: GPUs that are busier get no pod by strategy"


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
        ("SCHEDULER_NAME", "My One", "must be a DNS subdomain, the schedulerName that our pods carry", "gpu-scheduler"),
        ("HTTP_PORT", "99999", "must be a TCP port, 0 to 65535", "8080"),
        ("HTTP_PORT", "-1", "must be a TCP port, 0 to 65535", "8080"),
        ("DEBUG_ENDPOINTS", "yes", "must be true or false: whether /debug/ledger tells who holds what", "true"),
    ],
)
def test_a_bad_value_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rule: str, example: str
) -> None:
    """Variable, value, rule, and an example that works."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(SettingsError) as caught:
        read_settings(RunSettings)

    assert str(caught.value) == f'cannot use {variable} "{value}": {rule} (example: {variable}={example})'


def test_lease_times_have_to_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder must have stopped before anybody else may begin."""
    monkeypatch.setenv("RENEW_DEADLINE", "20s")

    with pytest.raises(
        SettingsError, match=r"^cannot use RETRY_PERIOD, RENEW_DEADLINE, LEASE_DURATION .*example: RETRY_PERIOD=2s"
    ):
        read_settings(RunSettings)


def test_every_bad_value_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, so that one restart is enough."""
    monkeypatch.setenv("LOG_LEVEL", "LOUD")
    monkeypatch.setenv("HTTP_PORT", "no")

    with pytest.raises(SettingsError) as caught:
        read_settings(RunSettings)

    assert len(str(caught.value).splitlines()) == 2


def test_the_lease_lives_in_the_pods_own_namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Told by the service account's volume or the variable; outside a cluster, where the product is installed."""
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
    """What was set may be anything."""
    monkeypatch.setenv("LOG_LEVEL", "L" * 500)

    with pytest.raises(SettingsError, match=f'cannot use LOG_LEVEL "{"L" * 80}": must'):
        read_settings(RunSettings)


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("False", False), ("", False)])
def test_a_flag_is_true_or_false(monkeypatch: pytest.MonkeyPatch, text: str, flag: bool) -> None:  # noqa: FBT001 - a table's column
    """However it is written; an empty variable is one that is not set."""
    monkeypatch.setenv("DEBUG_ENDPOINTS", text)

    assert read_settings(RunSettings).debug_endpoints is flag


def test_there_is_no_journal_unless_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants one says where."""
    assert read_settings(RunSettings).decision_journal is None

    monkeypatch.setenv("DECISION_JOURNAL", "/tmp/journal")  # noqa: S108 - nothing is written

    assert read_settings(RunSettings).decision_journal == Path("/tmp/journal")  # noqa: S108 - likewise


def test_a_monitor_must_know_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else has a value that holds without it."""
    with pytest.raises(SettingsError) as caught:
        read_settings(MonitorSettings)
    assert str(caught.value) == (
        'cannot use NODE_NAME "": must be the name of the node that this process runs on (example: NODE_NAME=node1)'
    )

    monkeypatch.setenv("NODE_NAME", "node1")
    monitor = read_settings(MonitorSettings)
    assert (monitor.node_name, monitor.monitor_source, monitor.monitor_interval) == ("node1", "nvml", 15)
    assert monitor.gpu_utilization_goal == 80


@pytest.mark.parametrize("source", ["dcgm", "NVML"])
def test_a_monitor_knows_two_sources(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """By their words."""
    monkeypatch.setenv("NODE_NAME", "node1")
    monkeypatch.setenv("MONITOR_SOURCE", source)

    with pytest.raises(SettingsError, match=rf'^cannot use MONITOR_SOURCE "{source}": must be nvml, .* \(example: '):
        read_settings(MonitorSettings)
