"""Board scheduling: whether pods are placed, how fast, and by what."""

from typing import Final

from boards.panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    Board,
    Query,
    Row,
    Stat,
    TimeSeries,
    quantiles,
    rising,
)

ALLOCATIONS: Final = "gpu_scheduler_claim_allocation_duration_seconds"
# Where no pod is placed within the interval of the rate, a quantile has no value.
SPARSE: Final = "Gaps are times without any."
PHASES: Final = {"Pending": ORANGE, "Scheduled": BLUE, "Running": GREEN, "Succeeded": PURPLE, "Failed": RED}

BOARD: Final = Board(
    "scheduling",
    "Are pods placed, how fast, and what chooses their GPUs?",
    (
        Row(
            "",
            (
                Stat(
                    title="Pods that wait",
                    description="Our pods that are not bound yet. Not bad by itself: board Waiting says why they wait.",
                    query=Query("max(agentaflow_workloads_pending)"),
                ),
                Stat(
                    title="Pods that run",
                    description="Our pods that are bound and not finished.",
                    query=Query("max(agentaflow_workloads_running)"),
                ),
                Stat(
                    title="Binds",
                    description="Pods bound per minute. At 0 while pods wait and GPUs are free: see boards Waiting "
                    "and Operations.",
                    unit="cpm",
                    query=Query("60 * sum(rate(gpu_scheduler_binds_total[$__rate_interval]))"),
                ),
                Stat(
                    title="From creation to Binding, p99",
                    description="Seconds of the slowest hundredth of the pods bound within the chosen time. The API "
                    "server rounds a pod's creation down to a second. Pods that waited for a GPU count too.",
                    unit="s",
                    query=Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(increase(gpu_scheduler_creation_to_bind_seconds_bucket[$__range])))"
                    ),
                ),
                Stat(
                    title="Attempts that failed",
                    description="Attempts within the chosen time that ended with an error: the API server refused a "
                    "write or did not answer. They are tried again; reason BindFailed in the pod's condition says "
                    "why.",
                    query=Query(
                        'round(sum(increase(scheduler_schedule_attempts_total{result="error"}[$__range])) or vector(0))'
                    ),
                    levels=rising((1, ORANGE)),
                ),
                Stat(
                    title="Strategy in force",
                    description="The strategy of pods that ask for a count of GPUs and name no strategy themselves. "
                    "`gpu-scheduler strategy` changes it.",
                    query=Query("max by (strategy) (gpu_scheduler_strategy) == 1", "{{strategy}}"),
                    named=True,
                ),
            ),
        ),
        Row(
            "Placement",
            (
                TimeSeries(
                    title="Binds by what chose the GPUs",
                    description="Pods bound per minute: by a map, or by a strategy.",
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (strategy) (rate(gpu_scheduler_binds_total[$__rate_interval]))",
                            "{{strategy}}",
                        ),
                    ),
                    stacked=True,
                ),
                TimeSeries(
                    title="Pods that wait and pods that run",
                    description="Our pods that are not bound yet, and those that are bound and not finished. Both "
                    "rise: more is asked for than there is.",
                    queries=(
                        Query("max(agentaflow_workloads_pending)", "wait"),
                        Query("max(agentaflow_workloads_running)", "run"),
                    ),
                    colors={"wait": ORANGE, "run": GREEN},
                ),
                TimeSeries(
                    title="From creation to Binding, by kind of the controller",
                    description="Seconds from a pod's creation, rounded down to a second, to its Binding, by the "
                    f"kind of its controller; Pod if it has none. {SPARSE} High: pods wait for GPUs, or the "
                    "scheduler had no leader.",
                    unit="s",
                    queries=quantiles("gpu_scheduler_creation_to_bind_seconds", "kind"),
                ),
                TimeSeries(
                    title="From first sight to Binding",
                    description="Seconds from when the scheduler first saw a pod to having bound it, without what "
                    f"the API server took to send the pod. {SPARSE}",
                    unit="s",
                    queries=quantiles("agentaflow_scheduling_duration", of=(0.5, 0.9, 0.99)),
                ),
            ),
        ),
        Row(
            "Attempts",
            (
                TimeSeries(
                    title="Attempts by result",
                    description="Attempts per minute to schedule a pod: scheduled, unschedulable, error. Many "
                    "unschedulable ones are normal while pods wait; errors come from the API server.",
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (result) (rate(scheduler_schedule_attempts_total[$__rate_interval]))",
                            "{{result}}",
                        ),
                    ),
                    colors={"scheduled": GREEN, "unschedulable": ORANGE, "error": RED},
                ),
                TimeSeries(
                    title="Attempts without a placement, by reason",
                    description="Attempts per minute that ended without a placement. A high rate of one reason: "
                    "something changes all the time that might cure it, and does not.",
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (reason) (rate(gpu_scheduler_attempts_total[$__rate_interval])) > 0",
                            "{{reason}}",
                        ),
                    ),
                    stacked=True,
                ),
                TimeSeries(
                    title="Duration of an attempt",
                    description="Seconds from taking a pod up to the end of its attempt, the Binding included, by "
                    f"result. {SPARSE} Above 1 s: the API server is slow, or the scheduler lacks CPU (board "
                    "Operations).",
                    unit="s",
                    queries=quantiles("scheduler_scheduling_attempt_duration_seconds", "result"),
                ),
                TimeSeries(
                    title="Pods in the scheduling queue",
                    description="Pending pods by queue. active: they are tried next, and their number falls within "
                    "seconds; backoff: they are tried again soon; unschedulable: they wait for a cluster event. "
                    "Many active for long: the leader is stuck or overloaded (board Operations).",
                    queries=(Query("max by (queue) (scheduler_pending_pods)", "{{queue}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "ResourceClaims",
            (
                TimeSeries(
                    title="Claims that have GPUs",
                    description="ResourceClaims by whom they serve: bound, a pod that we have bound; waiting, pods of "
                    "ours that wait; other, another scheduler's pods, or a claim that is not cleared yet. waiting "
                    "stays for long: its pods cannot be bound, and board Waiting says why.",
                    width=8,
                    queries=(Query("max by (state) (gpu_scheduler_allocated_claims)", "{{state}}"),),
                    stacked=True,
                    colors={"bound": GREEN, "waiting": ORANGE, "other": BLUE},
                ),
                TimeSeries(
                    title="Allocations by outcome",
                    description="Allocations of a pod's claims per minute: allocated; failed, the API server refused a "
                    "write; unseen, the watch is late; withdrawn, another claim has one of the GPUs. The last often: "
                    "another scheduler takes the same GPUs.",
                    width=8,
                    unit="cpm",
                    queries=(
                        Query(
                            f'60 * sum by (outcome) (rate({ALLOCATIONS}_bucket{{le="+Inf"}}[$__rate_interval]))',
                            "{{outcome}}",
                        ),
                    ),
                    stacked=True,
                    colors={"allocated": GREEN, "failed": RED, "unseen": PURPLE, "withdrawn": ORANGE},
                ),
                TimeSeries(
                    title="Duration of an allocation, p99",
                    description="Seconds from the first write of a pod's claims to the look for others; 0 while there "
                    "is none. 0.25 s of it is the wait for another scheduler, while one has a claim to allocate. "
                    "Near 3 s: the watch of claims is late.",
                    width=8,
                    unit="s",
                    queries=(
                        Query(
                            "histogram_quantile(0.99, sum by (le) "
                            f"(rate({ALLOCATIONS}_bucket[$__rate_interval]))) >= 0 or vector(0)",
                            "p99",
                        ),
                    ),
                ),
            ),
            collapsed=True,
        ),
        Row(
            "GPUWorkloads",
            (
                TimeSeries(
                    title="GPUWorkloads by phase",
                    description="Objects of kind GPUWorkload. Failed ones: `kubectl describe gpuworkload NAME` says "
                    "why.",
                    width=24,
                    queries=(Query("max by (phase) (gpu_scheduler_workloads)", "{{phase}}"),),
                    stacked=True,
                    colors=PHASES,
                ),
            ),
            collapsed=True,
        ),
    ),
)
