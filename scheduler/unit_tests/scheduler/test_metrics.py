import pytest
from prometheus_client import CollectorRegistry

from gpu_scheduler.core.decision import BY_MAP, Bind
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from gpu_scheduler.process.metrics import read_gauges, read_labelled_gauge
from gpu_scheduler.scheduler.metrics import SchedulerMetrics
from gpu_scheduler.scheduler.pod_states import ClaimState
from gpu_scheduler.scheduler.ports import AllocationOutcome, AttemptResult
from gpu_scheduler.scheduler.state_metrics import ClaimCollector
from gpu_scheduler.webhook.metrics import WebhookMetrics
from unit_tests.core.build import pod

NOW = 1767268800.0
"""2026-01-01T12:00:00Z"""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> SchedulerMetrics:
    return SchedulerMetrics(registry, "gpu-scheduler", lambda: NOW)


def test_attempts_are_counted_by_their_result(registry: CollectorRegistry, metrics: SchedulerMetrics) -> None:
    """With kube-scheduler's names, so that its dashboards fit."""
    for result in (
        AttemptResult.SCHEDULED,
        AttemptResult.UNSCHEDULABLE,
        AttemptResult.UNSCHEDULABLE,
        AttemptResult.ERROR,
    ):
        metrics.attempted(result, 0.003)

    for word, count in (("scheduled", 1), ("unschedulable", 2), ("error", 1)):
        labels = {"result": word, "profile": "gpu-scheduler"}
        seconds = "scheduler_scheduling_attempt_duration_seconds"
        assert registry.get_sample_value("scheduler_schedule_attempts_total", labels) == count
        assert registry.get_sample_value(f"{seconds}_count", labels) == count
        assert registry.get_sample_value(f"{seconds}_bucket", {**labels, "le": "0.002"}) == 0
        assert registry.get_sample_value(f"{seconds}_bucket", {**labels, "le": "0.004"}) == count


def test_the_time_from_the_first_watch_event_to_the_bind_is_measured(
    registry: CollectorRegistry, metrics: SchedulerMetrics
) -> None:
    """Including the time in the queue, for hours."""
    bind = Bind(PodRef("default", "train-0", "uid-1"), Placement("node1", ("0",), 0), "", BY_MAP, "index 0")
    metrics.placed(pod(created="2026-01-01T10:00:00Z"), bind, 7200)

    assert registry.get_sample_value("agentaflow_scheduling_duration_sum") == 7200
    assert registry.get_sample_value("agentaflow_scheduling_duration_bucket", {"le": "14400.0"}) == 1


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        (None, "Pod"),
        (Owner("StatefulSet", "train"), "StatefulSet"),
        (Owner("ReplicaSet", "web-5d5f"), "ReplicaSet"),
        (Owner("PyTorchJob", "train"), "PyTorchJob"),
        (Owner("Invented-by-a-tenant", "train"), "other"),
    ],
)
def test_the_time_from_creation_to_bind_is_measured_by_kind(
    registry: CollectorRegistry, metrics: SchedulerMetrics, owner: Owner | None, kind: str
) -> None:
    """A tenant's own kinds have one label together. A clock behind the API server's counts as no time."""
    bind = Bind(PodRef("default", "train-0", "uid-1"), Placement("node1", ("0",), 0), "", "best_fit", "the best")
    for created in ("2026-01-01T11:59:30Z", "2026-01-01T12:00:01Z", ""):
        metrics.placed(pod(owner=owner, created=created), bind, 1)

    name = "gpu_scheduler_creation_to_bind_seconds"
    assert registry.get_sample_value(f"{name}_sum", {"kind": kind}) == 30
    assert registry.get_sample_value(f"{name}_count", {"kind": kind}) == 2
    assert registry.get_sample_value("gpu_scheduler_binds_total", {"strategy": "best_fit"}) == 3
    assert registry.get_sample_value("gpu_scheduler_binds_total", {"strategy": "map"}) == 0


def test_each_reason_has_a_count_from_the_start(registry: CollectorRegistry, metrics: SchedulerMetrics) -> None:
    """So that a rate exists when the first pod waits."""
    metrics.waits(Reason.GPU_HELD)

    found = {reason: registry.get_sample_value("gpu_scheduler_attempts_total", {"reason": reason}) for reason in Reason}
    assert found == {reason: float(reason is Reason.GPU_HELD) for reason in Reason}


def test_allocations_are_measured_by_their_outcome(registry: CollectorRegistry, metrics: SchedulerMetrics) -> None:
    """Each outcome has a count from the start."""
    metrics.allocation(AllocationOutcome.WITHDRAWN, 0.3)

    name = "gpu_scheduler_claim_allocation_duration_seconds"
    found = {each: registry.get_sample_value(f"{name}_count", {"outcome": each}) for each in AllocationOutcome}
    assert found == {each: float(each is AllocationOutcome.WITHDRAWN) for each in AllocationOutcome}
    assert registry.get_sample_value(f"{name}_sum", {"outcome": "withdrawn"}) == 0.3


def test_claims_are_counted_at_a_scrape(registry: CollectorRegistry) -> None:
    """A state without a claim is 0."""
    ClaimCollector(registry, lambda: {ClaimState.BOUND: 2})

    found = [registry.get_sample_value("gpu_scheduler_allocated_claims", {"state": state}) for state in ClaimState]
    assert found == [2, 0, 0]


def test_repairs_are_counted_by_entry(registry: CollectorRegistry, metrics: SchedulerMetrics) -> None:
    """A repair should never happen, so the counter exists from the start."""
    before = registry.get_sample_value("gpu_scheduler_ledger_repairs_total")
    metrics.repaired(3)

    assert (before, registry.get_sample_value("gpu_scheduler_ledger_repairs_total")) == (0, 3)


def test_reviews_are_counted_by_outcome(registry: CollectorRegistry) -> None:
    """The outcome is patched, allowed, or the reason of the refusal."""
    metrics = WebhookMetrics(registry)
    metrics.reviewed("/mutate", "MapInvalid", 0.0007)
    metrics.reviewed("/mutate", "patched", 0.0007)

    labels = {"path": "/mutate", "outcome": "MapInvalid"}
    assert registry.get_sample_value("gpu_scheduler_admission_reviews_total", labels) == 1
    seconds = "gpu_scheduler_admission_review_duration_seconds_bucket"
    assert registry.get_sample_value(seconds, {"path": "/mutate", "le": "0.001"}) == 2


def test_gauges_are_read_when_they_are_scraped(registry: CollectorRegistry) -> None:
    """No gauge is computed between two scrapes."""
    value = [1.0]
    read_gauges(registry, {"one": ("One", lambda: value[0])})
    read_labelled_gauge(registry, "many", "Many", "name", {"a": lambda: 2 * value[0], "b": lambda: 3 * value[0]})
    value[0] = 5.0

    assert registry.get_sample_value("one") == 5
    assert [registry.get_sample_value("many", {"name": name}) for name in "ab"] == [10, 15]
