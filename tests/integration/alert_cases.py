"""The rows of alerts: series that Prometheus has, and whether the alert fires on them, with its message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SCHEDULER: Final = 'job="gpu-scheduler"'
CONTROLLER: Final = 'job="gpu-scheduler-controller"'
WEBHOOK: Final = 'job="gpu-scheduler-webhook"'
DRIVER: Final = 'job="gpu-scheduler-driver",node="node1"'
GPU: Final = {"node": "node1", "gpu": "0", "uuid": "GPU-1"}


@dataclass(frozen=True, slots=True)
class Case:
    """One row. `series` has promtool's notation, a value for each minute. Without `summary` the alert must not fire.

    `minute` is when it is looked at, and `labels` are those of the alert beside severity and namespace.
    """

    alert: str
    name: str
    series: dict[str, str]
    minute: int
    summary: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the row's sentence."""
        return f"{self.alert} {'fires' if self.summary else 'does not fire'} {self.name}"


def gpu(metric: str) -> str:
    """Return a series of the monitor for one GPU."""
    labels = ",".join(f'{name}="{value}"' for name, value in GPU.items())
    return f'gpu_scheduler_monitor_gpu_{metric}{{{labels},model="A100",pod="monitor-a"}}'


def reviews(second: str) -> dict[str, str]:
    """Return the buckets of reviews at /mutate, all of which end within `second`."""
    name = f"gpu_scheduler_admission_review_duration_seconds_bucket{{{WEBHOOK},path="
    edges = ("0.1", "1", "2", "+Inf")
    return {f'{name}"/mutate",le="{edge}"}}': "0+60x30" if float(edge) >= float(second) else "0x30" for edge in edges}


def driver(registered: str, current: str) -> dict[str, str]:
    """Return the gauges of the driver of a node."""
    values = {"registered": registered, "current": current}
    return {f"gpu_scheduler_driver_{name}{{{DRIVER}}}": each for name, each in values.items()}


def claims(outcome: str, values: str) -> dict[str, str]:
    """Return the counter of prepared claims with this outcome."""
    return {f'gpu_scheduler_driver_claims_total{{{DRIVER},operation="prepare",outcome="{outcome}"}}': values}


UP: Final = f"up{{{SCHEDULER}}}"
A: Final = f'{SCHEDULER},pod="a"'
B: Final = f'{SCHEDULER},pod="b"'
LEADS: Final = "gpu_scheduler_leader"
WAITS: Final = "gpu_scheduler_pending_pods"
WATCH: Final = "gpu_scheduler_watch_silence_seconds"
FAILED: Final = f'scheduler_schedule_attempts_total{{{SCHEDULER},result="error"}}'
ENDS: Final = f"gpu_scheduler_certificate_expiry_seconds{{{WEBHOOK}}}"
ALL: Final = (
    Case(
        "GpuSchedulerDown", "where no replica answers", {UP: "0x9"}, 5, "No scheduler can be scraped: no pod gets a GPU"
    ),
    Case(
        "GpuSchedulerDown", "where nothing is found", {"up": "1x9"}, 5, "No scheduler can be scraped: no pod gets a GPU"
    ),
    Case("GpuSchedulerDown", "where one of two answers", {f"up{{{A}}}": "0x9", f"up{{{B}}}": "1x9"}, 9),
    Case(
        "GpuSchedulerLeaders",
        "where nobody leads",
        {f"{LEADS}{{{A}}}": "0x9", f"{LEADS}{{{B}}}": "0x9"},
        1,
        "Replicas of the scheduler that lead, of which exactly one must: 0",
    ),
    Case(
        "GpuSchedulerLeaders",
        "where two lead",
        {f"{LEADS}{{{A}}}": "1x9", f"{LEADS}{{{B}}}": "1x9"},
        1,
        "Replicas of the scheduler that lead, of which exactly one must: 2",
    ),
    Case("GpuSchedulerLeaders", "where one leads", {f"{LEADS}{{{A}}}": "1x9", f"{LEADS}{{{B}}}": "0x9"}, 9),
    Case(
        "GpuSchedulerLeaders",
        "while the leader changes",
        {f"{LEADS}{{{A}}}": "1x4 0x5", f"{LEADS}{{{B}}}": "0x5 1x4"},
        6,
    ),
    Case(
        "GpuConflict",
        "at once",
        {f"gpu_scheduler_conflicts{{{A}}}": "0 1"},
        1,
        "Pairs of pods that hold one GPU against the rules: 1",
    ),
    Case("GpuConflict", "without a conflict", {f"gpu_scheduler_conflicts{{{A}}}": "0x9"}, 9),
    Case(
        "GpuDrift",
        "of two pods",
        {f"gpu_scheduler_drift{{{A}}}": "2x9"},
        5,
        "Pods that may not have the GPUs that they were given: 2",
    ),
    Case("GpuDrift", "on drift that passes", {f"gpu_scheduler_drift{{{A}}}": "2x3 0x9"}, 9),
    Case(
        "GpuLedgerRepaired",
        "on a repair",
        {f"gpu_scheduler_ledger_repairs_total{{{A}}}": "0x2 1x9"},
        5,
        "The ledger differed from the API objects and was rebuilt",
    ),
    Case("GpuLedgerRepaired", "on a repair of yesterday", {f"gpu_scheduler_ledger_repairs_total{{{A}}}": "1x30"}, 30),
    Case(
        "GpuWatchSilent",
        "on a watch of the scheduler",
        {f'{WATCH}{{{A},resource="pods"}}': "120+60x9"},
        4,
        "gpu-scheduler has heard nothing of pods for 6m 0s",
        {"job": "gpu-scheduler", "resource": "pods"},
    ),
    Case(
        "GpuWatchSilent",
        "on a watch of the controller",
        {f'{WATCH}{{{CONTROLLER},resource="nodes"}}': "200x9"},
        4,
        "gpu-scheduler-controller has heard nothing of nodes for 3m 20s",
        {"job": "gpu-scheduler-controller", "resource": "nodes"},
    ),
    Case("GpuWatchSilent", "where something is heard each minute", {f'{WATCH}{{{A},resource="pods"}}': "60x9"}, 9),
    Case(
        "GpuPodsWaitLong",
        "after an hour",
        {f"gpu_scheduler_longest_wait_seconds{{{A}}}": "3660+60x9"},
        9,
        "A pod has waited for its GPU for 1h 10m 0s",
    ),
    Case("GpuPodsWaitLong", "before an hour", {f"gpu_scheduler_longest_wait_seconds{{{A}}}": "3000+60x9"}, 9),
    Case(
        "GpuPodsCannotBePlaced",
        "where a node does not exist",
        {f'{WAITS}{{{A},reason="NodeNotFound"}}': "2x20"},
        15,
        "Pods that wait with NodeNotFound, which no waiting cures: 2",
        {"reason": "NodeNotFound"},
    ),
    Case("GpuPodsCannotBePlaced", "where others hold the GPU", {f'{WAITS}{{{A},reason="GpuHeld"}}': "9x30"}, 30),
    Case(
        "GpuPodsCannotBePlaced", "where it was corrected soon", {f'{WAITS}{{{A},reason="MapInvalid"}}': "1x9 0x20"}, 25
    ),
    Case("GpuBindsFail", "where many fail", {FAILED: "0+30x20"}, 15, "Bindings that fail each second: 0.5"),
    Case("GpuBindsFail", "where one in a minute fails", {FAILED: "0+1x20"}, 15),
    Case(
        "GpuLeaderChangesOften",
        "where it changes each five minutes",
        {f"gpu_scheduler_leader_transitions{{{A}}}": "0x4 1x4 2x4 3x4 4x4 5x4 6x4"},
        30,
        "Changes of the leader of gpu-scheduler in half an hour: 6",
        {"job": "gpu-scheduler"},
    ),
    Case("GpuLeaderChangesOften", "on a change", {f"gpu_scheduler_leader_transitions{{{A}}}": "7x15 8x20"}, 30),
    Case(
        "GpuLimitsUnreadable",
        "on a wrong line",
        {f"gpu_scheduler_limits_faults{{{A}}}": "1x9"},
        5,
        "Lines of ConfigMap gpu-scheduler-limits that cannot be read: 1",
    ),
    Case("GpuLimitsUnreadable", "without one", {f"gpu_scheduler_limits_faults{{{A}}}": "0x9"}, 9),
    Case(
        "GpuMonitorSilent",
        "where a monitor is silent",
        {f"gpu_scheduler_stale_monitors{{{A}}}": "1x9"},
        1,
        "Nodes whose monitor does not renew its Lease, so that no pod gets their GPUs by strategy: 1",
    ),
    Case("GpuMonitorSilent", "where all renew", {f"gpu_scheduler_stale_monitors{{{A}}}": "0x9"}, 9),
    Case(
        "GpuControllerDown",
        "where none answers",
        {f"up{{{CONTROLLER}}}": "0x9"},
        5,
        "No controller can be scraped: GPUWorkloads get no pods",
    ),
    Case("GpuControllerDown", "where one answers", {f"up{{{CONTROLLER}}}": "1x9"}, 9),
    Case(
        "GpuWebhookDown",
        "where none answers",
        {f"up{{{WEBHOOK}}}": "0x9"},
        2,
        "No webhook can be scraped: pods of the scheduler cannot be created",
    ),
    Case("GpuWebhookDown", "during a restart", {f"up{{{WEBHOOK}}}": "1 0 1x9"}, 2),
    Case(
        "GpuWebhookCertificateExpires",
        "13 days before",
        {ENDS: "1123200x60"},
        60,
        "The certificate of the webhook ends in 13d 0h 0m 0s, and nobody has renewed it",
    ),
    Case("GpuWebhookCertificateExpires", "29 days before", {ENDS: "2505600x90"}, 90),
    Case(
        "GpuWebhookSlow",
        "at two seconds",
        reviews("2"),
        20,
        "Of the reviews at /mutate, one in a hundred takes 1.99s or more",
        {"path": "/mutate"},
    ),
    Case("GpuWebhookSlow", "at a tenth", reviews("0.1"), 20),
    Case(
        "GpuUnhealthy",
        "on an unhealthy GPU",
        {gpu("health"): "0 2x9"},
        2,
        "GPU 0 of node1 (GPU-1) is unhealthy",
        GPU,
    ),
    Case("GpuUnhealthy", "on a degraded GPU", {gpu("health"): "1x30"}, 30),
    Case(
        "GpuDegraded",
        "on a degraded GPU",
        {gpu("health"): "1x30"},
        15,
        "GPU 0 of node1 (GPU-1) is degraded: it waits for a reset",
        GPU,
    ),
    Case("GpuDegraded", "on a healthy GPU", {gpu("health"): "0x30"}, 30),
    Case("GpuHot", "at 90 °C", {gpu("temperature_celsius"): "90x9"}, 5, "GPU 0 of node1 has 90 °C", GPU),
    Case("GpuHot", "on a peak", {gpu("temperature_celsius"): "90x3 80x9"}, 9),
    Case("GpuHot", "at the limit", {gpu("temperature_celsius"): "85x20"}, 20),
    Case("GpuPowerHigh", "at 701 W", {gpu("power_watts"): "701x20"}, 10, "GPU 0 of node1 draws 701 W", GPU),
    Case("GpuPowerHigh", "at 700 W", {gpu("power_watts"): "700x20"}, 20),
    Case(
        "GpuUnpublished",
        "where a driver publishes nothing",
        {f"gpu_scheduler_unpublished_nodes{{{A}}}": "2x9"},
        5,
        "Nodes with GPUs that no driver publishes, so that no pod with claims gets them: 2",
    ),
    Case("GpuUnpublished", "while a driver restarts", {f"gpu_scheduler_unpublished_nodes{{{A}}}": "1x4 0x9"}, 9),
    Case(
        "GpuDriverNotReady",
        "where the kubelet has not registered it",
        driver("0x9", "1x9"),
        5,
        "The driver of node1 is not registered with the kubelet, or cannot publish its GPUs",
        {"node": "node1"},
    ),
    Case(
        "GpuDriverNotReady",
        "where it cannot publish",
        driver("1x9", "0x9"),
        5,
        "The driver of node1 is not registered with the kubelet, or cannot publish its GPUs",
        {"node": "node1"},
    ),
    Case("GpuDriverNotReady", "where it is ready again soon", driver("0x4 1x9", "1x9"), 9),
    Case(
        "GpuPrepareFails",
        "where another claim has the GPU",
        claims("held", "0+1x20"),
        16,
        "The driver of node1 refuses claims (held); refused within ten minutes: 10",
        {"node": "node1", "outcome": "held"},
    ),
    Case("GpuPrepareFails", "where claims are prepared", claims("done", "0+9x20"), 20),
    Case("GpuPrepareFails", "where a claim is prepared at the third try", claims("claim", "0 1 2x20"), 16),
)
