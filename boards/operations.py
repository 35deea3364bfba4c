"""Board operations: whether the installation is well."""

from typing import Final

from boards.panels import (
    BLUE,
    CONTROLLER,
    DECIDER,
    GREEN,
    JOB,
    ON_NODES,
    ORANGE,
    PLAIN,
    RED,
    Board,
    Column,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    falling,
    quantiles,
    rising,
)

DOCTOR: Final = "`gpu-scheduler doctor` says what is wrong and what corrects it."
ONE: Final = ((None, RED), (1, GREEN), (2, RED))
LEADS: Final = {0: ("standby", PLAIN), 1: ("leads", GREEN)}
WIDE: Final = 6
LOW: Final = 3
REPLICAS: Final = 'job=~"gpu-scheduler(-controller|-webhook)?"'

BOARD: Final = Board(
    "operations",
    "Is the installation well: leaders, watches, ledger, webhook, monitors, processes?",
    (
        Row(
            "",
            (
                Stat(
                    title="Leaders of the scheduler",
                    description="Replicas that decide: exactly 1. At 0 nothing is scheduled; for some seconds that "
                    f"is a change of the leader. {DOCTOR}",
                    query=Query(f"sum(gpu_scheduler_leader{{{DECIDER}}})"),
                    levels=ONE,
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Conflicts",
                    description="Pairs of pods that hold one GPU against the rules. Event GpuConflict on both pods "
                    "names the GPU: delete one of them.",
                    query=Query("max(gpu_scheduler_conflicts)"),
                    levels=rising((1, RED)),
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Processes that do not answer",
                    description="Replicas, monitors and drivers that Prometheus cannot scrape. Their pods' status and "
                    "log say why.",
                    query=Query(f"count(up{{{JOB}}} == 0) or vector(0)"),
                    levels=rising((1, RED)),
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Certificate",
                    description="Days until the webhook's serving certificate expires, of the replica whose "
                    "certificate expires first. It is renewed with 30 days left, so fewer mean that the renewal "
                    "fails: see the last Job of CronJob gpu-scheduler-renewer.",
                    unit="d",
                    query=Query("min(gpu_scheduler_certificate_expiry_seconds) / 86400"),
                    levels=falling((7, ORANGE), (28, GREEN)),
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Leaders of the controller",
                    description="Replicas that create the pods of GPUWorkloads: exactly 1. At 0 no GPUWorkload "
                    f"proceeds. {DOCTOR}",
                    query=Query(f"sum(gpu_scheduler_leader{{{CONTROLLER}}})"),
                    levels=ONE,
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Drift",
                    description="Bound pods that may not have the GPUs they were given: another card has their "
                    "index now. `gpu-scheduler verify` names them; delete the pod, or put the card back.",
                    query=Query("max(gpu_scheduler_drift)"),
                    levels=rising((1, RED)),
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Stale monitors",
                    description="Nodes whose monitor has let its Lease expire. Their GPUs are given to no pod by "
                    "strategy. See the monitor's pod on the node.",
                    query=Query("max(gpu_scheduler_stale_monitors)"),
                    levels=rising((1, ORANGE)),
                    width=WIDE,
                    height=LOW,
                ),
                Stat(
                    title="Ledger repairs",
                    description="Entries of the ledger within the chosen time that differed from the API objects "
                    "and were rebuilt. Any is a fault of the scheduler: please report it with its log.",
                    query=Query("round(sum(increase(gpu_scheduler_ledger_repairs_total[$__range])))"),
                    levels=rising((1, ORANGE)),
                    width=WIDE,
                    height=LOW,
                ),
            ),
        ),
        Row(
            "Leaders and watches",
            (
                StateTimeline(
                    title="Who leads",
                    description="A bar for each replica of scheduler and controller, green while it leads. A time "
                    "without green: nobody decided.",
                    width=8,
                    query=Query(f"max by (pod) (gpu_scheduler_leader{{{JOB}}})", "{{pod}}"),
                    levels=((None, PLAIN), (1, GREEN)),
                    names=LEADS,
                ),
                TimeSeries(
                    title="Changes of the leader",
                    description="How often the Lease has had another holder, ever. A step is a change. Several in "
                    "an hour: the leader cannot renew the Lease in time, because the API server or its node is "
                    "slow, or it restarts.",
                    width=8,
                    queries=(Query(f"max by (job) (gpu_scheduler_leader_transitions{{{JOB}}})", "{{job}}"),),
                ),
                TimeSeries(
                    title="Silence of the watches",
                    description="Seconds since the API server last sent anything about a resource. It sends "
                    "something every minute. After 90 s the watch is opened anew; above 180 s the replica is not "
                    "ready: the API server, or what stands between, does not answer.",
                    width=8,
                    unit="s",
                    queries=(
                        Query("max by (job, resource) (gpu_scheduler_watch_silence_seconds)", "{{job}} {{resource}}"),
                    ),
                    levels=rising((90, ORANGE), (180, RED)),
                ),
            ),
        ),
        Row(
            "Admission",
            (
                TimeSeries(
                    title="Reviews by outcome",
                    description="Admission reviews per minute: patched, allowed, malformed, or the reason of a "
                    "refusal. malformed: the API server sent what nobody can read. None although pods are created: "
                    f"the webhook is not registered. {DOCTOR}",
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (outcome) (rate(gpu_scheduler_admission_reviews_total[$__rate_interval])) > 0",
                            "{{outcome}}",
                        ),
                    ),
                    stacked=True,
                    colors={"patched": GREEN, "malformed": RED},
                ),
                TimeSeries(
                    title="Duration of a review",
                    description="Seconds from the head of a request to its answer, by path. They delay each "
                    "creation of a pod. Near the time-out of the registration pods are refused: give the webhook "
                    "more CPU or replicas.",
                    unit="s",
                    queries=quantiles("gpu_scheduler_admission_review_duration_seconds", "path"),
                ),
            ),
        ),
        Row(
            "Monitors, controller, ledger",
            (
                TimeSeries(
                    title="Monitors",
                    description="Monitors whose written values are current, those whose values are not, and nodes "
                    "whose monitor is silent. `/readyz?verbose` of a monitor says why it cannot write.",
                    width=8,
                    queries=(
                        Query("sum(gpu_scheduler_monitor_current)", "current"),
                        Query("count(gpu_scheduler_monitor_current == 0) or vector(0)", "not current"),
                        Query("max(gpu_scheduler_stale_monitors)", "silent"),
                    ),
                    colors={"current": GREEN, "not current": ORANGE, "silent": RED},
                ),
                TimeSeries(
                    title="Queue of the controller",
                    description="Workloads and nodes that wait to be reconciled. It falls to 0 within seconds; if "
                    "it grows, the API server is slow or refuses the controller's writes: see its log.",
                    width=8,
                    queries=(Query("max(gpu_scheduler_controller_queue)", "waiting"),),
                ),
                TimeSeries(
                    title="Faults of the ledger",
                    description="Conflicts, drift, and entries that were repaired, ever. Each line is flat; all but "
                    "the last at 0.",
                    width=8,
                    queries=(
                        Query("max(gpu_scheduler_conflicts)", "conflicts"),
                        Query("max(gpu_scheduler_drift)", "drift"),
                        Query("sum(gpu_scheduler_ledger_repairs_total)", "repairs"),
                    ),
                ),
            ),
        ),
        Row(
            "Drivers",
            (
                TimeSeries(
                    title="Drivers",
                    description="Drivers that their kubelet has registered, drivers whose ResourceSlices are current, "
                    "and nodes with a GPU that no driver publishes. The first two are equal, and the last is 0. If "
                    f"not: {DOCTOR}",
                    width=8,
                    queries=(
                        Query("sum(gpu_scheduler_driver_registered) or vector(0)", "registered"),
                        Query("sum(gpu_scheduler_driver_current) or vector(0)", "current"),
                        Query("max(gpu_scheduler_unpublished_nodes)", "nodes not published"),
                    ),
                    colors={"registered": GREEN, "current": BLUE, "nodes not published": RED},
                ),
                TimeSeries(
                    title="Prepared claims",
                    description="Claims whose devices containers may use, on all nodes with a driver. 0 where "
                    "isolation is `env`. One that stays although its pods are gone: see the driver's log on the node.",
                    width=8,
                    queries=(Query("sum(gpu_scheduler_driver_prepared_claims) or vector(0)", "prepared"),),
                ),
                TimeSeries(
                    title="Claims that failed",
                    description="Claims per minute that a driver could not prepare or unprepare, by what failed. "
                    "Pods wait in ContainerCreating meanwhile, and their events have the sentence.",
                    width=8,
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (operation, outcome) "
                            '(rate(gpu_scheduler_driver_claims_total{outcome!="done"}[$__rate_interval])) or vector(0)',
                            "{{operation}} {{outcome}}",
                        ),
                    ),
                ),
            ),
            collapsed=True,
        ),
        Row(
            "Processes",
            (
                TimeSeries(
                    title="CPU",
                    description="Cores that each replica uses, and the busiest monitor and driver. The scheduler "
                    "decides in one thread: near 1 it is overloaded.",
                    queries=(
                        Query(
                            f"sum by (pod) (rate(process_cpu_seconds_total{{{REPLICAS}}}[$__rate_interval]))", "{{pod}}"
                        ),
                        Query(
                            f"max by (job) (rate(process_cpu_seconds_total{{{ON_NODES}}}[$__rate_interval]))",
                            "busiest of {{job}}",
                        ),
                    ),
                ),
                TimeSeries(
                    title="Memory",
                    description="Resident bytes of each replica, and of the largest monitor and driver. At the limit "
                    "of its container a process is killed: raise the limit in `pod_options`.",
                    unit="bytes",
                    queries=(
                        Query(f"sum by (pod) (process_resident_memory_bytes{{{REPLICAS}}})", "{{pod}}"),
                        Query(f"max by (job) (process_resident_memory_bytes{{{ON_NODES}}})", "largest of {{job}}"),
                    ),
                ),
                Table(
                    title="Versions",
                    description="Processes by program and by what they were built from. Two versions of one program "
                    "for long: an upgrade does not go on.",
                    width=24,
                    height=6,
                    labels=("job", "version", "commit"),
                    columns=(
                        Column(
                            title="processes",
                            expr=f"count by (job, version, commit) (gpu_scheduler_build_info{{{JOB}}})",
                        ),
                    ),
                ),
            ),
            collapsed=True,
        ),
    ),
)
