"""Board cluster: which GPUs there are, how they are, and which of them a pod can have."""

from typing import Final

from boards.panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    STATE_COLORS,
    Board,
    Column,
    Grid,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    Variable,
    rising,
)

HEALTH: Final = {0: ("healthy", GREEN), 1: ("degraded", ORANGE), 2: ("unhealthy", RED)}
WORSE: Final = rising((1, ORANGE), (2, RED))
BUSY: Final = ((None, BLUE), (50, GREEN), (90, ORANGE))
HOT: Final = rising((80, ORANGE), (90, RED))
FULL: Final = rising((90, ORANGE), (98, RED))
CHOSEN: Final = 'node=~"$node"'


def by_gpu(metric: str) -> str:
    """Return the query of a monitors' metric with a label `place`, which names a GPU as the command line does."""
    named = f'label_join(gpu_scheduler_monitor_gpu_{metric}{{{CHOSEN}}}, "place", ":", "node", "gpu")'
    return f"max by (place) ({named})"


def of_gpu(metric: str) -> str:
    """Return the query of a monitors' metric with the labels of a GPU."""
    return f"max by (node, gpu, uuid, model) (gpu_scheduler_monitor_gpu_{metric}{{{CHOSEN}}})"


def in_state(state: str) -> str:
    """Return the query of the GPUs in a state, of the chosen nodes together."""
    return f'sum(max by (node) (gpu_scheduler_node_gpus{{{CHOSEN}, state="{state}"}}))'


BOARD: Final = Board(
    "cluster",
    "Which GPUs are there, are they well, and which of them can a pod have?",
    (
        Row(
            "",
            (
                Stat(
                    title="GPUs that the next pod may have",
                    description="GPUs of all nodes that are healthy, in service, held by nobody, and on a node that "
                    "takes pods. At 0 every new pod waits: see board Waiting.",
                    query=Query("max(agentaflow_gpu_available)"),
                    levels=((None, ORANGE), (1, GREEN)),
                ),
                Stat(
                    title="GPUs of all nodes",
                    description="GPUs that the nodes have, as far as they are known. Fewer than you own: a node is "
                    "missing, or its monitor has never run.",
                    query=Query("max(agentaflow_gpu_total)"),
                ),
                Stat(
                    title="Unhealthy",
                    description="GPUs of the chosen nodes that a monitor reports unhealthy, those that pods hold "
                    "included. `kubectl gpu-scheduler health` says why.",
                    query=Query(f"count({of_gpu('health')} == 2) or vector(0)"),
                    levels=rising((1, RED)),
                ),
                Stat(
                    title="Unavailable",
                    description="GPUs of the chosen nodes that nobody holds and nobody can have: the node is "
                    "cordoned or not Ready, or its monitor is silent. `kubectl gpu-scheduler nodes` says which.",
                    query=Query(in_state("unavailable")),
                    levels=rising((1, ORANGE)),
                ),
                Stat(
                    title="Cordoned",
                    description="GPUs of the chosen nodes that an operator has taken out of service. `gpu-scheduler "
                    "nodes -o wide` names who and why, `gpu-scheduler uncordon` puts them back.",
                    query=Query(in_state("cordoned")),
                    levels=((None, GREEN), (1, PURPLE)),
                ),
                Stat(
                    title="Mean utilization",
                    description="Percent of the time that the GPUs which monitors read have worked. Low while few "
                    "GPUs are free: pods hold GPUs that they do not use.",
                    unit="percent",
                    query=Query("max(agentaflow_gpu_utilization)"),
                ),
            ),
        ),
        Row(
            "GPUs",
            (
                Grid(
                    title="Health of each GPU",
                    description="One cell for each GPU, NODE:GPU: healthy, degraded or unhealthy, as its monitor "
                    "reads it. No new pod gets an unhealthy one. `kubectl gpu-scheduler health` says why.",
                    query=by_gpu("health"),
                    label="place",
                    levels=WORSE,
                    names=HEALTH,
                ),
                Grid(
                    title="Utilization of each GPU",
                    description="Percent of the time that each GPU, NODE:GPU, has worked. At 0 while a pod holds "
                    "it: the pod does not use what it asked for.",
                    unit="percent",
                    query=by_gpu("utilization_percent"),
                    label="place",
                    levels=BUSY,
                ),
                Table(
                    title="Each GPU",
                    description="What the monitor of each node reads: percent of the time, °C, bytes and W. A value "
                    "that cannot be read is empty; a GPU is missing where its monitor does not run. Hot or "
                    "unhealthy: cordon it with `kubectl gpu-scheduler cordon NODE:GPU`.",
                    width=24,
                    height=10,
                    labels=("node", "gpu", "model"),
                    columns=(
                        Column(title="health", expr=of_gpu("health"), levels=WORSE, names=HEALTH),
                        Column(
                            title="utilization",
                            expr=of_gpu("utilization_percent"),
                            unit="percent",
                            levels=BUSY,
                            bar=100,
                        ),
                        Column(
                            title="memory used",
                            expr=f"100 * {of_gpu('memory_used_bytes')} / {of_gpu('memory_total_bytes')}",
                            unit="percent",
                            levels=FULL,
                            bar=100,
                        ),
                        Column(title="memory", expr=of_gpu("memory_total_bytes"), unit="bytes"),
                        Column(title="temperature", expr=of_gpu("temperature_celsius"), unit="celsius", levels=HOT),
                        Column(title="power", expr=of_gpu("power_watts"), unit="watt"),
                    ),
                    last=("uuid",),
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                Table(
                    title="GPUs of each node by state",
                    description="GPUs by the first state that applies: held by pods or for a line of a map, "
                    "cordoned, unhealthy, unavailable (the node takes no pods, or its monitor is silent), free.",
                    height=9,
                    labels=("node",),
                    columns=tuple(
                        Column(
                            title=state,
                            expr=f'max by (node) (gpu_scheduler_node_gpus{{{CHOSEN}, state="{state}"}})',
                            levels=((None, "transparent"), (1, color)),
                        )
                        for state, color in STATE_COLORS.items()
                    ),
                ),
                TimeSeries(
                    title="GPUs by state",
                    description="GPUs of the chosen nodes. What is neither held nor free is lost to pods: the "
                    "states in between say to whom to turn.",
                    height=9,
                    queries=(
                        Query(
                            f"sum by (state) (max by (node, state) (gpu_scheduler_node_gpus{{{CHOSEN}}}))", "{{state}}"
                        ),
                    ),
                    stacked=True,
                    colors=STATE_COLORS,
                ),
            ),
        ),
        Row(
            "GPUs over time",
            (
                StateTimeline(
                    title="Health",
                    description="A bar for each GPU, NODE:GPU: when it was healthy, degraded or unhealthy. A gap: "
                    "its monitor did not report it.",
                    width=24,
                    query=Query(by_gpu("health"), "{{place}}"),
                    levels=WORSE,
                    names=HEALTH,
                ),
                TimeSeries(
                    title="Utilization by node",
                    description="Percent of the time that the GPUs of a node have worked, on average.",
                    unit="percent",
                    queries=(
                        Query(
                            "avg by (node) (max by (node, gpu, uuid) "
                            f"(gpu_scheduler_monitor_gpu_utilization_percent{{{CHOSEN}}}))",
                            "{{node}}",
                        ),
                    ),
                ),
                TimeSeries(
                    title="Memory used by node",
                    description="Bytes in use on the GPUs of a node together.",
                    unit="bytes",
                    queries=(
                        Query(
                            "sum by (node) (max by (node, gpu, uuid) "
                            f"(gpu_scheduler_monitor_gpu_memory_used_bytes{{{CHOSEN}}}))",
                            "{{node}}",
                        ),
                    ),
                ),
                TimeSeries(
                    title="Temperature by node",
                    description="The hottest GPU of each node, in °C. Most data center GPUs slow down at 85 to 90 "
                    "°C: check the node's cooling.",
                    unit="celsius",
                    queries=(
                        Query(f"max by (node) (gpu_scheduler_monitor_gpu_temperature_celsius{{{CHOSEN}}})", "{{node}}"),
                    ),
                    levels=HOT,
                ),
                TimeSeries(
                    title="Power by node",
                    description="Watts that the GPUs of a node draw together.",
                    unit="watt",
                    queries=(
                        Query(
                            "sum by (node) (max by (node, gpu, uuid) "
                            f"(gpu_scheduler_monitor_gpu_power_watts{{{CHOSEN}}}))",
                            "{{node}}",
                        ),
                    ),
                ),
            ),
            collapsed=True,
        ),
    ),
    (Variable("node", "gpu_scheduler_node_gpus"),),
)
