"""The rules that ask the cluster: whether the scheduler would place the pods on the nodes that there are.

LAW: the answer is the scheduler's own decision, made in a dry run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.lint.findings import Severity, Word, finding
from gpu_scheduler.cli.lint.objects import part_of
from gpu_scheduler.cli.lint.rules import keeps_old_pods
from gpu_scheduler.cli.live_cluster import dry_run_of
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Wait
from gpu_scheduler.core.filters.gpu_filters import devices_exist
from gpu_scheduler.core.filters.volumes import VolumeClaim
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.reasons import Reason, rank_of
from gpu_scheduler.core.text import quote, sentence
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpu_scheduler.cli.lint.check import Checked
    from gpu_scheduler.cli.lint.findings import Finding
    from gpu_scheduler.cli.lint.objects import CheckedObject
    from gpu_scheduler.cli.live_cluster import LiveCluster
    from gpu_scheduler.core.cluster import Cluster
    from gpu_scheduler.core.nodes.nodes import Nodes
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.reasons import Unschedulable
    from gpu_scheduler.scheduler.dry_run import DryRun

    Identity = tuple[str, str, str]

_PASSES: Final = rank_of((Reason.INDEX_HELD, False))
"""From this rank on, a reason passes when others end."""
_BY_NUMBERS: Final = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.NOT_ENOUGH_GPUS, Reason.QUOTA_EXCEEDED})
"""Reasons that pass unless the pod asks for more than there is in all."""


def check_live(checked: Checked, live: LiveCluster) -> Checked:
    """Return what was checked, with the findings added that only the cluster gives."""
    others = (InputKind.POD, InputKind.FOREIGN_POD)
    empty = dry_run_of(live.installation, ((kind, value) for kind, value in live.inputs if kind not in others)).cluster
    run = live.dry_run()
    old = _by_identity(run.pods)
    claims = {(each.namespace, each.name) for _, each in live.inputs if isinstance(each, VolumeClaim)}
    found = list(checked.findings)
    for one in checked.objects:
        # What the text alone gives is not said again.
        known = {each.word for each in found if _is_about(each, one)}
        pods = [_with_claims(pod, claims) for pod in one.admitted()]
        lines = list(_unknown_devices(one, run.cluster.nodes))
        known |= {each.word for each in lines}
        decided = _decided(one, pods, old[one.identity], run, empty)
        found += _different((*lines, *(each for each in decided if each.word not in known)))
    return replace(checked, findings=tuple(found))


def _unknown_devices(checked: CheckedObject, nodes: Nodes) -> Iterator[Finding]:
    """Yield lines whose node does not exist or is ambiguous, or has no such device."""
    by_plugin = any(pod.gpu_limits for pod in checked.admitted())
    for found, slot in checked.slots():
        node = nodes.resolve(slot.node)
        if not isinstance(node, Node):
            message = _nearest(node, slot.node, nodes)
            yield finding(checked, checked.line_of_slot(found, slot.index), Severity.ERROR, node.reason, message)
            continue
        missing = None if by_plugin and node.advertised is not None else devices_exist(slot.devices, node)
        if missing is not None:
            line = checked.line_of_slot(found, slot.index)
            yield finding(checked, line, Severity.ERROR, missing.reason, missing.message)


def _nearest(fault: Unschedulable, name: str, nodes: Nodes) -> str:
    """Return the message of a node that cannot be found, with the existing name that is nearest to it."""
    existing = {each for node in nodes for each in (node.name, node.alias) if each is not None}
    near = get_close_matches(name, sorted(existing), 1)
    if fault.reason is not Reason.NODE_NOT_FOUND or not near:
        return fault.message
    return sentence(fault.reason, f"{fault.what}; did you mean {quote(near[0])}?", fault.remedy)


def _decided(
    checked: CheckedObject, pods: Sequence[Pod], old: Sequence[Pod], run: DryRun, empty: Cluster
) -> Iterator[Finding]:
    """Yield why pods would wait. The pods that the object has made already go, as in a roll-out."""
    first, waits = _rolled_out(checked, pods, old, run)
    for each in old:
        run.evict(each)
    if waits is not None and first is not None and not isinstance(run.decide(first.ref.uid), Wait):
        yield _deadlock(checked, first, waits)
    for pod in pods:
        if run.pod(pod.ref.uid) is None:
            run.apply(InputKind.POD, pod)
        decision = run.decide(pod.ref.uid)
        if isinstance(decision, Wait):
            line = pod.request.line
            found = None if line is None or line.index is None else checked.map_of(line.workload)
            where = checked.line() if line is None or found is None else checked.line_of_slot(found[0], line.index or 0)
            yield finding(checked, where, _severity(pod, decision, empty), decision.reason, decision.message)


def _rolled_out(
    checked: CheckedObject, pods: Sequence[Pod], old: Sequence[Pod], run: DryRun
) -> tuple[Pod | None, Wait | None]:
    """Replace old pods one after the other, until a new one waits. Return the last new pod, and why it waits.

    A StatefulSet begins with its last pod, and a Deployment that may end none with a new one.
    """
    strategy = part_of(checked.spec, "updateStrategy")
    if not old or _workloads(old) == _workloads(pods):
        return None, None
    if checked.manifest.kind == "StatefulSet" and strategy.get("type", "RollingUpdate") == "RollingUpdate":
        goes = {each.ref.name: each for each in old}
        order = [(pod, goes.get(pod.ref.name)) for pod in reversed(pods)]
    elif checked.manifest.kind == "Deployment" and keeps_old_pods(checked):
        order = [(pod, None) for pod in pods[:1]]
    else:
        return None, None
    for pod, before in order:
        if before is not None:
            run.evict(before)
        run.apply(InputKind.POD, pod)
        decision = run.decide(pod.ref.uid)
        if isinstance(decision, Wait):
            return pod, decision
    return None, None


def _deadlock(checked: CheckedObject, pod: Pod, waits: Wait) -> Finding:
    kind = checked.manifest.kind
    field, strategy = ("updateStrategy", "OnDelete") if kind == "StatefulSet" else ("strategy", "Recreate")
    return finding(
        checked,
        checked.line("spec", field),
        Severity.ERROR,
        Word.ROLLOUT_DEADLOCK,
        f"cannot roll out this map: {pod.ref} would wait for an old pod of {checked}, which goes only when it runs "
        f"({waits.message.partition('; ')[0]}); replace the pods at once (example: {field}: {{type: {strategy}}})",
    )


def _severity(pod: Pod, decision: Wait, empty: Cluster) -> Severity:
    """Return a warning if the reason passes when other pods end."""
    if rank_of((decision.reason, False)) < _PASSES:
        return Severity.ERROR
    if decision.reason not in _BY_NUMBERS:
        return Severity.WARNING
    anyway = decide(pod, empty)
    return Severity.ERROR if isinstance(anyway, Wait) and anyway.reason is decision.reason else Severity.WARNING


def _workloads(pods: Iterable[Pod]) -> set[object]:
    return {None if pod.request.line is None else pod.request.line.workload for pod in pods}


def _with_claims(pod: Pod, claims: set[tuple[str, str]]) -> Pod:
    """Return the pod with the claims that exist: the others are made together with it."""
    return replace(pod, claims=tuple(name for name in pod.claims if (pod.ref.namespace, name) in claims))


def _by_identity(pods: Iterable[Pod]) -> dict[Identity, list[Pod]]:
    """Return the pods by what made them. A ReplicaSet and a Job may have their names from what made them, too."""
    found: dict[Identity, list[Pod]] = defaultdict(list)
    for pod in pods:
        namespace, owner = pod.ref.namespace, pod.owner
        if owner is None:
            found["Pod", namespace, pod.ref.name].append(pod)
            continue
        found[owner.kind, namespace, owner.name].append(pod)
        maker = {"ReplicaSet": "Deployment", "Job": "CronJob"}.get(owner.kind)
        if maker is not None:
            found[maker, namespace, owner.name.rpartition("-")[0]].append(pod)
    return found


def _is_about(each: Finding, checked: CheckedObject) -> bool:
    about = (each.source, each.kind, each.namespace, each.name)
    return about == (checked.manifest.source, *checked.identity)


def _different(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Return the first of the findings that say the same."""
    first: dict[tuple[str, str], Finding] = {}
    for each in findings:
        first.setdefault((each.word, each.message), each)
    return first.values()
