"""What the author of a pod template is warned of, before its controller makes pods of it."""

from typing import Any

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.webhook.template_review import ControllerTemplate, review_template, template_cautions
from tests.messages import says, text_of
from unit_tests.core.build import container, own, visible

US = "gpu-scheduler"
FIVE = "".join(f"{index}=node{index}:0,1\n" for index in range(5))
MIXED = "0=node1:0\n1=node2:0,1\n"


def text(annotations: dict[str, str] | None = None, *containers: Any, **others: Any) -> PodText:
    environment = environment_of(containers or (container(None),))
    given = {names.MAP: FIVE} if annotations is None else annotations
    return PodText("ml", annotations=given, environment=environment, **others)


def stateful_set(pods: int, start: int = 0, given: PodText | None = None) -> ControllerTemplate:
    return ControllerTemplate("StatefulSet", given or text(), {}, pods, range(start, start + pods))


def indexed_job(completions: int, given: PodText | None = None) -> ControllerTemplate:
    return ControllerTemplate("Job", given or text(), {}, indices=range(completions))


def job(given: PodText | None = None) -> ControllerTemplate:
    return ControllerTemplate("Job", given or text(), {})


def deployment(pods: int, unavailable: int | None = 1, given: PodText | None = None) -> ControllerTemplate:
    return ControllerTemplate("Deployment", given or text(), {}, pods, max_unavailable=unavailable)


def limited(limit: int, annotations: dict[str, str] | None = None) -> PodText:
    return text(annotations, gpu_limits=(("main", limit),))


def messages(template: ControllerTemplate) -> list[str]:
    found = review_template(template, US)
    assert all(each.message.startswith(f"{each.reason}: ") for each in found)
    return [each.message for each in found]


FAULTLESS = {
    "a StatefulSet with a line for each pod": stateful_set(5),
    "one that starts later": stateful_set(2, 3),
    "one without pods": stateful_set(0, 7),
    "an Indexed Job with a line for each index": indexed_job(5),
    "an Indexed Job that is complete from its start": indexed_job(0),
    "a Job whose pods follow each other": job(),
    "a Job whose pods follow each other at one index": job(text({names.MAP: FIVE, names.INDEX: "0"})),
    "a Deployment that may remove a pod first": deployment(5),
    "a Deployment with a line to spare": deployment(4, 0),
    "a Deployment that is not rolled out": deployment(5, None),
    "a Deployment without pods": deployment(0, 0),
    "one pod at one index": deployment(1, 1, text({names.MAP: FIVE, names.INDEX: "0"})),
    "a count, which is no matter of lines": deployment(9, 0, text({names.COUNT: "1"})),
    "a limit that each line fits": deployment(5, 1, limited(2)),
    "a limit that the lines of these pods fit": stateful_set(1, 1, limited(2, {names.MAP: MIXED})),
    "a limit that one line fits": job(limited(2, {names.MAP: MIXED})),
    "lines that leave the devices to a plugin": deployment(1, 1, limited(2, {names.MAP: "0=node1:\n"})),
    "variables that are right for each line": stateful_set(5, 0, text(None, *own("0,1"))),
}


@pytest.mark.parametrize("template", FAULTLESS.values(), ids=FAULTLESS)
def test_nothing_is_found_where_every_pod_may_be_placed(template: ControllerTemplate) -> None:
    """Otherwise people would learn to ignore the warnings."""
    assert review_template(template, US) == ()
    assert template_cautions(template, ()) == ()


# Template → what is found.
FAULTY = {
    "a StatefulSet has more pods than lines": (
        stateful_set(6),
        ("IndexNotInMap", text_of("the template of a StatefulSet has more pods than lines")),
    ),
    "its first ordinal counts": (
        stateful_set(3, 4),
        ("IndexNotInMap", "index 5", "0-4", "3 pods", "4-6", "2 pods", "5=node1:0"),
    ),
    "the map has a line, but not for the only pod": (
        stateful_set(1, 0, text({names.MAP: "1=node1:0\n"})),
        ("IndexNotInMap", "index 0", "1 pod", "0=node1:0"),
    ),
    "an Indexed Job has as many pods as the API allows": (
        indexed_job(2**31 - 1),
        ("IndexNotInMap", "index 5", "0-4", "2147483647 pods", "0-2147483646", "2147483642 pods", "5=node1:0"),
    ),
    "a Deployment has more pods than lines": (
        deployment(7, 0),
        ("NoFreeIndex", text_of("the template of a Deployment has more pods than lines")),
    ),
    "only lines that fit the limit count": (
        deployment(2, 1, limited(2, {names.MAP: MIXED})),
        ("NoFreeIndex", "2 pods", "1 line", "1 pod", "2=node1:0"),
    ),
    "its pods are deleted at once": (
        job(text(without_grace=True)),
        ("RequestInvalid", text_of("a pod without a grace period waits until it is made anew")),
    ),
    "no line fits the limit": (job(limited(3)), ("RequestInvalid", "3", '"main"', "index 0", "nvidia.com/gpu: 2")),
    "the line of one pod does not fit the limit": (
        stateful_set(2, 0, limited(2, {names.MAP: MIXED})),
        ("RequestInvalid", "2", '"main"', "index 0", "nvidia.com/gpu: 1"),
    ),
    "a roll-out has no line to spare": (
        deployment(5, 0),
        ("NoFreeIndex", text_of("a roll-out of a template has no line to spare")),
    ),
    "a roll-out of one pod has no index to spare": (
        deployment(1, 0, text({names.MAP: FIVE, names.INDEX: "3"})),
        ("IndexHeld", text_of("a roll-out of a template of one pod has no index to spare")),
    ),
    "all pods have one index": (
        stateful_set(3, 0, text({names.MAP: FIVE, names.INDEX: "0"})),
        ("IndexHeld", text_of("a template gives one index to all of its pods")),
    ),
    "the index is no number": (
        stateful_set(3, 0, text({names.MAP: FIVE, names.INDEX: "first"})),
        ("IndexUnknown", '"first"', "2147483647", 'agentaflow.gpu/index: "0"'),
    ),
    "the map cannot be read": (
        stateful_set(3, 0, text({names.MAP: "0=node1:0\n1=node2:x\n"})),
        ("MapInvalid", "line 2", '"1=node2:x"', "1=node2:0,1", "gpu-scheduling-map"),
    ),
    "the map is too large to be kept": (
        stateful_set(3, 0, text({names.MAP: ""}, excess=Excess("annotation gpu-scheduling-map", 70_000, 65_536))),
        ("MapInvalid", text_of("a map is too large")),
    ),
    "a container sets the variable, which is right for one line only": (
        stateful_set(2, 0, text({names.MAP: MIXED}, *own("0"))),
        ("EnvConflict", 'CUDA_VISIBLE_DEVICES="0,1"', '"main"', '"0"', "agentaflow.gpu/keep-env"),
    ),
    "a field that this scheduler does not read, without any line for the pods": (
        stateful_set(0, 9, text(unsupported=("spec.resourceClaims",))),
        ("Unsupported", "spec.resourceClaims", "gpu-scheduling-map"),
    ),
}


@pytest.mark.promise("warn-2")
@pytest.mark.parametrize(("template", "said"), FAULTY.values(), ids=FAULTY)
def test_pods_that_could_never_be_placed_are_found(template: ControllerTemplate, said: tuple[str, ...]) -> None:
    """Reason, what is wrong, and the remedy."""
    (found,) = messages(template)
    says(found, *said)


def test_a_template_without_a_request_names_the_misspelt_key_once() -> None:
    """The message of the reason has it; elsewhere it is a warning of its own."""
    misspelt = "agentaflow.gpu/cuont"
    unknown = f'annotation "{misspelt}" is unknown: did you mean agentaflow.gpu/count?'
    without = job(text({}, unknown_keys=(misspelt,)))
    found = review_template(without, US)

    (nothing,) = found
    assert (nothing.reason, unknown in nothing.message) == (Reason.NOTHING_REQUESTED, True)
    assert template_cautions(without, found) == ()
    assert template_cautions(job(text(unknown_keys=(misspelt,))), ()) == (unknown,)


def test_what_is_found_in_the_text_and_in_the_lines_is_reported_at_once() -> None:
    """So that an author need not try twice."""
    found = review_template(stateful_set(6, 0, text(unsupported=("spec.resourceClaims",))), US)

    assert [each.reason for each in found] == [Reason.UNSUPPORTED, Reason.INDEX_NOT_IN_MAP]


@pytest.mark.parametrize(
    ("own_annotations", "named"),
    [({}, "gpu-scheduling-map, agentaflow.gpu/sharing"), ({names.MAP: FIVE}, "agentaflow.gpu/sharing")],
    ids=["the template has none", "the template has one of them"],
)
def test_annotations_of_the_controller_itself_reach_no_pod(own_annotations: dict[str, str], named: str) -> None:
    """Only those of ours that users write, and only if the template lacks them."""
    given = {names.MAP: FIVE, names.SHARING: "any", names.ASSIGNED_DEVICES: "0", "example.com/note": "x"}

    (caution,) = template_cautions(ControllerTemplate("Deployment", text(own_annotations), given), ())

    assert caution == text_of("webhook: an annotation that reaches no pod", key=named, kind="Deployment")


def test_few_pods_of_a_template_are_reviewed() -> None:
    """A map may have thousands of lines, which hardly ever differ."""
    lines = "".join(f"{index}=node1:0\n" for index in range(64)) + "64=node1:5\n"

    assert messages(stateful_set(65, 1, text({names.MAP: lines + "65=node1:5\n"}, *own("0"))))
    assert review_template(stateful_set(65, 0, text({names.MAP: lines}, *own("0"))), US) == ()


def test_the_longest_warnings_fit_into_the_headers_of_an_answer() -> None:
    """The API server cuts each to 256 characters where all together have more than 4,096."""
    lines = "".join(f"{index}=node1:0\n" for index in range(0, 40, 2))
    keys = tuple(f"agentaflow.gpu/{'x' * 62}{number}" for number in range(3))
    given = dict.fromkeys((names.INDEX, names.COUNT, names.KEEP_ENV, names.GPU_TYPE, names.PRIORITY), "x")
    wrong = text({names.MAP: lines}, container((visible("\x00" * 60),), name="\x00" * 63), unknown_keys=keys)
    template = ControllerTemplate("StatefulSet", wrong, given, 2**31 - 1, range(2**31 - 1))
    found = review_template(template, US)
    warnings = [*(each.message for each in found), *template_cautions(template, found)]

    assert [len(found), len(warnings)] == [2, 6]
    assert sum(map(len, warnings)) < 3000
    assert all(each.isprintable() for each in warnings)
