"""Board waiting: why pods wait, for how long, and what helps."""

import re
from pathlib import Path
from typing import Final

from boards.panels import (
    BLUE,
    DOCS_URL,
    GREEN,
    ORANGE,
    RED,
    STATE_COLORS,
    Board,
    Column,
    Query,
    Row,
    Stat,
    Table,
    Text,
    TimeSeries,
    rising,
)

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/reasons.md"
ENTRY: Final = re.compile(
    r"^## (\w+)\n\n<!-- .*?^<!-- .*?\n\n(.*?)\n\n```sh\n.*?^```\n\n\*\*Remedy\*\*: (.*?)$(?=\n\n|\n*\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A reason, what it means, and its remedy."""
WAITING: Final = "max by (reason) (gpu_scheduler_pending_pods)"
HOW: Final = """\
Each waiting pod has its reason, with the names of what is in its way, in its condition:

    kubectl gpu-scheduler explain POD -n NAMESPACE

"""


def reasons() -> str:
    """Return a table of what docs/reasons.md says of each reason, in Markdown, with the links of a board."""
    rows = [
        f"| [{reason}]({PAGE.name}#{reason.lower()}) | {_line(meaning)} | {_line(remedy)} |"
        for reason, meaning, remedy in ENTRY.findall(PAGE.read_text(encoding="utf-8"))
    ]
    table = "\n".join(("| reason | what it means | what helps |", "|---|---|---|", *rows))
    return re.sub(r"\]\(([\w-]+\.md)", rf"]({DOCS_URL}/\1", re.sub(r"\]\(#", f"]({PAGE.name}#", table))


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


BOARD: Final = Board(
    "waiting",
    "Why does my pod wait, for how long do others, and what helps?",
    (
        Row(
            "",
            (
                Stat(
                    title="Pods that wait",
                    description="Pods that wait or are refused, as the leading replica decided last. The table "
                    "below says why.",
                    query=Query(f"sum({WAITING})"),
                    width=5,
                ),
                Stat(
                    title="The oldest wait",
                    description="Seconds since the leading replica first saw the oldest of the pods that wait; a "
                    "new leader counts anew. 0 if none waits.",
                    unit="s",
                    query=Query("max(gpu_scheduler_longest_wait_seconds)"),
                    levels=rising((3600, ORANGE), (86400, RED)),
                    width=5,
                ),
                Stat(
                    title="GPUs that are free meanwhile",
                    description="GPUs that the next pod may have. More than 0 while pods wait: those pods ask for "
                    "other nodes, GPUs or resources, or their namespace is at its limit.",
                    query=Query("max(agentaflow_gpu_available)"),
                    width=5,
                ),
                Stat(
                    title="GPUs out of service",
                    description="GPUs that are cordoned, unhealthy or unavailable: pods may wait for just these. "
                    "Board Cluster says which.",
                    query=Query(
                        'sum(max by (node, state) (gpu_scheduler_node_gpus{state=~"cordoned|unhealthy|unavailable"}))'
                    ),
                    levels=rising((1, ORANGE)),
                    width=5,
                ),
                Stat(
                    title="Wrong lines of limits",
                    description="Lines of ConfigMap gpu-scheduler-limits that cannot be read. The limits that "
                    "applied before go on; the scheduler's log names the line.",
                    query=Query("max(gpu_scheduler_limits_faults)"),
                    levels=rising((1, RED)),
                ),
            ),
        ),
        Row(
            "Reasons",
            (
                Table(
                    title="Pods that wait now, by reason",
                    description="Pods by the reason that was found last. The reason leads to the page that says "
                    "what it means and what helps.",
                    height=10,
                    width=8,
                    labels=("reason",),
                    columns=(Column(title="pods", expr=f"{WAITING} > 0"),),
                    links={"reason": f"{DOCS_URL}/{PAGE.name}"},
                    descending="pods",
                ),
                TimeSeries(
                    title="Pods that wait, by reason",
                    description="Pods by the reason that was found last. A reason that grows while others stay: "
                    "look there first.",
                    height=10,
                    width=16,
                    queries=(Query(f"{WAITING} > 0", "{{reason}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Meanwhile",
            (
                TimeSeries(
                    title="Pods that wait and GPUs that are free",
                    description="Both above 0 for long: what waits does not fit what is free. Maps name held GPUs, "
                    "or pods ask for more on one node than any has left.",
                    width=8,
                    queries=(
                        Query(f"sum({WAITING})", "pods that wait"),
                        Query("max(agentaflow_gpu_available)", "free GPUs"),
                    ),
                    colors={"pods that wait": ORANGE, "free GPUs": GREEN},
                ),
                TimeSeries(
                    title="The oldest wait",
                    description="Seconds since the leading replica first saw the oldest of the pods that wait. It "
                    "falls to 0 when another replica begins to lead.",
                    width=8,
                    unit="s",
                    queries=(Query("max(gpu_scheduler_longest_wait_seconds)", "oldest wait"),),
                    colors={"oldest wait": BLUE},
                ),
                Table(
                    title="Where GPUs are free",
                    description="Nodes with GPUs that a pod can have now. A pod by count fits one node: a node "
                    "needs as many as the pod asks for.",
                    width=8,
                    labels=("node",),
                    columns=(
                        Column(
                            title="free",
                            expr='max by (node) (gpu_scheduler_node_gpus{state="free"}) > 0',
                            levels=((None, STATE_COLORS["free"]),),
                        ),
                    ),
                    descending="free",
                ),
            ),
        ),
        Row(
            "Refused at creation",
            (
                TimeSeries(
                    title="Pods and jobs that were refused, by reason",
                    description="Admission reviews per minute that ended with a refusal: the object was never "
                    "created. The answer to its creation, or the event of its controller, has the reason's text.",
                    width=24,
                    unit="cpm",
                    queries=(
                        Query(
                            "60 * sum by (outcome) (rate(gpu_scheduler_admission_reviews_total"
                            '{outcome!~"patched|allowed"}[$__rate_interval])) > 0',
                            "{{outcome}}",
                        ),
                    ),
                    stacked=True,
                ),
            ),
            collapsed=True,
        ),
        Row(
            "What each reason means",
            (
                Text(
                    title="Reasons and what helps",
                    description="Every reason why a pod is refused or waits, from the documentation.",
                    width=24,
                    height=24,
                    content=HOW + reasons(),
                ),
            ),
            collapsed=True,
        ),
    ),
)
