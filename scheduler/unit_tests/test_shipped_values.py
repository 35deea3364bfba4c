"""What the contract and the pages say of times and sizes is what the programs ship with."""

from pathlib import Path

import pytest

from gpu_scheduler.controller import workload_reconciler
from gpu_scheduler.core import scheduling_queue, text
from gpu_scheduler.core.pods import bounds, placement_map
from gpu_scheduler.kube.http import client
from gpu_scheduler.kube.leader_election import LeaseTimings
from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from gpu_scheduler.scheduler import rejection_backoff
from gpu_scheduler.scheduler import run as scheduler_run
from gpu_scheduler.scheduler.timings import Timings
from gpu_scheduler.settings import LeaderSettings, MonitorSettings, RunSettings
from gpu_scheduler.webhook import admission

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "docs/contract.md"

RENEW = f"{LeaderSettings.renew_deadline:g} s"
FIRST, LONGEST = RunSettings.pod_initial_backoff, RunSettings.pod_max_backoff
MINUTES = RunSettings.pod_resync / 60
LEASE = LeaseTimings()
REVIEW = f"{WEBHOOK_LIMITS.request_timeout:g} s"

# What a page says: the id of the promise or the page, and its words with the shipped values in them.
DOCUMENTED = [
    ("lead-2", f"within {RENEW}"),
    ("lead-2", f"at most {client.CALL_TIMEOUT:g} s"),
    ("wait-3", f"from {FIRST:g} s to {LONGEST:g} s"),
    ("wait-4", f"after {MINUTES:g} min"),
    ("wait-5", f"{rejection_backoff.FIRST:g} s later, then 2, up to {rejection_backoff.LONGEST:g}"),
    ("wait-7", f"of 20 ms it is tried again {0.02 / scheduling_queue.SHARE:g} s later"),
    ("map-7", f"{placement_map.MAX_BYTES // 1024} KiB"),
    ("map-12", f"{bounds.MAX_VALUE:,} characters"),
    ("env-14", f"{bounds.MAX_VALUE:,} characters"),
    ("text-5", f"{text.MAX_BYTES:,} bytes"),
    ("text-12", f"{bounds.MAX_ANNOTATION} bytes"),
    ("text-12", f"{bounds.MAX_CONTAINERS:,} containers"),
    ("text-12", f"{bounds.MAX_ENTRIES:,} entries"),
    ("serve-2", f"{REVIEW} to be complete and {REVIEW} to be answered"),
    ("serve-3", f"{admission.MOST_FIELDS:,} fields"),
    ("docs/how-it-works.md", f"within {RENEW} of its last"),
    ("docs/reasons.md", f"backs off for {FIRST:g} to {LONGEST:g} s"),
    ("docs/reasons.md", f"every {MINUTES:g} minutes"),
    ("docs/simulator.md", f"lease {LEASE.duration:g}/{LEASE.renew_deadline:g}/{LEASE.retry_period:g} s"),
    ("docs/monitor.md", f"`MONITOR_INTERVAL` ({MonitorSettings.monitor_interval:g} s)"),
    ("docs/workloads.md", f"after {workload_reconciler.PAUSE_FIRST:g} s, then with growing back-off"),
    ("roles/scheduler/defaults/main.yml", f"scheduler_interval: {RunSettings.scheduling_interval:g}s"),
    ("roles/monitor/defaults/main.yml", f"interval: {MonitorSettings.monitor_interval:g}s"),
    ("roles/controller/README.md", f"takes over within {LeaderSettings.lease_duration:g} s"),
    ("plugins/module_utils/status_lines.py", f"LEASE_SECONDS: Final = {LeaderSettings.lease_duration:g}"),
]


@pytest.mark.parametrize(("place", "words"), DOCUMENTED)
def test_a_page_says_what_is_shipped(place: str, words: str) -> None:
    """The contract's line, or the page, has the value that the program has."""
    lines = (ROOT / (place if "/" in place else CONTRACT)).read_text(encoding="utf-8")
    if "/" not in place:
        (lines,) = [line for line in lines.splitlines() if line.startswith(f"- **{place}**")]

    assert words in " ".join(lines.split())


@pytest.mark.promise("lead-5")
def test_conflicts_are_checked_more_often_than_a_report_may_take() -> None:
    """The loop looks for one at each of its intervals, and the contract allows 30 s."""
    assert Timings().interval < 30


def test_a_stop_takes_less_than_five_seconds() -> None:
    """The parts are waited for one after the other."""
    assert scheduler_run.DRAIN + scheduler_run.RELEASE <= scheduler_run.STOP < 5


def test_the_loop_and_the_election_alone_have_the_settings_of_the_program() -> None:
    """Tests that set no times run with those of the installed program."""
    settings, timings = RunSettings, Timings()

    assert (timings.interval, timings.audit) == (settings.scheduling_interval, settings.audit_interval)
    assert (timings.backoff_first, timings.backoff_longest) == (FIRST, LONGEST)
    assert timings.resync == settings.pod_resync
    assert (settings.lease_duration, settings.renew_deadline, settings.retry_period) == (
        LEASE.duration,
        LEASE.renew_deadline,
        LEASE.retry_period,
    )
