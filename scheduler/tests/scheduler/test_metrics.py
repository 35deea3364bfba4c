from prometheus_client import CollectorRegistry

from gpu_scheduler.process.metrics import read_gauges, read_labelled_gauge
from gpu_scheduler.scheduler.metrics import SchedulerMetrics
from gpu_scheduler.scheduler.ports import Result
from gpu_scheduler.webhook.metrics import WebhookMetrics


def test_attempts_are_counted_by_their_result() -> None:
    """With kube-scheduler's names, so that its dashboards fit."""
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, "gpu-scheduler")
    for result in (Result.SCHEDULED, Result.UNSCHEDULABLE, Result.UNSCHEDULABLE, Result.ERROR):
        metrics.attempted(result, 0.003)

    for word, count in (("scheduled", 1), ("unschedulable", 2), ("error", 1)):
        labels = {"result": word, "profile": "gpu-scheduler"}
        seconds = "scheduler_scheduling_attempt_duration_seconds"
        assert registry.get_sample_value("scheduler_schedule_attempts_total", labels) == count
        assert registry.get_sample_value(f"{seconds}_count", labels) == count
        assert registry.get_sample_value(f"{seconds}_bucket", {**labels, "le": "0.002"}) == 0
        assert registry.get_sample_value(f"{seconds}_bucket", {**labels, "le": "0.004"}) == count


def test_the_time_from_the_first_watch_event_to_the_bind_is_measured() -> None:
    """Including the time in the queue, for hours."""
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, "gpu-scheduler")
    metrics.placed(7200)

    assert registry.get_sample_value("agentaflow_scheduling_duration_sum") == 7200
    assert registry.get_sample_value("agentaflow_scheduling_duration_bucket", {"le": "14400.0"}) == 1


def test_repairs_are_counted_by_entry() -> None:
    """A repair should never happen, so the counter exists from the start."""
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, "gpu-scheduler")
    before = registry.get_sample_value("gpu_scheduler_ledger_repairs_total")
    metrics.repaired(3)

    assert (before, registry.get_sample_value("gpu_scheduler_ledger_repairs_total")) == (0, 3)


def test_reviews_are_counted_by_outcome() -> None:
    """The outcome is patched, allowed, or the reason of the refusal."""
    registry = CollectorRegistry()
    WebhookMetrics(registry).reviewed("/mutate", "MapInvalid")

    labels = {"path": "/mutate", "outcome": "MapInvalid"}
    assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1


def test_gauges_are_read_when_they_are_scraped() -> None:
    """No gauge is computed between two scrapes."""
    registry, value = CollectorRegistry(), [1.0]
    read_gauges(registry, {"one": ("One", lambda: value[0])})
    read_labelled_gauge(registry, "many", "Many", "name", {"a": lambda: 2 * value[0], "b": lambda: 3 * value[0]})
    value[0] = 5.0

    assert registry.get_sample_value("one") == 5
    assert [registry.get_sample_value("many", {"name": name}) for name in "ab"] == [10, 15]
