"""A pod whose GPUs a strategy chooses: what it may request, and every fault of such a request."""

import string
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from gpu_scheduler.core.pods.count_request import (
    MAX_DEVICES,
    MAX_MEMORY,
    MAX_PRIORITY,
    CountRequest,
    Strategy,
    read_count,
)
from gpu_scheduler.core.pods.placement_map import Slot, parse_placement_map
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import LineRequest, PlacementRequest, read_request
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Fault, Reason
from gpu_scheduler.core.refs import WorkloadKey
from tests.messages import says
from unit_tests.core.build import container, visible

PREFIX = "agentaflow.gpu/"


def asking(count: str | None = None, limits: tuple[tuple[str, int], ...] = (), **others: Any) -> PodText:
    """Return the text of a pod without a map; other arguments are our annotations, by the last part of their name."""
    fields = {key: others.pop(key) for key in ("unsupported",) if key in others}
    environment = environment_of(others.pop("containers", ()))
    words = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in {"count": count, **others}.items()}
    annotations = {key: text for key, text in words.items() if text is not None}
    return PodText("default", "train", annotations=annotations, gpu_limits=limits, environment=environment, **fields)


ONE_OF_4 = (("main", 4),)
ASKED = {
    "a number of GPUs": (asking("2"), CountRequest(2)),
    "a limit and a strategy": (
        asking(limits=(("main", 2),), scheduling_strategy="best_fit"),
        CountRequest(2, strategy=Strategy.BEST_FIT),
    ),
    "a number and a limit that agree": (asking("2", (("main", 2),)), CountRequest(2)),
    "MiB of each GPU": (asking("1", memory="8192"), CountRequest(1, memory=8192)),
    "a part of a GPU": (asking("1", memory="4096", exclusive="false"), CountRequest(1, 4096, exclusive=False)),
    "all annotations": (
        asking("4", ONE_OF_4, memory="1", exclusive="false", type="T4", scheduling_strategy="best_fit", priority="7"),
        CountRequest(4, 1, exclusive=False, gpu_type="T4", strategy=Strategy.BEST_FIT, priority=7),
    ),
    "an observer that shares": (asking("1", observer="true", sharing="any"), CountRequest(1)),
    "an index, which is not read": (asking("1", index="x"), CountRequest(1)),
    "a kept variable that names no GPU": (
        asking("1", keep_env="true", containers=(container((visible(""),)),)),
        CountRequest(1),
    ),
}


@pytest.mark.parametrize(("given", "request_"), ASKED.values(), ids=ASKED)
def test_a_pod_may_request_a_count(given: PodText, request_: CountRequest) -> None:
    """A number of GPUs is enough; every other annotation has a default."""
    read = read_request(given)

    assert (read.count, read.line, read.fault) == (request_, None, None)


FAULTS = {
    "a negative number": (asking("-1"), ("agentaflow.gpu/count", '"-1"', "1024", 'agentaflow.gpu/count: "1"')),
    "no GPU at all": (asking("0"), ("agentaflow.gpu/count", '"0"', "1", "1024", 'agentaflow.gpu/count: "1"')),
    "an empty number, though there is a limit": (
        asking("", (("main", 1),)),
        ("agentaflow.gpu/count", '""', "1", "1024", 'agentaflow.gpu/count: "1"'),
    ),
    "a limit beyond all GPUs": (
        asking(limits=(("main", 1025),), scheduling_strategy="best_fit"),
        ("nvidia.com/gpu", "1025", '"main"', "1024", "nvidia.com/gpu: 1"),
    ),
    "a limit that differs from the number": (
        asking("2", (("main", 1),)),
        ("nvidia.com/gpu", "1", '"main"', "agentaflow.gpu/count", "2", "nvidia.com/gpu: 2"),
    ),
    "memory with a unit": (
        asking("1", memory="8Gi"),
        ("agentaflow.gpu/memory", '"8Gi"', "0", "1099511627776", 'agentaflow.gpu/memory: "8192"'),
    ),
    "a negative memory": (
        asking("1", memory="-1"),
        ("agentaflow.gpu/memory", '"-1"', "0", "1099511627776", 'agentaflow.gpu/memory: "8192"'),
    ),
    "a value of exclusive that is no boolean": (
        asking("1", exclusive="no"),
        ("agentaflow.gpu/exclusive", '"no"', '"true"', '"false"', 'agentaflow.gpu/exclusive: "true"'),
    ),
    "a part of a GPU without memory": (
        asking("1", exclusive="false"),
        ("agentaflow.gpu/exclusive", '"false"', "agentaflow.gpu/memory", 'agentaflow.gpu/memory: "8192"'),
    ),
    "a part of a GPU with memory 0": (
        asking("1", exclusive="false", memory="0"),
        ("agentaflow.gpu/exclusive", '"false"', "agentaflow.gpu/memory", 'agentaflow.gpu/memory: "8192"'),
    ),
    "an empty model": (
        asking("1", type=""),
        ("agentaflow.gpu/type", '""', "1", "63 printable", 'agentaflow.gpu/type: "A100"'),
    ),
    "a model with a line end": (
        asking("1", type="A100\n"),
        ("agentaflow.gpu/type", '"A100\\n"', "63 printable", 'agentaflow.gpu/type: "A100"'),
    ),
    "an unknown strategy": (
        asking("1", scheduling_strategy="fastest"),
        (
            "agentaflow.gpu/scheduling-strategy",
            '"fastest"',
            '"least_utilized"',
            '"best_fit"',
            '"priority"',
            '"round_robin"',
            'agentaflow.gpu/scheduling-strategy: "least_utilized"',
        ),
    ),
    "a limit with an empty strategy": (
        asking(limits=(("main", 1),), scheduling_strategy=""),
        (
            "agentaflow.gpu/scheduling-strategy",
            '""',
            '"least_utilized"',
            '"best_fit"',
            '"priority"',
            '"round_robin"',
            'agentaflow.gpu/scheduling-strategy: "least_utilized"',
        ),
    ),
    "a priority that is a word": (
        asking("1", priority="high"),
        ("agentaflow.gpu/priority", '"high"', "-1000000000", 'agentaflow.gpu/priority: "10"'),
    ),
    "a wrong value of observer, which map pods have too": (
        asking("1", observer="yes"),
        ("agentaflow.gpu/observer", '"yes"', '"true"', '"false"', 'agentaflow.gpu/observer: "true"'),
    ),
    "limits in two containers": (
        asking("2", (("main", 1), ("side", 1))),
        ("nvidia.com/gpu", "1", '"side"', '"main"', 'nvidia.com/gpu: 1 in "main"'),
    ),
    "kept GPUs without a map": (
        asking("1", keep_env="true", containers=(container((visible("3,1"),)),)),
        ('CUDA_VISIBLE_DEVICES="3,1"', "gpu-scheduling-map"),
    ),
}


@pytest.mark.parametrize(("given", "named"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_annotation_is_refused(given: PodText, named: tuple[str, ...]) -> None:
    """The message has "cannot", the value, the rule and a valid example; the webhook refuses each of these pods."""
    read = read_request(given).fault

    assert read is not None
    says(read.message, "RequestInvalid", *named)
    assert read.reason in REFUSED_AT_ADMISSION


def test_a_field_that_no_strategy_reads_is_refused() -> None:
    """The remedy names the fields that a strategy reads."""
    read = read_request(asking("1", unsupported=("spec.resourceClaims",))).fault

    assert read is not None
    says(read.message, "Unsupported", "spec.resourceClaims", 'nodeSelector: {"kubernetes.io/arch": "amd64"}')


NOT_BY_NUMBER = {
    "a pod that requests nothing": asking(),
    "a limit alone": asking(limits=(("main", 2),)),
    "a strategy alone": asking(scheduling_strategy="best_fit"),
    "wrong annotations without a count": asking(memory="x", exclusive="x", type="", priority="x"),
}


@pytest.mark.parametrize("given", NOT_BY_NUMBER.values(), ids=NOT_BY_NUMBER)
def test_a_pod_without_a_count_requests_nothing(given: PodText) -> None:
    """Annotations of a count are not read where no count is requested."""
    read = read_request(given)

    assert read.fault is not None
    assert read.fault.reason is Reason.NOTHING_REQUESTED
    assert read_count(given) is None


def test_a_map_overrides_a_count() -> None:
    """Annotations of a count are not read in a pod with a map, valid or not."""
    text = "0=node1:0"
    annotations = {"gpu-scheduling-map": text, f"{PREFIX}count": "x", f"{PREFIX}memory": "x", f"{PREFIX}index": "0"}

    read = read_request(PodText("default", "train", annotations=annotations))
    workload = WorkloadKey("default", "", "", parse_placement_map(text).digest)

    assert read == PlacementRequest(LineRequest(workload, 0, Slot(0, "node1", ("0",))), count_ignored=True)


# Valid values of each annotation.
COUNTS = st.integers(1, MAX_DEVICES)
MEMORIES = st.integers(0, MAX_MEMORY)
PRIORITIES = st.integers(-MAX_PRIORITY, MAX_PRIORITY)
TYPES = st.text(string.printable[:95], min_size=1, max_size=63)
STRATEGIES = st.sampled_from(Strategy)


@for_all(
    st.builds(CountRequest, COUNTS, MEMORIES, st.booleans(), TYPES, STRATEGIES, PRIORITIES).filter(
        lambda request_: request_.exclusive or request_.memory
    ),
    st.booleans(),
)
def test_a_written_request_is_read_back(request_: CountRequest, limited: bool) -> None:  # noqa: FBT001
    """Every valid value is read back, with the number as annotation count or as limit."""
    assert request_.strategy is not None
    given = asking(
        None if limited else str(request_.count),
        (("main", request_.count),) if limited else (),
        memory=str(request_.memory),
        exclusive=str(request_.exclusive).lower(),
        type=request_.gpu_type,
        scheduling_strategy=str(request_.strategy),
        priority=str(request_.priority),
    )

    assert read_request(given) == PlacementRequest(count=request_)


DIGITS = st.text("0123456789+-_ ,.eE\u0661\u00b2", max_size=50)
TEXTS = st.none() | st.text(max_size=70) | DIGITS | st.integers().map(str)


def numeral(text: str | None, least: int, most: int, otherwise: int) -> int | None:
    """Return the number if Python prints it as `text` and it is within its bounds, else None: a reference model."""
    if text is None:
        return otherwise
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and least <= number <= most else None


@for_all(TEXTS, TEXTS, TEXTS)
def test_any_text_is_a_number_or_a_fault(count: str | None, memory: str | None, priority: str | None) -> None:
    """No text raises an exception, and only a number within its bounds is read as a number."""
    read = read_count(asking(count or "x", memory=memory, priority=priority))
    numerals = (numeral(count or "x", 1, 1024, 0), numeral(memory, 0, 2**40, 0), numeral(priority, -(10**9), 10**9, 0))

    if None in numerals:
        assert isinstance(read, Fault)
        assert read.reason is Reason.REQUEST_INVALID
    else:
        assert isinstance(read, CountRequest)
        assert numerals == (read.count, read.memory, read.priority)


WORDS = st.none() | st.text(max_size=70) | st.sampled_from(["true", "false", "A100", *Strategy])


@for_all(WORDS, WORDS, WORDS)
def test_any_text_is_a_word_or_a_fault(exclusive: str | None, model: str | None, strategy: str | None) -> None:
    """Only the known words are read, and a model is text that can be printed on one line."""
    read = read_count(asking("1", memory="1", exclusive=exclusive, type=model, scheduling_strategy=strategy))
    printable = model is None or (1 <= len(model) <= 63 and all(" " <= character <= "~" for character in model))
    valid = exclusive in {None, "true", "false"} and printable and strategy in {None, *Strategy}

    assert valid is isinstance(read, CountRequest)
