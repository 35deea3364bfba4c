"""What each alert promises: severity, how long it waits until it fires, and series on both sides of its limit.

The numbers are typed here once more and read from no rule, so that a rule with another number fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpu_scheduler.core.reasons import RANKING, is_permanent

SCRAPE: Final = 15
"""Seconds between two values of a series: `observability_scrape_interval`."""
MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
END: Final = 75 * MINUTE
"""How long each series is: longer than any alert waits."""

Series = dict[str, str]
"""The values of each series, in promtool's notation."""


@dataclass(frozen=True, slots=True)
class Firing:
    """Series on which an alert fires, `wait` after it `begins` and no evaluation earlier, until it `ends`."""

    series: Series
    summary: str
    labels: dict[str, str] = field(default_factory=dict)
    """Those beside severity and namespace."""
    begins: int = 0
    ends: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, with the firing on which it fires, and the series on which it never does."""

    name: str
    severity: str
    wait: int
    firing: tuple[Firing, ...]
    quiet: tuple[Series, ...]

    def __str__(self) -> str:
        """Return its name."""
        return self.name


def held(value: float | str, seconds: int = END) -> str:
    """Return a value that stays so for these seconds."""
    return f"{value}x{seconds // SCRAPE - 1}"


def grows(each: float, start: float = 0, seconds: int = END) -> str:
    """Return a counter that grows by `each` between two scrapes."""
    return f"{start}+{each}x{seconds // SCRAPE - 1}"


def counted(every: int, *values: int) -> str:
    """Return a counter with these values, each of which stays for `every` seconds, and the last one to the end."""
    return " ".join([*(held(value, every) for value in values[:-1]), held(values[-1])])


def of_pods(metric: str, labels: str, first: str, second: str) -> Series:
    """Return a series of each of two pods."""
    return {f'{metric}{{{labels},pod="a"}}': first, f'{metric}{{{labels},pod="b"}}': second}


def of_replicas(metric: str, first: float, second: float, more: str = "") -> Series:
    """Return a gauge of both replicas of the scheduler."""
    return of_pods(metric, f'job="gpu-scheduler"{more}', held(first), held(second))


def leading(first: int, second: int) -> Series:
    """Return which replicas of the scheduler lead. One of the controller always does."""
    return {
        **of_replicas("gpu_scheduler_leader", first, second),
        'gpu_scheduler_leader{job="gpu-scheduler-controller"}': held(1),
    }


def up(job: str, first: int, second: int) -> Series:
    """Return whether each replica of a program can be scraped."""
    return of_pods("up", f'job="{job}"', held(first), held(second))


GPU: Final = {"node": "node1", "gpu": "0", "uuid": "GPU-1"}


def gpu(metric: str, first: float, second: float) -> Series:
    """Return a gauge of one GPU, of two monitors: one takes the place of the other."""
    labels = ",".join(f'{name}="{text}"' for name, text in GPU.items())
    return of_pods(f"gpu_scheduler_monitor_gpu_{metric}", f'{labels},model="A100"', held(first), held(second))


def silence(job: str, first: int, second: int) -> Series:
    """Return how long each replica has heard nothing of pods."""
    return of_pods("gpu_scheduler_watch_silence_seconds", f'job="{job}",resource="pods"', held(first), held(second))


def waiting(reason: str, first: int, second: int) -> Series:
    """Return how many pods wait for this reason, as each replica says."""
    return of_replicas("gpu_scheduler_pending_pods", first, second, f',reason="{reason}"')


def failed(values: str) -> Series:
    """Return the attempts of two replicas, each of which fails with these values, and once a second succeeds."""
    name = "scheduler_schedule_attempts_total"
    return {
        **of_pods(name, 'job="gpu-scheduler",result="error"', values, values),
        f'{name}{{job="gpu-scheduler",pod="a",result="scheduled"}}': grows(SCRAPE),
    }


def leaders(job: str, *transitions: int) -> Series:
    """Return the transitions of a Lease, of which each stays for five minutes. Another replica has seen one."""
    name, first = "gpu_scheduler_leader_transitions", counted(5 * MINUTE, *transitions)
    return of_pods(name, f'job="{job}"', first, counted(5 * MINUTE, *transitions[:2]))


def certificates(first: int, second: int) -> Series:
    """Return the seconds until the certificates of both replicas of the webhook end."""
    labels = 'job="gpu-scheduler-webhook"'
    return of_pods("gpu_scheduler_certificate_expiry_seconds", labels, held(first), held(second))


def reviews(*slow: tuple[int, int]) -> Series:
    """Return reviews at /mutate, 1,000 of each replica between two scrapes.

    Of the first one's this many take from 1 to 2.5 s, for this many seconds.
    """
    name = "gpu_scheduler_admission_review_duration_seconds_bucket"
    fast, done, total = [], 0, 0
    for number, seconds in slow:
        fast.append(grows(1000 - number, done, seconds))
        done += (1000 - number) * (seconds // SCRAPE)
        total += seconds
    edges = {"1": " ".join(fast), "2.5": grows(1000, 0, total), "+Inf": grows(1000, 0, total)}
    labels = 'job="gpu-scheduler-webhook",path="/mutate",le='
    return {
        series: values
        for edge, first in edges.items()
        for series, values in of_pods(name, f'{labels}"{edge}"', first, edges["+Inf"]).items()
    }


def driver(registered: int, current: int) -> Series:
    """Return the gauges of the driver of a node, beside one that is ready and about to end."""
    labels = 'job="gpu-scheduler-driver",node="node1"'
    return {
        **of_pods("gpu_scheduler_driver_registered", labels, held(registered), held(1)),
        **of_pods("gpu_scheduler_driver_current", labels, held(current), held(1)),
    }


def claims(outcome: str, prepared: str, unprepared: str) -> Series:
    """Return the counters of claims with this outcome."""
    labels, name = 'job="gpu-scheduler-driver",node="node1"', "gpu_scheduler_driver_claims_total"
    values = {"prepare": prepared, "unprepare": unprepared}
    return {f'{name}{{{labels},operation="{each}",outcome="{outcome}"}}': text for each, text in values.items()}


def above_none(name: str, wait: int, metric: str, summary: str, severity: str = "warning") -> Alert:
    """Return an alert on what one replica counts, as soon as it is not zero."""
    firing = Firing(of_replicas(metric, 1, 0), f"{summary}: 1"), Firing(of_replicas(metric, 2, 2), f"{summary}: 2")
    return Alert(name, severity, wait, firing, (of_replicas(metric, 0, 0),))


def down(name: str, severity: str, wait: int, job: str, summary: str) -> Alert:
    """Return an alert on a program of which no replica answers, or none is found."""
    firing = Firing(up(job, 0, 0), summary), Firing(up("another", 1, 1), summary)
    return Alert(name, severity, wait, firing, (up(job, 0, 1),))


LEADERS: Final = "Replicas of the scheduler that lead, of which exactly one must"
LONGEST: Final = "gpu_scheduler_longest_wait_seconds"
REPAIRS: Final = "gpu_scheduler_ledger_repairs_total"
PERMANENT: Final = [str(reason) for reason, in_all in RANKING if not in_all and is_permanent((reason, False))]
PASSING: Final = sorted({str(reason) for reason, _ in RANKING} - {*PERMANENT})
NOT_READY: Final = "The driver of node1 is not registered with the kubelet, or cannot publish its GPUs"

ALERTS: Final = (
    down("GpuSchedulerDown", "critical", 5 * MINUTE, "gpu-scheduler", "No scheduler can be scraped: no pod gets a GPU"),
    Alert(
        "GpuSchedulerLeaders",
        "critical",
        MINUTE,
        (
            Firing(leading(0, 0), f"{LEADERS}: 0"),
            Firing(leading(1, 1), f"{LEADERS}: 2"),
        ),
        (leading(0, 1),),
    ),
    above_none(
        "GpuConflict", 0, "gpu_scheduler_conflicts", "Pairs of pods that hold one GPU against the rules", "critical"
    ),
    above_none("GpuDrift", 5 * MINUTE, "gpu_scheduler_drift", "Pods that may not have the GPUs that they were given"),
    Alert(
        "GpuLedgerRepaired",
        "warning",
        0,
        (
            Firing(
                of_pods(REPAIRS, 'job="gpu-scheduler"', counted(MINUTE, 0, 1), held(0)),
                "The ledger differed from the API objects and was rebuilt",
                begins=MINUTE,
                ends=MINUTE - SCRAPE + 15 * MINUTE,
            ),
        ),
        (of_replicas(REPAIRS, 1, 0),),
    ),
    Alert(
        "GpuWatchSilent",
        "warning",
        MINUTE,
        tuple(
            Firing(
                silence(job, 181, 180), f"{job} has heard nothing of pods for 3m 1s", {"job": job, "resource": "pods"}
            )
            for job in ("gpu-scheduler", "gpu-scheduler-controller")
        ),
        (silence("gpu-scheduler", 180, 180), silence("gpu-scheduler-controller", 9, 9)),
    ),
    Alert(
        "GpuPodsWaitLong",
        "warning",
        5 * MINUTE,
        (Firing(of_replicas(LONGEST, HOUR + 1, 0), "A pod has waited for its GPU for 1h 0m 1s"),),
        (of_replicas(LONGEST, HOUR, HOUR), of_replicas(LONGEST, 60, 0)),
    ),
    Alert(
        "GpuPodsCannotBePlaced",
        "warning",
        15 * MINUTE,
        tuple(
            Firing(
                waiting(reason, 1, other),
                f"Pods that wait with {reason}, which no waiting cures: 1",
                {"reason": reason},
            )
            for reason in PERMANENT
            for other in (0, 1)
        ),
        (*(waiting(reason, 9, 9) for reason in PASSING), waiting(PERMANENT[0], 0, 0)),
    ),
    Alert(
        "GpuBindsFail",
        "warning",
        5 * MINUTE,
        # After ten minutes 4 fail between two scrapes: from the 8th of these on more than 30 in five minutes.
        (
            Firing(
                failed(f"{held(0, 10 * MINUTE)} {grows(2, 2)}"),
                "Bindings that fail each second: 0.2667",
                begins=10 * MINUTE + 7 * SCRAPE,
            ),
        ),
        (failed(grows(0.05 * SCRAPE)),),
    ),
    Alert(
        "GpuLeaderChangesOften",
        "warning",
        0,
        tuple(
            Firing(
                leaders(job, 7, 8, 9, 10, 11),
                f"Changes of the leader of {job} in half an hour: 4",
                {"job": job},
                begins=20 * MINUTE,
                ends=5 * MINUTE - SCRAPE + 30 * MINUTE,
            )
            for job in ("gpu-scheduler", "gpu-scheduler-controller")
        ),
        (leaders("gpu-scheduler", 7, 8, 9, 10), leaders("gpu-scheduler-controller", 7, 8, 9, 10)),
    ),
    above_none(
        "GpuLimitsUnreadable",
        5 * MINUTE,
        "gpu_scheduler_limits_faults",
        "Lines of ConfigMap gpu-scheduler-limits that cannot be read",
    ),
    above_none(
        "GpuMonitorSilent",
        MINUTE,
        "gpu_scheduler_stale_monitors",
        "Nodes whose monitor does not renew its Lease, so that no pod gets their GPUs by strategy",
    ),
    above_none(
        "GpuUnpublished",
        5 * MINUTE,
        "gpu_scheduler_unpublished_nodes",
        "Nodes with GPUs that no driver publishes, so that no pod with claims gets them",
    ),
    down(
        "GpuControllerDown",
        "warning",
        5 * MINUTE,
        "gpu-scheduler-controller",
        "No controller can be scraped: GPUWorkloads get no pods",
    ),
    down(
        "GpuWebhookDown",
        "critical",
        2 * MINUTE,
        "gpu-scheduler-webhook",
        "No webhook can be scraped: pods of the scheduler cannot be created",
    ),
    Alert(
        "GpuWebhookCertificateExpires",
        "warning",
        HOUR,
        (
            Firing(
                certificates(14 * 24 * HOUR - 1, 30 * 24 * HOUR),
                "The certificate of the webhook ends in 13d 23h 59m 59s, and nobody has renewed it",
            ),
        ),
        (certificates(14 * 24 * HOUR, 30 * 24 * HOUR), certificates(80 * 24 * HOUR, 80 * 24 * HOUR)),
    ),
    Alert(
        "GpuWebhookSlow",
        "warning",
        10 * MINUTE,
        (
            Firing(
                reviews((21, END)),
                "Of the reviews at /mutate, one in a hundred takes 1.071s or more",
                {"path": "/mutate"},
                begins=SCRAPE,
            ),
            # After ten minutes 42 of 2,000 are slow between two scrapes: after 10 of these 420 of 40,000.
            Firing(
                reviews((0, 10 * MINUTE), (42, END)),
                "Of the reviews at /mutate, one in a hundred takes 1.786s or more",
                {"path": "/mutate"},
                begins=10 * MINUTE + 10 * SCRAPE,
            ),
        ),
        (reviews((20, END)),),
    ),
    Alert(
        "GpuUnhealthy",
        "critical",
        MINUTE,
        (Firing(gpu("health", 2, 1), "GPU 0 of node1 (GPU-1) is unhealthy", GPU),),
        (gpu("health", 1, 1), gpu("health", 0, 0)),
    ),
    Alert(
        "GpuDegraded",
        "warning",
        15 * MINUTE,
        tuple(
            Firing(gpu("health", 1, other), "GPU 0 of node1 (GPU-1) is degraded: it waits for a reset", GPU)
            for other in (0, 1)
        ),
        (gpu("health", 2, 2), gpu("health", 0, 0)),
    ),
    Alert(
        "GpuHot",
        "warning",
        5 * MINUTE,
        (Firing(gpu("temperature_celsius", 86, 85), "GPU 0 of node1 has 86 °C", GPU),),
        (gpu("temperature_celsius", 85, 85), gpu("temperature_celsius", 30, 0)),
    ),
    Alert(
        "GpuPowerHigh",
        "warning",
        10 * MINUTE,
        (Firing(gpu("power_watts", 701, 700), "GPU 0 of node1 draws 701 W", GPU),),
        (gpu("power_watts", 700, 700), gpu("power_watts", 30, 0)),
    ),
    Alert(
        "GpuDriverNotReady",
        "critical",
        5 * MINUTE,
        (
            Firing(driver(0, 1), NOT_READY, {"node": "node1"}),
            Firing(driver(1, 0), NOT_READY, {"node": "node1"}),
        ),
        (driver(1, 1),),
    ),
    Alert(
        "GpuPrepareFails",
        "warning",
        5 * MINUTE,
        (
            Firing(
                claims("held", counted(MINUTE, 5, 6, 6, 1, 1), counted(MINUTE, 0, 0, 1, 1, 2)),
                "The driver of node1 refuses claims (held); refused within ten minutes: 4",
                {"node": "node1", "outcome": "held"},
                begins=4 * MINUTE,
                ends=MINUTE - SCRAPE + 10 * MINUTE,
            ),
        ),
        (claims("held", counted(MINUTE, 5, 6, 6, 1), counted(MINUTE, 0, 0, 1)), claims("done", grows(9), grows(9))),
    ),
)
