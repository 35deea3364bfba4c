"""Renders a session as Markdown: the ratios first, then the measured figures."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from bench.columns import NONE, head_and_rows, number
from bench.figures import power
from bench.growth_figures import grown
from bench.targets import GROWTH, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench.comparison import Estimate
    from bench.results import Cell, Machine, Measured, Session
    from bench.targets import Target

CONTENDERS: Final = {
    "L": "the limit: prepared binds and events, as fast as the API server takes them",
    "L0": "the limit without events",
    "A": "the limit while as many pods are made: a scheduler that costs nothing; in W2 at the same pace as ours",
    "O": "gpu-scheduler",
    "F": "its floor: the same loop, its decisions made before the clock starts; in W6 nothing read that need not be",
    "K": "kube-scheduler, unthrottled; in claims the claims of its pods exist before the clock starts",
    "KC": "the same, while a client creates the claims of its pods",
    "K50": "kube-scheduler with its default throttle",
    "N": "a naive scheduler in Python",
    "P": "pods created without a webhook",
    "H": "a bare aiohttp handler that answers each request with the same patch",
}
WORKLOADS: Final = {
    "W1": "a backlog of mapped pods",
    "W1-limit": "the limit's clients, to find the best",
    "scale": "the same nodes with 50,000 bound pods: a backlog, and arrivals",
    "W1-5000": "a backlog of mapped pods on ten times as many nodes",
    "W2": "pods that arrive one by one, at half the pace that A sustains",
    "W2-sustained": "more of them than may be sustained",
    "W3": "pods placed by strategy",
    "W4": "arriving pods beside many that fit nowhere",
    "W5": "churn",
    "W6": "a cold start",
    "W7": "a failover",
    "W8": "the admission webhook",
    "claims": "a backlog of mapped pods with a ResourceClaim each",
    "claims-env": "the same pods without claims",
    "idle": "nothing to place",
    "neighbour": "a pod a second, beside a tenant that burdens the scheduler",
}
_RESULTS: Final = {True: "met", False: "**missed**", None: NONE}


def markdown(session: Session) -> str:
    """Return the whole report. A target or a figure that was not measured is shown as a dash."""
    lines = [
        f"# Benchmark `{session.name}`",
        "",
        *_where(session),
        "",
        *_targets(session.measured),
        "",
        "## What the ratios are made of",
        "",
        "These are footnotes: machines differ, and so do absolute figures. The ratios above are the result.",
        "Of several repetitions the median is given, with the least and the greatest in brackets.",
        "",
        *_legend(session.measured),
        "",
        *_workloads(session.measured),
        *_growth(session.measured),
        *_wrong(session.measured),
    ]
    return "\n".join(lines) + "\n"


def _where(session: Session) -> Iterator[str]:
    machine = session.machine
    versions = ", ".join(f"{name} {version}" for name, version in sorted(session.versions.items()))
    yield f"- began: {session.began}"
    yield f"- commit: `{session.commit}`"
    for again in session.again:
        place = f", on another machine: {_machine(again.machine)}" if again.machine else ""
        yield f"- measured again: {again.part}, begun {again.began}, commit `{again.commit}`{place}"
    yield f"- machine: {_machine(machine)}"
    yield f"- versions: {versions or NONE}"


def _machine(machine: Machine) -> str:
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    return f"{machine.processor}, {cores}, {number(machine.memory / 1024)} GiB of memory, kernel {machine.kernel}"


def _targets(measured: Sequence[Measured]) -> Iterator[str]:
    found = [(target, target.find(measured)) for target in TARGETS]
    met = [target.met(each) for target, each in found]
    yield "## Targets"
    yield ""
    yield f"{met.count(True)} met, {met.count(False)} missed, {met.count(None)} without a value."
    yield ""
    yield "A ratio is the median of the ratios within one repetition, and above 1 where gpu-scheduler is faster; of"
    yield "growth it is what the larger cluster costs beside the smaller. The interval is a bootstrap 95 % interval of"
    yield f"that median; it is {NONE} below three repetitions. Met or missed goes by the value alone, before it is"
    yield "rounded."
    yield ""
    head = ("workload", "what", "of", "target", "found", "95 % interval", "repetitions", "result")
    yield from _table(head, (target_row(*each) for each in found))


def target_row(target: Target, found: Estimate | None) -> tuple[str, ...]:
    """Return the row of a target and its result, in the columns of the table."""
    bound = _with(f"{'≥' if target.at_least else '≤'} {number(target.bound)}", target.unit)
    about = target.workload, target.what, target.contenders, bound
    if found is None:
        return *about, "not measured", NONE, NONE, NONE
    of = f"{target.contenders} ({found.variant})" if found.variant else target.contenders
    value = found.instead if found.value is None else _with(_rounded_off_bound(found.value, target.bound), target.unit)
    sure = NONE if found.low is None or found.high is None else f"{number(found.low)} to {number(found.high)}"
    return *about[:2], of, bound, value, sure, str(found.repetitions), _RESULTS[target.met(found)]


def _rounded_off_bound(value: float, bound: float) -> str:
    """Round the value, but never to the bound itself, unless it equals the bound."""
    reported = (number(value, digits) for digits in range(3, 17))
    return next((text for text in reported if value == bound or text != number(bound)), str(value))


def _legend(measured: Iterable[Measured]) -> Iterator[str]:
    there = {each.cell.contender for each in measured}
    for name in sorted(there, key=_contender_order):
        yield f"- **{name}**: {CONTENDERS.get(name, NONE)}"


def _workloads(measured: Iterable[Measured]) -> Iterator[str]:
    of: dict[str, dict[Cell, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for each in measured:
        if each.cell.workload != GROWTH:
            of[each.cell.workload][each.cell].append(each)
    for workload in sorted(of):
        reported = WORKLOADS.get(workload)
        rows = sorted(of[workload].items(), key=lambda row: (_contender_order(row[0].contender), row[0]))
        yield f"### {workload}: {reported}" if reported else f"### {workload}"
        yield ""
        yield from _table(*head_and_rows(rows))
        yield ""


def _growth(measured: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines for each size, and the power of the size by which each quantity grows."""
    found = grown(measured)
    if not found:
        return
    yield "### growth: what a decision, a watch event and memory cost in larger clusters"
    yield ""
    yield "CPU and memory of our own code in one process, the median of what was measured. Each pod has a GPU of its"
    yield "own; sizes for which there are too few GPUs are not there."
    yield ""
    sizes = sorted(set().union(*(each.values for each in found)))
    head = ("pods on nodes", *(f"{each.quantity.what}, {each.quantity.unit}" for each in found))
    figures = [[each.values.get(size) for each in found] for size in sizes]
    rows = [
        (f"{number(pods)} on {number(nodes)}", *(NONE if value is None else number(value) for value in values))
        for (nodes, pods), values in zip(sizes, figures, strict=True)
    ]
    yield from _table(head, rows)
    yield ""
    yield "The power of the size by which each grows: 0 where it stays, 1 where it doubles with the size."
    yield ""
    powers = [(each, each.by_nodes(), each.by_pods()) for each in found]
    yield from _table(
        ("quantity", "along nodes", "along pods"),
        ((each.quantity.what, _power(nodes), _power(pods)) for each, nodes, pods in powers),
    )
    yield ""


def _power(values: Mapping[int, float]) -> str:
    found = power(values)
    return NONE if found is None else f"{found:.2f} ({number(min(values))} to {number(max(values))})"


def _wrong(measured: Iterable[Measured]) -> Iterator[str]:
    reported = [(each, why) for each in measured for why in each.wrong]
    yield "## What was wrong"
    yield ""
    if not reported:
        yield "Nothing: every repetition takes part."
    else:
        yield "These repetitions take no part in any figure above."
        yield ""
    for each, why in reported:
        name = " ".join(filter(None, (each.cell.workload, each.cell.contender, each.cell.variant)))
        yield f"- {name}, repetition {each.repetition}: {' '.join(why.split())}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        reported = " | ".join(cell.replace("|", "\\|") for cell in row)
        yield f"| {reported} |"


def _contender_order(contender: str) -> tuple[int, str]:
    """Return a sort key: contenders in the order of CONTENDERS, unknown ones last."""
    known = tuple(CONTENDERS)
    return (known.index(contender) if contender in known else len(known)), contender


def _with(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text
