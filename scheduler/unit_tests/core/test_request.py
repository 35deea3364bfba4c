"""A pod's request: every fault of its text, and the order in which the faults are reported."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.placement_map import NO_LINES, Slot, parse_placement_map
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Fault, Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says, text_of

MAP = "0=node1:0,1\n1=node2:2\n5=node1:\n"
KEEP = "agentaflow.gpu/keep-env"
OBSERVER = "agentaflow.gpu/observer"
SHARING = "agentaflow.gpu/sharing"
INDEX = "agentaflow.gpu/index"
COUNT = "agentaflow.gpu/count"


def pod(name: str = "train-0", text: str | None = MAP, more: Mapping[str, str] | None = None, **others: Any) -> PodText:
    annotations = {**({} if text is None else {"gpu-scheduling-map": text}), **(more or {})}
    return PodText("default", name, annotations=annotations, **others)


def fault(given: PodText) -> Fault:
    read = read_request(given).fault
    assert read is not None
    return read


REPLICA = Owner("ReplicaSet", "web-5d9f7c")
ASKED: dict[str, tuple[PodText, Slot | None]] = {
    "a name with a number requests its line": (pod("train-1"), Slot(1, "node2", ("2",))),
    "a generated name requests any line": (pod("web-5d9f7c-x7k2q", generate_name="web-5d9f7c-", owner=REPLICA), None),
    "a name that is yet to be generated requests any line": (pod("", generate_name="web-"), None),
    "a given name without a number requests any line": (pod("train"), None),
    "a Kubeflow replica requests any line": (
        pod("job-worker-0", labels={"training.kubeflow.org/replica-type": "worker"}),
        None,
    ),
    "an annotated Kubeflow replica requests its line": (
        pod("job-worker-0", more={INDEX: "1"}, labels={"training.kubeflow.org/replica-type": "worker"}),
        Slot(1, "node2", ("2",)),
    ),
    "a limit may be as many as the line names": (pod(gpu_limits=(("main", 2),)), Slot(0, "node1", ("0", "1"))),
    "a line without GPUs leaves them to the limit": (pod("t-5", gpu_limits=(("main", 3),)), Slot(5, "node1", ())),
    "a limit is not checked yet for a pod that takes any line": (pod("train", gpu_limits=(("main", 7),)), None),
    "optional annotations may be true": (
        pod(more={OBSERVER: "true", KEEP: "true", SHARING: "any"}),
        Slot(0, "node1", ("0", "1")),
    ),
    "optional annotations may be false": (pod(more={OBSERVER: "false", KEEP: "false"}), Slot(0, "node1", ("0", "1"))),
    "a map may be long": (pod(text=f"{MAP}#{'x' * 5000}"), Slot(0, "node1", ("0", "1"))),
    "the scheduler's own annotations may be long": (
        pod(more={"agentaflow.gpu/assigned-devices": "0," * 2000}),
        Slot(0, "node1", ("0", "1")),
    ),
    "a count beside a map is not read": (pod(more={COUNT: "x"}), Slot(0, "node1", ("0", "1"))),
}


@pytest.mark.parametrize(("given", "slot"), ASKED.values(), ids=ASKED)
def test_request_is_read(given: PodText, slot: Slot | None) -> None:
    """The request has the pod's line where its index is known, else the whole map."""
    read = read_request(given)

    assert read.fault is None
    assert read.line is not None
    assert (read.line.slot, read.line.index) == (slot, None if slot is None else slot.index)
    assert read.line.map == (parse_placement_map(MAP) if slot is None else NO_LINES)


FAULTS = {
    "a map that cannot be read": (
        pod(text="0=node1:x"),
        ("MapInvalid", "line 1", '"0=node1:x"', "1=node2:0,1", "gpu-scheduling-map"),
    ),
    "an observer that is neither true nor false": (
        pod(more={OBSERVER: "yes"}),
        ("RequestInvalid", '"yes"', '"false"', 'agentaflow.gpu/observer: "true"'),
    ),
    "keep-env in capitals": (
        pod(more={KEEP: "True"}),
        ("RequestInvalid", '"True"', '"false"', 'agentaflow.gpu/keep-env: "true"'),
    ),
    "sharing with a value that only the operator may set": (
        pod(more={SHARING: "none"}),
        ("RequestInvalid", '"none"', 'agentaflow.gpu/sharing: "any"'),
    ),
    "an empty annotation": (
        pod(more={OBSERVER: ""}),
        ("RequestInvalid", '""', '"false"', 'agentaflow.gpu/observer: "true"'),
    ),
    "an annotation that is longer than any valid value": (
        pod(excess=Excess(f"annotation {OBSERVER}", 65, 63)),
        ("RequestInvalid", f"annotation {OBSERVER}", "65 bytes", "63"),
    ),
    "a thousand and one containers": (
        pod(excess=Excess("the pod", 1001, 1000, "containers")),
        ("RequestInvalid", "1001 containers", "1000"),
    ),
    "an index that is too long for a number": (
        pod(excess=Excess("annotation agentaflow.gpu/index", 64, 63)),
        ("IndexUnknown", "agentaflow.gpu/index", "64 bytes", "63"),
    ),
    "no grace period": (
        pod(without_grace=True),
        ("RequestInvalid", text_of("a pod without a grace period waits until it is made anew")),
    ),
    "no grace period, without a map": (
        pod(text=None, more={COUNT: "1"}, without_grace=True),
        ("RequestInvalid", text_of("a pod without a grace period waits until it is made anew")),
    ),
    "limits in two containers": (
        pod(gpu_limits=(("main", 1), ("side", 2), ("third", 1))),
        ("RequestInvalid", "2", '"side"', 'nvidia.com/gpu: 1 in "main"'),
    ),
    "a limit below the devices of the line": (
        pod(gpu_limits=(("main", 1),)),
        ("RequestInvalid", "1", '"main"', "index 0", "nvidia.com/gpu: 2"),
    ),
    "a limit above the devices of the line": (
        pod("train-1", gpu_limits=(("main", 8),)),
        ("RequestInvalid", "8", '"main"', "index 1", "nvidia.com/gpu: 1"),
    ),
    "fields that the scheduler does not support": (
        pod(unsupported=("spec.resourceClaims", "spec.topologySpreadConstraints[0]")),
        ("Unsupported", "spec.resourceClaims", "spec.topologySpreadConstraints[0]", "gpu-scheduling-map"),
    ),
    "an index that is no number": (
        pod(more={INDEX: "one"}),
        ("IndexUnknown", '"one"', "2147483647", 'agentaflow.gpu/index: "0"'),
    ),
    "an annotated index without a line": (
        pod("train", more={INDEX: "7"}),
        ("IndexNotInMap", "index 7", "0-1", "5", "7=node1:0", "agentaflow.gpu/index"),
    ),
    "an index without a line": (pod("train-7"), ("IndexNotInMap", "index 7", "0-1", "5", "7=node1:0")),
}


@pytest.mark.promise("text-6")
@pytest.mark.parametrize(("given", "said"), FAULTS.values(), ids=FAULTS)
def test_fault(given: PodText, said: tuple[str, ...]) -> None:
    """The message has the value, the rule and a valid example; the webhook refuses such a pod."""
    found = fault(given)

    says(found.message, *said)
    assert found.reason in REFUSED_AT_ADMISSION


NOTHING = {
    "neither map nor count": pod(text=None),
    "malformed annotations, but no map": pod(text=None, more={OBSERVER: "yes", KEEP: "x", SHARING: "x"}),
    "a malformed index, but no map": pod(text=None, more={INDEX: "x"}),
    "an unsupported field, but no map": pod(text=None, unsupported=("spec.topologySpreadConstraints",)),
}


@pytest.mark.parametrize("given", NOTHING.values(), ids=NOTHING)
def test_nothing_requested(given: PodText) -> None:
    """The webhook admits such a pod, which waits for ever with this message: it breaks no rule."""
    found = fault(given)

    says(found.message, "NothingRequested", '"gpu-scheduler"', "gpu-scheduling-map", "agentaflow.gpu/count")
    assert found.reason not in REFUSED_AT_ADMISSION


NEARLY = {
    "a misspelt count is named with the right key": (
        pod(text=None, unknown_keys=("agentaflow.gpu/cout",)),
        ("NothingRequested", '"gpu-scheduler"', '"agentaflow.gpu/cout"', "agentaflow.gpu/count", "gpu-scheduling-map"),
    ),
    "a misspelt map is named with the right key": (
        pod(text=None, unknown_keys=("gpu-schedulling-map",)),
        ("NothingRequested", '"gpu-scheduler"', '"gpu-schedulling-map"', "gpu-scheduling-map", "agentaflow.gpu/count"),
    ),
    "several misspelt keys are all named": (
        pod(text=None, unknown_keys=("agentaflow.gpu/cout", "agentaflow.gpu/team")),
        ("NothingRequested", text_of("a pod that asks for nothing has two unknown annotations")),
    ),
    "a limit alone is not a request": (
        pod(text=None, gpu_limits=(("main", 2),)),
        ("NothingRequested", "nvidia.com/gpu", "2", '"main"', 'agentaflow.gpu/scheduling-strategy: "least_utilized"'),
    ),
    "of two limits the first is named": (
        pod(text=None, gpu_limits=(("main", 2), ("side", 1))),
        ("NothingRequested", "nvidia.com/gpu", "2", '"main"', 'agentaflow.gpu/scheduling-strategy: "least_utilized"'),
    ),
    "a limit beside a misspelt strategy": (
        pod(text=None, gpu_limits=(("main", 2),), unknown_keys=("agentaflow.gpu/scheduling-stratgy",)),
        (
            "NothingRequested",
            "nvidia.com/gpu",
            "2",
            '"main"',
            'agentaflow.gpu/scheduling-strategy: "least_utilized"',
            '"agentaflow.gpu/scheduling-stratgy"',
        ),
    ),
}


@pytest.mark.promise("text-10", "text-13")
@pytest.mark.parametrize(("given", "said"), NEARLY.values(), ids=NEARLY)
def test_a_pod_that_nearly_asks_for_something_learns_what_is_missing(given: PodText, said: tuple[str, ...]) -> None:
    """The message names what the author wrote, and what is missing. The webhook admits the pod."""
    found = fault(given)

    says(found.message, *said)
    assert found.reason not in REFUSED_AT_ADMISSION


def test_pods_that_ask_for_nothing_share_their_fault() -> None:
    """Thousands of such pods have one text in memory."""
    unknown = ("agentaflow.gpu/cout",)

    assert fault(pod("a", None, unknown_keys=unknown)) is fault(pod("b", None, unknown_keys=unknown))


def test_a_misspelt_key_is_no_fault_of_a_pod_that_asks_for_something() -> None:
    """Its author is warned at admission: the keys are part of the request."""
    read = read_request(pod(unknown_keys=("agentaflow.gpu/memroy",)))

    assert read.fault is None
    assert read.unknown_keys == ("agentaflow.gpu/memroy",)


WORST_FIRST = (
    ({"text": "nonsense"}, Reason.MAP_INVALID),
    ({"more": {OBSERVER: "x", INDEX: "x"}}, Reason.REQUEST_INVALID),
    ({"more": {INDEX: "x"}, "gpu_limits": (("a", 1), ("b", 1))}, Reason.REQUEST_INVALID),
    ({"more": {INDEX: "x"}, "gpu_limits": ()}, Reason.UNSUPPORTED),
    ({"unsupported": (), "more": {INDEX: "x"}}, Reason.INDEX_UNKNOWN),
    ({"unsupported": (), "name": "train-9"}, Reason.INDEX_NOT_IN_MAP),
    ({"unsupported": ()}, Reason.REQUEST_INVALID),
)


@pytest.mark.promise("limit-3")
def test_faults_are_reported_one_at_a_time_in_a_fixed_order() -> None:
    """The faults of a pod are reported one at a time in a fixed order; a corrected one uncovers the next."""
    everything: dict[str, Any] = {
        "more": {OBSERVER: "x", INDEX: "x"},
        "gpu_limits": (("a", 7),),
        "unsupported": ("spec.resourceClaims",),
    }

    assert [reason for _, reason in WORST_FIRST] == [
        fault(pod(**{**everything, "more": {}, **changes})).reason for changes, _ in WORST_FIRST
    ]


RANGES = {
    "one line": ("3=a:0", "3"),
    "a run": ("0=a:0\n1=a:1\n2=a:2", "0-2"),
    "gaps": ("0=a:0\n2=a:1\n3=a:2\n9=a:3", "0, 2-3, 9"),
    "eight runs": ("\n".join(f"{2 * n}=a:0" for n in range(8)), "0, 2, 4, 6, 8, 10, 12, 14"),
    "more runs than fit a sentence": ("\n".join(f"{2 * n}=a:0" for n in range(9)), "0, 2, 4, 6, 8, 10, 12, 14, …"),
}


@pytest.mark.parametrize(("text", "shown"), RANGES.values(), ids=RANGES)
def test_the_message_lists_the_indices_as_ranges(text: str, shown: str) -> None:
    """The message for an index that is not in the map lists the indices that are."""
    assert f"it has lines for {shown}; " in fault(pod("train-99", text)).message
