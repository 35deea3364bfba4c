"""The rules about one object: each is a function that yields findings."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.cli.lint.fault_lines import line_of_fault
from gpu_scheduler.cli.lint.findings import Severity, Word, finding
from gpu_scheduler.cli.lint.objects import part_of
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.unknown_keys import WRITTEN, unknown_key_message, unknown_keys
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import number_of, quote
from gpu_scheduler.webhook.job_review import cautions, review_job
from gpu_scheduler.webhook.pod_templates import resolved
from gpu_scheduler.webhook.review import Deny

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_scheduler.cli.lint.findings import Finding
    from gpu_scheduler.cli.lint.objects import CheckedObject
    from gpu_scheduler.core.refs import WorkloadKey

_DEFAULT: Final = "25%"
"""Kubernetes' default of both maxUnavailable and maxSurge."""


def refused_pods(checked: CheckedObject) -> Iterator[Finding]:
    """Yield what admission and scheduler find wrong with the pods' own text, each fault once."""
    faults: dict[tuple[Reason, str], None] = {}
    without_line: list[str] = []
    for each in checked.pods:
        fault = each.pod if isinstance(each.pod, Deny) else each.pod.request.fault
        if fault is None or (isinstance(each.pod, Pod) and each.pod.scheduler_name != checked.scheduler_name):
            continue
        if fault.reason is Reason.INDEX_NOT_IN_MAP:
            without_line.append(fault.message)
        else:
            faults[fault.reason, fault.message] = None
    for reason, message in faults:
        yield finding(checked, line_of_fault(checked, reason, message), Severity.ERROR, reason, message)
    if without_line:
        reason, message = Reason.INDEX_NOT_IN_MAP, without_line[0]
        if len(checked.pods) > 1:
            message = f"{len(without_line)} of {len(checked.pods)} pods have no line: {message.partition(': ')[2]}"
        yield finding(checked, _line_of_replicas(checked), Severity.ERROR, reason, message)


def refused_job(checked: CheckedObject) -> Iterator[Finding]:
    """Yield what the webhook finds wrong with a Kubeflow job: if it is refused, its templates get no annotations."""
    if checked.job is None:
        return
    verdict = review_job(checked.job, checked.scheduler_name)
    known = {each.pod.message for each in checked.pods if isinstance(each.pod, Deny)}
    if isinstance(verdict, Deny) and verdict.message not in known:
        line = line_of_fault(checked, verdict.reason, verdict.message)
        yield finding(checked, line, Severity.ERROR, verdict.reason, verdict.message)
    for text in cautions(checked.job, None, checked.scheduler_name):
        line = checked.line("metadata", "annotations")
        yield finding(checked, line, Severity.WARNING, Word.MISPLACED_ANNOTATION, text)


def other_scheduler(checked: CheckedObject) -> Iterator[Finding]:
    """Yield that pods ask for devices of a scheduler that does not read what they ask."""
    for name in dict.fromkeys(each.other_scheduler for each in checked.pods if each.other_scheduler is not None):
        named = f"schedulerName is {quote(name)}" if name else "there is no schedulerName"
        yield finding(
            checked,
            checked.line(*checked.templates[0], "spec", "schedulerName"),
            Severity.ERROR,
            Word.OTHER_SCHEDULER,
            f"cannot place a pod that asks for GPUs: {named}, and no other scheduler reads a map or a count; "
            f"write it into the pod's spec (example: schedulerName: {checked.scheduler_name})",
        )


def misspelt_annotations(checked: CheckedObject) -> Iterator[Finding]:
    """Yield annotations that resemble ours and that no program reads, with the nearest known one."""
    found = {
        key: checked.line(*owner, "metadata", "annotations", key)
        for owner in checked.annotated()
        for key in unknown_keys(checked.annotations(owner))
    }
    for key, line in found.items():
        yield finding(checked, line, Severity.WARNING, Word.UNKNOWN_ANNOTATION, unknown_key_message(key))


def misplaced_annotations(checked: CheckedObject) -> Iterator[Finding]:
    """Yield annotations for pods that stand on the object that makes them, where nothing reads them."""
    if checked.job is not None or checked.templates == ((),):
        return
    (template,) = checked.templates
    inner = checked.annotations(template)
    for key in checked.annotations(()):
        if key in WRITTEN and key not in inner:
            yield finding(
                checked,
                checked.line("metadata", "annotations", key),
                Severity.ERROR,
                Word.MISPLACED_ANNOTATION,
                f"cannot read annotation {key} of a {checked.manifest.kind}: its pods have the annotations of its "
                f"template; write it there (example: {'.'.join(map(str, template))}.metadata.annotations)",
            )


def replicas_without_a_line(checked: CheckedObject) -> Iterator[Finding]:
    """Yield that a map has fewer lines than pods that may take any line. Spare lines are allowed."""
    pods: dict[WorkloadKey, int] = defaultdict(int)
    dynamic: set[WorkloadKey] = set()
    for pod in checked.admitted():
        if pod.request.line is not None:
            pods[pod.request.line.workload] += 1
            if pod.request.line.index is None:
                dynamic.add(pod.request.line.workload)
    for workload in dynamic:
        found = checked.map_of(workload)
        indices = found[1].indices if found is not None else ()
        many, lines = pods[workload], len(indices)
        if many > lines > 0:
            ends = checked.manifest.kind in {"Job", "CronJob"}
            waits = "wait until others end" if ends else "wait for ever"
            yield finding(
                checked,
                _line_of_replicas(checked),
                Severity.WARNING if ends else Severity.ERROR,
                Reason.NO_FREE_INDEX,
                f"cannot give {many} pods a line each: the map has {number_of(lines, 'line')}, so that {many - lines} "
                f"{waits}; run fewer replicas, or add lines (example: {indices[-1] + 1}=node1:0)",
            )


def rollout_that_waits_for_itself(checked: CheckedObject) -> Iterator[Finding]:
    """Yield that a rolling update of a Deployment keeps every old pod until a new one runs that has no line left."""
    lines = [pod.request.line for pod in checked.admitted() if pod.request.line is not None]
    found = checked.map_of(lines[0].workload) if lines else None
    if found is None or checked.manifest.kind != "Deployment" or not keeps_old_pods(checked):
        return
    fixed, indices = lines[0].index is not None, found[1].indices
    if fixed or len(indices) == len(lines):
        spare = "" if fixed else f", or add a line to the map (example: {indices[-1] + 1}=node1:0)"
        yield finding(
            checked,
            checked.line("spec", "strategy", "rollingUpdate", "maxUnavailable"),
            Severity.ERROR,
            Word.ROLLOUT_DEADLOCK,
            f"cannot roll out a change: maxUnavailable of {number_of(len(lines), 'replica')} comes to 0, so that each "
            "old pod waits for a new one, which waits for a line of the map; let an old pod go first "
            f"(example: rollingUpdate: {{maxUnavailable: 1}}), use strategy Recreate{spare}",
        )


def keeps_old_pods(checked: CheckedObject) -> bool:
    """Whether a rolling update ends no pod of a Deployment before a new one runs."""
    strategy = part_of(checked.spec, "strategy")
    return strategy.get("type", "RollingUpdate") == "RollingUpdate" and not _unavailable(
        part_of(strategy, "rollingUpdate"), len(checked.pods)
    )


RULES: Final[tuple[Callable[[CheckedObject], Iterator[Finding]], ...]] = (
    refused_pods,
    refused_job,
    other_scheduler,
    misspelt_annotations,
    misplaced_annotations,
    replicas_without_a_line,
    rollout_that_waits_for_itself,
)


def _unavailable(rolling: dict[str, Any], replicas: int) -> int:
    """Return how many pods a rolling update may end before their successors run, as the Deployment controller does."""
    unavailable = _share(rolling.get("maxUnavailable", _DEFAULT), replicas, up=False)
    surge = _share(rolling.get("maxSurge", _DEFAULT), replicas, up=True)
    return unavailable or (0 if surge else 1)


def _share(value: Any, replicas: int, *, up: bool) -> int:
    """Return a number of pods that is written as a number or as a percentage; 1 if it is neither."""
    found = resolved(value if isinstance(value, (int, str)) else "", replicas, up=up)
    return 1 if found is None else found


def _line_of_replicas(checked: CheckedObject) -> int:
    """Return the line that says how many pods there are; the map's if none says it."""
    for field in ("replicas", "completions", "parallelism"):
        if checked.has(*checked.spec_path, field):
            return checked.line(*checked.spec_path, field)
    return checked.line_of_annotation(names.MAP) or checked.line()
