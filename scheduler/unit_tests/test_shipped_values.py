"""Every value that we ship: the defaults of all settings, and the constants that the contract or a page promises."""

import os
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from gpu_scheduler import settings
from gpu_scheduler.controller import workload_reconciler
from gpu_scheduler.core import text
from gpu_scheduler.core.pods import bounds, placement_map
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube.http import client, pool
from gpu_scheduler.kube.leader_election import RELEASED_DURATION, LeaseTimings
from gpu_scheduler.kube.objects import leases
from gpu_scheduler.monitor import sinks
from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from gpu_scheduler.scheduler import binding_cycle, rejection_backoff
from gpu_scheduler.scheduler import run as scheduler_run
from gpu_scheduler.scheduler.timings import Timings
from gpu_scheduler.settings import (
    CommonSettings,
    DriverSettings,
    IssuerSettings,
    LeaderSettings,
    MonitorSettings,
    RenewerSettings,
    RunSettings,
    WebhookSettings,
    read_settings,
)
from gpu_scheduler.webhook import admission

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "docs/contract.md"

COMMON = {
    "scheduler_name": "gpu-scheduler",
    "log_level": "INFO",
    "http_port": 8080,
    "bind_address": "",
    "gpu_scheduler_commit": "unknown",
}
LEADER = {
    **COMMON,
    "kubernetes_namespace": "gpu-scheduler-system",
    "pod_name": os.uname().nodename.lower(),
    "lease_duration": 15,
    "renew_deadline": 10,
    "retry_period": 2,
    "watch_idle_limit": 90,
}
SETTINGS: dict[type[CommonSettings], dict[str, object]] = {
    CommonSettings: COMMON,
    LeaderSettings: LEADER,
    RunSettings: {
        **LEADER,
        "gpu_sharing": "same-workload",
        "isolation": "env",
        "scheduling_strategy": "least_utilized",
        "gpu_utilization_goal": 80,
        "monitor_namespace": "gpu-scheduler-monitor",
        "scheduling_interval": 5,
        "pod_initial_backoff": 1,
        "pod_max_backoff": 10,
        "pod_resync": 300,
        "audit_interval": 300,
        "debug_endpoints": False,
        "decision_journal": None,
    },
    WebhookSettings: {
        **COMMON,
        "webhook_port": 8443,
        "certificate_dir": Path("/etc/gpu-scheduler/tls"),
        "client_ca": None,
        "certificate_poll": 10,
        "drain_period": 3,
    },
    RenewerSettings: {
        **COMMON,
        "kubernetes_namespace": "gpu-scheduler-system",
        "webhook_service": "gpu-scheduler-webhook",
        "serving_days": 365,
        "renew_days": 30,
    },
    IssuerSettings: {
        **COMMON,
        "kubernetes_namespace": "gpu-scheduler-system",
        "webhook_service": "gpu-scheduler-webhook",
        "serving_days": 365,
        "renew_days": 30,
        "ca_days": 3650,
        "registration_timeout": 120,
    },
    MonitorSettings: {
        **COMMON,
        "node_name": "node1",
        "kubernetes_namespace": "gpu-scheduler-system",
        "pod_name": os.uname().nodename.lower(),
        "monitor_interval": 15,
        "monitor_source": "nvml",
        "simulated_inventory": Path("/etc/gpu-scheduler/inventory/inventory.yaml"),
        "gpu_utilization_goal": 80,
    },
    DriverSettings: {
        **COMMON,
        "node_name": "node1",
        "driver_source": "nvidia",
        "kubelet_dir": Path("/var/lib/kubelet"),
        "cdi_dir": Path("/var/run/cdi"),
        "static_cdi_dir": Path("/etc/cdi"),
        "simulated_device_major": 120,
    },
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_each_setting_has_its_shipped_value(
    kind: type[CommonSettings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any variable but NODE_NAME. The values are compared whole, so a new setting needs its line here."""
    for each in fields(kind):
        monkeypatch.delenv(each.name.upper(), raising=False)
    monkeypatch.setenv("NODE_NAME", "node1")
    monkeypatch.setattr(settings, "NAMESPACE_FILE", tmp_path / "absent")

    assert asdict(read_settings(kind)) == SETTINGS[kind]


def test_each_kind_of_settings_is_listed_here() -> None:
    """A new command with settings of its own needs its lines above."""
    found = {CommonSettings}
    while more := {sub for kind in found for sub in kind.__subclasses__()} - found:
        found |= more

    assert found == set(SETTINGS)


RUN = SETTINGS[RunSettings]
VALUES = {
    "the loop's timings": (
        Timings(),
        {"interval": 5, "audit": 300, "backoff_first": 1, "backoff_longest": 10, "resync": 300},
    ),
    "the Lease's timings": (LeaseTimings(), {"duration": 15, "renew_deadline": 10, "retry_period": 2}),
    "the policy": (
        Policy(),
        {
            "scheduler_name": "gpu-scheduler",
            "sharing": "same-workload",
            "utilization_goal": 80,
            # An installed scheduler lacks no right.
            "unread_storage": "",
            "unwritten_claims": "",
            "reads_claims": False,
            "unread_monitors": False,
        },
    ),
    "the webhook's limits": (
        WEBHOOK_LIMITS,
        {
            "served": 128,
            "served_per_address": 64,
            "handshakes": 16,
            "waiting": 384,
            "request_timeout": 10,
            "idle_timeout": 120,
            "evictable_after": 1,
        },
    ),
}


@pytest.mark.parametrize(("value", "shipped"), VALUES.values(), ids=VALUES)
def test_each_value_has_its_shipped_fields(value: object, shipped: dict[str, object]) -> None:
    """These too are compared whole. Tests that set no times run with them."""
    assert asdict(value) == shipped  # type: ignore[call-overload]


CONSTANTS = {
    "a call's time-out": (client.CALL_TIMEOUT, 3),
    "the longest Retry-After": (client.LONGEST_RETRY_AFTER, 60),
    "connections of a client": (client.CONNECTIONS, 192),
    "the Lease's gap": (client.LEASE_GAP, LeaseTimings().duration - LeaseTimings().renew_deadline),
    "the time until unacknowledged data is dropped": (pool.UNACKNOWLEDGED, 4),
    "the time until an unused connection is closed": (pool.IDLE_TIMEOUT, 15),
    "a released Lease's duration": (RELEASED_DURATION, 1),
    "binds in flight": (binding_cycle.BINDERS, 64),
    "intervals until a monitor's Lease expires": (sinks.LEASE_INTERVALS, 3),
    "the duration of a monitor's Lease that says none": (leases.DEFAULT_DURATION, 45),
    "a stop's parts": (
        (scheduler_run.DRAIN, scheduler_run.RELEASE, scheduler_run.STOP, scheduler_run.STUCK),
        (3, 1, 4.5, 60),
    ),
}


@pytest.mark.parametrize(("value", "shipped"), CONSTANTS.values(), ids=CONSTANTS)
def test_each_constant_has_its_shipped_value(value: object, shipped: object) -> None:
    """Each limits what a user or the API server can notice."""
    assert value == shipped


# What a page says, as the id of the promise or the page, the words, and the values that the words state.
DOCUMENTED = [
    ("lead-2", "within 10 s", (LEADER["renew_deadline"],), (10,)),
    ("lead-2", "at most 3 s", (client.CALL_TIMEOUT,), (3,)),
    ("wait-3", "from 1 s to 10 s", (RUN["pod_initial_backoff"], RUN["pod_max_backoff"]), (1, 10)),
    ("wait-4", "after 5 min", (RUN["pod_resync"],), (300,)),
    ("wait-5", "1 s later, then 2, up to 60", (rejection_backoff.FIRST, rejection_backoff.LONGEST), (1, 60)),
    ("map-7", "64 KiB", (placement_map.MAX_BYTES,), (64 * 1024,)),
    ("map-12", "4,096 characters", (bounds.MAX_VALUE,), (4096,)),
    ("env-14", "4,096 characters", (bounds.MAX_VALUE,), (4096,)),
    ("text-5", "1,000 bytes", (text.MAX_BYTES,), (1000,)),
    ("text-12", "63 bytes", (bounds.MAX_ANNOTATION,), (63,)),
    ("text-12", "1,000 containers", (bounds.MAX_CONTAINERS,), (1000,)),
    ("text-12", "4,000 entries", (bounds.MAX_ENTRIES,), (4000,)),
    ("serve-2", "10 s to be complete and 10 s to be answered", (WEBHOOK_LIMITS.request_timeout,), (10,)),
    ("serve-3", "40,000 fields", (admission.MOST_FIELDS,), (40_000,)),
    ("docs/how-it-works.md", "within 10 s of its last", (LEADER["renew_deadline"],), (10,)),
    ("docs/reasons.md", "backs off for 1 to 10 s", (RUN["pod_initial_backoff"], RUN["pod_max_backoff"]), (1, 10)),
    ("docs/reasons.md", "every 5 minutes", (RUN["pod_resync"],), (300,)),
    ("docs/simulator.md", "lease 15/10/2 s", tuple(asdict(LeaseTimings()).values()), (15, 10, 2)),
    ("docs/monitor.md", "`MONITOR_INTERVAL` (15 s)", (SETTINGS[MonitorSettings]["monitor_interval"],), (15,)),
    (
        "docs/workloads.md",
        "after 1 s, then with growing back-off, at least every minute",
        (workload_reconciler.PAUSE_FIRST, workload_reconciler.PAUSE_LONGEST),
        (1, 60),
    ),
    ("roles/scheduler/defaults/main.yml", "scheduler_interval: 5s", (RUN["scheduling_interval"],), (5,)),
    ("roles/monitor/defaults/main.yml", "interval: 15s", (SETTINGS[MonitorSettings]["monitor_interval"],), (15,)),
    ("roles/controller/README.md", "takes over within 15 s", (LEADER["lease_duration"],), (15,)),
    ("plugins/module_utils/status_lines.py", "LEASE_SECONDS: Final = 15", (LEADER["lease_duration"],), (15,)),
]


@pytest.mark.parametrize(
    ("place", "words", "values", "documented"), DOCUMENTED, ids=[f"{row[0]}: {row[1]}" for row in DOCUMENTED]
)
def test_what_is_written_is_what_is_shipped(
    place: str, words: str, values: tuple[object, ...], documented: tuple[object, ...]
) -> None:
    """The contract's line, or the page, states the value that the program has."""
    page = ROOT / (place if "/" in place else CONTRACT)
    lines = page.read_text(encoding="utf-8")
    if "/" not in place:
        (lines,) = [line for line in lines.splitlines() if line.startswith(f"- **{place}**")]

    assert words in " ".join(lines.split())
    assert values == documented


@pytest.mark.promise("lead-5")
def test_conflicts_are_checked_more_often_than_a_report_may_take() -> None:
    """The loop looks for one at each of its intervals, and the contract allows 30 s."""
    assert Timings().interval < 30


def test_a_stop_takes_less_than_five_seconds() -> None:
    """The parts are waited for one after the other."""
    assert scheduler_run.DRAIN + scheduler_run.RELEASE <= scheduler_run.STOP < 5


def test_the_loop_alone_runs_with_the_shipped_settings() -> None:
    """Tests of the loop and of leader election that set no times run with the times of the installed program."""
    run = SETTINGS[RunSettings]

    assert tuple(asdict(Timings()).values()) == tuple(
        run[name]
        for name in ("scheduling_interval", "audit_interval", "pod_initial_backoff", "pod_max_backoff", "pod_resync")
    )
    assert tuple(asdict(LeaseTimings()).values()) == (run["lease_duration"], run["renew_deadline"], run["retry_period"])
