from pathlib import Path

import pytest

from gpu_scheduler import settings
from gpu_scheduler.settings import RunSettings, SettingsError, WebhookSettings, read_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (RunSettings, WebhookSettings):
        for name in kind.model_fields:
            monkeypatch.delenv(name.upper(), raising=False)


def test_the_shipped_values() -> None:
    """What the requirements promise to whoever sets nothing."""
    run = read_settings(RunSettings)

    assert (run.scheduler_name, run.log_level, run.gpu_sharing) == ("gpu-scheduler", "INFO", "same-workload")
    assert (run.scheduling_interval, run.http_port) == (5, 8080)
    assert (run.lease_duration, run.renew_deadline, run.retry_period) == (15, 10, 2)
    assert read_settings(WebhookSettings).webhook_port == 8443


def test_durations_are_written_as_go_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes, milliseconds, and both together."""
    monkeypatch.setenv("SCHEDULING_INTERVAL", "1m30s")
    monkeypatch.setenv("RETRY_PERIOD", "400ms")

    run = read_settings(RunSettings)

    assert (run.scheduling_interval, run.retry_period) == (90, 0.4)


DURATION = "must be a positive Go duration"


@pytest.mark.parametrize(
    ("variable", "value", "rule", "example"),
    [
        ("LOG_LEVEL", "LOUD", "must be one of DEBUG, INFO, WARNING, ERROR", "INFO"),
        ("SCHEDULING_INTERVAL", "soon", DURATION, "5s"),
        ("SCHEDULING_INTERVAL", "0s", DURATION, "5s"),
        ("SCHEDULING_INTERVAL", "5", DURATION, "5s"),
        ("GPU_SHARING", "maybe", "must be one of same-workload, any, none", "same-workload"),
        ("SCHEDULER_NAME", "My One", "must be a DNS subdomain, the schedulerName that our pods carry", "gpu-scheduler"),
        ("HTTP_PORT", "99999", "must be a TCP port, 0 to 65535", "8080"),
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
