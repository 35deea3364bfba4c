"""The webhook's pure half for controllers of pods: warns of pods that could never be placed, before any is made.

LAW: no API and no state. Nothing is refused or changed. A fault has the words with which the pods would be refused, or
would wait for ever.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement_map import MapError, PlacementMap, parse_number, parse_placement_map
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import index_ranges, limit_fits
from gpu_scheduler.core.pods.unknown_keys import unknown_key_message
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import number_of, sentence
from gpu_scheduler.webhook.job_review import COPIED_ANNOTATIONS
from gpu_scheduler.webhook.review import Deny, pod_of_text, review_pod

_INPUT: Final = (names.INDEX, *COPIED_ANNOTATIONS)
"""The annotations that users write on pods."""

_MOST_SAMPLES: Final = 64
"""Most pods of one template that are reviewed. They differ only in their lines."""


@immutable
class ControllerTemplate:
    """A pod template with our schedulerName, and which pods its controller makes of it."""

    kind: str
    text: PodText
    annotations: Mapping[str, str]
    """Those of the controller itself, which its pods do not get."""
    replicas: int | None = None
    """How many pods exist at the same time; None if their number is unknown, or if a pod may follow another one."""
    indices: range | None = None
    """The indices that the controller gives to its pods; None if it gives none."""
    max_unavailable: int | None = None
    """How many old pods a rolling update removes before it has new ones; None if nothing is updated in that way."""


def review_template(template: ControllerTemplate, scheduler_name: str) -> tuple[Deny, ...]:
    """Return why pods of the template would be refused, or could never be placed; empty if nothing is known."""
    found = _refusal(template, scheduler_name), _line_fault(template)
    return tuple(each for each in found if each is not None)


def template_cautions(template: ControllerTemplate, found: tuple[Deny, ...]) -> tuple[str, ...]:
    """Return warnings for the author: annotations that no pod gets, and keys that are probably misspelt.

    `found` is what `review_template` returned.
    """
    misplaced = [key for key in _INPUT if key in template.annotations and key not in template.text.annotations]
    warnings: list[str] = []
    if misplaced:
        where = "write it into the annotations of its pod template"
        warnings.append(f"annotation {', '.join(misplaced)} of the {template.kind} itself reaches no pod; {where}")
    # The message of this reason names the unknown keys too.
    if all(each.reason is not Reason.NOTHING_REQUESTED for each in found):
        warnings += map(unknown_key_message, template.text.unknown_keys)
    return tuple(warnings)


def _refusal(template: ControllerTemplate, scheduler_name: str) -> Deny | None:
    """Return the fault of the first pod that has one in its own text."""
    for text in _samples(template):
        pod = pod_of_text(text)
        verdict = review_pod(pod, "", scheduler_name)
        fault = pod.request.fault
        if isinstance(verdict, Deny):
            return verdict
        if fault is not None:
            return Deny(fault.reason, fault.message)
    return None


def _samples(template: ControllerTemplate) -> Iterator[PodText]:
    """Yield the text of one pod or, if the controller gives indices, of a pod for each line."""
    text = replace(template.text, name="")
    placement_map = _map_of(template)
    if placement_map is None or template.indices is None or names.INDEX in text.annotations:
        yield text
        return
    given = [index for index in placement_map.indices if index in template.indices]
    for index in given[:_MOST_SAMPLES]:
        yield replace(text, labels={**text.labels, names.POD_INDEX: str(index)})
    if not given:
        yield text


def _map_of(template: ControllerTemplate) -> PlacementMap | None:
    """Return the template's map; None if it has none, or one that cannot be read."""
    text = template.text
    if names.MAP not in text.annotations or text.excess is not None:
        return None
    try:
        return parse_placement_map(text.annotations[names.MAP])
    except MapError:
        return None


def _line_fault(template: ControllerTemplate) -> Deny | None:
    """Return why there are fewer lines than pods."""
    placement_map = _map_of(template)
    if placement_map is None:
        return None
    if names.INDEX in template.text.annotations:
        return _same_index(template)
    if template.indices is not None:
        return _missing_lines(template.kind, template.indices, placement_map)
    return _too_few_lines(template, placement_map)


def _same_index(template: ControllerTemplate) -> Deny | None:
    """Check that no two pods have the index of the template's annotation."""
    index = parse_number(template.text.annotations[names.INDEX])
    if index is None or template.replicas is None:
        return None
    if template.replicas > 1:
        return _deny(
            Reason.INDEX_HELD,
            f"cannot place {template.replicas} pods at index {index}: the template's annotation {names.INDEX} gives it "
            "to each of them, and one live pod of a workload has an index at a time",
            "leave the annotation out of the template, or run 1 replica",
        )
    return _stuck_roll_out(Reason.INDEX_HELD, template, f"it has index {index}", "leave the annotation out, or ")


def _missing_lines(kind: str, indices: range, placement_map: PlacementMap) -> Deny | None:
    """Check that the map has a line for each index that the controller gives."""
    lines = placement_map.indices
    missing = len(indices) - (bisect_left(lines, indices.stop) - bisect_left(lines, indices.start))
    if not missing:
        return None
    known = set(lines)
    first = next(index for index in indices if index not in known)
    given = f"indices {indices[0]}-{indices[-1]}" if len(indices) > 1 else f"index {first}"
    return _deny(
        Reason.INDEX_NOT_IN_MAP,
        f"cannot find index {first} in the map: it has lines for {index_ranges(placement_map)}, and the {kind} gives "
        f"{number_of(len(indices), 'pod')} the {given}, so {number_of(missing, 'pod')} can never be placed",
        f"run fewer replicas, or add a line to the map (example: {first}=node1:0)",
    )


def _too_few_lines(template: ControllerTemplate, placement_map: PlacementMap) -> Deny | None:
    """Check that the map has a line for each pod that exists at the same time, and one more for a rolling update."""
    limits = template.text.gpu_limits
    unfit = [limit_fits(limits, slot) for slot in placement_map.slots] if len(limits) == 1 else []
    lines = len(placement_map.indices) - sum(each is not None for each in unfit)
    if not lines:
        return next(Deny(each.reason, each.message) for each in unfit if each is not None)
    if template.replicas is None:
        return None
    have = f"the map has {number_of(lines, 'line')} for them"
    add = f"add a line to the map (example: {_free(placement_map)}=node1:0)"
    if template.replicas > lines:
        missing = number_of(template.replicas - lines, "pod")
        return _deny(
            Reason.NO_FREE_INDEX,
            f"cannot place {template.replicas} pods at once: {have}, so {missing} can never be placed",
            f"run fewer replicas, or {add}",
        )
    if template.replicas < lines:
        return None
    return _stuck_roll_out(Reason.NO_FREE_INDEX, template, have, f"{add}, or ")


def _stuck_roll_out(reason: Reason, template: ControllerTemplate, have: str, remedy: str) -> Deny | None:
    """Check that a rolling update, which has no line to spare, may remove an old pod first."""
    if template.max_unavailable != 0 or not template.replicas:
        return None
    pods = number_of(template.replicas, "pod")
    return _deny(
        reason,
        f"cannot roll out a change of the {pods} of this {template.kind}: {have}, and maxUnavailable, rounded down, is "
        "0, so a new pod would wait for ever for an old one to end",
        f"{remedy}write strategy.rollingUpdate.maxUnavailable: 1 or strategy.type: Recreate",
    )


def _free(placement_map: PlacementMap) -> int:
    """Return the lowest index without a line."""
    known = set(placement_map.indices)
    return next(index for index in count() if index not in known)


def _deny(reason: Reason, what: str, remedy: str) -> Deny:
    return Deny(reason, sentence(reason, what, remedy))
