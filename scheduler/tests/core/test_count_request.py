"""A pod that leaves the choice of its GPUs to a strategy: what it may ask for, and every fault of the asking."""

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
from tests.core.build import container, visible

PREFIX = "agentaflow.gpu/"
FOUR = '"least_utilized", "best_fit", "priority" or "round_robin"'


def asking(count: str | None = None, limits: tuple[tuple[str, int], ...] = (), **others: Any) -> PodText:
    """A pod without a map; other words are annotations of ours, by the last part of their name."""
    fields = {key: others.pop(key) for key in ("unsupported",) if key in others}
    environment = environment_of(others.pop("containers", ()))
    words = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in {"count": count, **others}.items()}
    annotations = {key: text for key, text in words.items() if text is not None}
    return PodText("default", "train", annotations=annotations, gpu_limits=limits, environment=environment, **fields)


ONE_OF_4 = (("main", 4),)
ASKED = {
    "a number of GPUs": (asking("2"), CountRequest(2)),
    "the largest number": (asking("1024"), CountRequest(1024)),
    "a limit and a strategy": (
        asking(limits=(("main", 2),), scheduling_strategy="best_fit"),
        CountRequest(2, strategy=Strategy.BEST_FIT),
    ),
    "a number and a limit that agree": (asking("2", (("main", 2),)), CountRequest(2)),
    "MiB of each GPU": (asking("1", memory="8192"), CountRequest(1, memory=8192)),
    "the most that is believed": (asking("1", memory="1099511627776"), CountRequest(1, memory=2**40)),
    "no memory in particular": (asking("1", memory="0"), CountRequest(1)),
    "GPUs of its own": (asking("1", exclusive="true"), CountRequest(1)),
    "a part of a GPU": (asking("1", memory="4096", exclusive="false"), CountRequest(1, 4096, exclusive=False)),
    "a model": (asking("1", type="A100-SXM4 80GB"), CountRequest(1, gpu_type="A100-SXM4 80GB")),
    "the longest model": (asking("1", type="a" * 63), CountRequest(1, gpu_type="a" * 63)),
    "the next in turn": (
        asking("1", scheduling_strategy="round_robin"),
        CountRequest(1, strategy=Strategy.ROUND_ROBIN),
    ),
    "a priority": (
        asking("1", scheduling_strategy="priority", priority="-5"),
        CountRequest(1, strategy=Strategy.PRIORITY, priority=-5),
    ),
    "the highest priority": (asking("1", priority="1000000000"), CountRequest(1, priority=10**9)),
    "everything": (
        asking("4", ONE_OF_4, memory="1", exclusive="false", type="T4", scheduling_strategy="best_fit", priority="7"),
        CountRequest(4, 1, exclusive=False, gpu_type="T4", strategy=Strategy.BEST_FIT, priority=7),
    ),
    "to watch, and to share": (asking("1", observer="true", sharing="any"), CountRequest(1)),
    "an index that nothing reads": (asking("1", index="x"), CountRequest(1)),
    "to keep a variable that names no GPU": (
        asking("1", keep_env="true", containers=(container((visible(""),)),)),
        CountRequest(1),
    ),
}


@pytest.mark.parametrize(("given", "request_"), ASKED.values(), ids=ASKED)
def test_what_a_pod_may_ask_for(given: PodText, request_: CountRequest) -> None:
    """A number of GPUs is enough; all else has a default."""
    read = read_request(given)

    assert (read.count, read.line, read.fault) == (request_, None, None)


FAULTS = {
    "a negative number": (
        asking("-1"),
        (
            'cannot read annotation agentaflow.gpu/count: "-1": it must be a number from 1 to 1024, without plus sign '
            'or leading zero; correct it (example: agentaflow.gpu/count: "1"), or write a map instead'
        ),
    ),
    "no GPU at all": (
        asking("0"),
        (
            'cannot read annotation agentaflow.gpu/count: "0": it must be a number from 1 to 1024, without plus sign '
            'or leading zero; correct it (example: agentaflow.gpu/count: "1"), or write a map instead'
        ),
    ),
    "an empty number, though there is a limit": (
        asking("", (("main", 1),)),
        (
            'cannot read annotation agentaflow.gpu/count: "": it must be a number from 1 to 1024, without plus sign '
            'or leading zero; correct it (example: agentaflow.gpu/count: "1"), or write a map instead'
        ),
    ),
    "a limit beyond all GPUs": (
        asking(limits=(("main", 1025),), scheduling_strategy="best_fit"),
        (
            'cannot read limit nvidia.com/gpu: 1025 of container "main": it must be a number from 1 to 1024; '
            "correct it (example: nvidia.com/gpu: 1)"
        ),
    ),
    "a limit that differs from the number": (
        asking("2", (("main", 1),)),
        (
            'cannot read limit nvidia.com/gpu: 1 of container "main": it must be as many as annotation '
            "agentaflow.gpu/count says, which are 2; correct it (example: nvidia.com/gpu: 2), or leave one of the two "
            "out"
        ),
    ),
    "memory with a unit": (
        asking("1", memory="8Gi"),
        (
            'cannot read annotation agentaflow.gpu/memory: "8Gi": it must be a number of MiB from 0 to 1099511627776, '
            'without plus sign or leading zero; correct it (example: agentaflow.gpu/memory: "8192"), or leave it out'
        ),
    ),
    "memory below nothing": (
        asking("1", memory="-1"),
        (
            'cannot read annotation agentaflow.gpu/memory: "-1": it must be a number of MiB from 0 to 1099511627776, '
            'without plus sign or leading zero; correct it (example: agentaflow.gpu/memory: "8192"), or leave it out'
        ),
    ),
    "a choice that is none": (
        asking("1", exclusive="no"),
        (
            'cannot read annotation agentaflow.gpu/exclusive: "no": it must be "true" or "false"; '
            'correct it (example: agentaflow.gpu/exclusive: "true"), or leave it out'
        ),
    ),
    "a part of a GPU, but not how large": (
        asking("1", exclusive="false"),
        (
            'cannot share GPUs by annotation agentaflow.gpu/exclusive: "false": annotation agentaflow.gpu/memory must '
            'say how many MiB of each the pod takes; write it (example: agentaflow.gpu/memory: "8192"), or leave out '
            "agentaflow.gpu/exclusive"
        ),
    ),
    "a part of a GPU, of no size": (
        asking("1", exclusive="false", memory="0"),
        (
            'cannot share GPUs by annotation agentaflow.gpu/exclusive: "false": annotation agentaflow.gpu/memory must '
            'say how many MiB of each the pod takes; write it (example: agentaflow.gpu/memory: "8192"), or leave out '
            "agentaflow.gpu/exclusive"
        ),
    ),
    "an empty model": (
        asking("1", type=""),
        (
            'cannot read annotation agentaflow.gpu/type: "": it must be part of a GPU\'s model: 1 to 63 printable '
            'ASCII characters; correct it (example: agentaflow.gpu/type: "A100"), or leave it out'
        ),
    ),
    "a model that would break the line": (
        asking("1", type="A100\n"),
        (
            'cannot read annotation agentaflow.gpu/type: "A100\\n": it must be part of a GPU\'s model: 1 to 63 '
            'printable ASCII characters; correct it (example: agentaflow.gpu/type: "A100"), or leave it out'
        ),
    ),
    "an unknown strategy": (
        asking("1", scheduling_strategy="fastest"),
        (
            f'cannot read annotation agentaflow.gpu/scheduling-strategy: "fastest": it must be {FOUR}; correct it '
            '(example: agentaflow.gpu/scheduling-strategy: "least_utilized"), or leave it out'
        ),
    ),
    "a limit with an empty strategy": (
        asking(limits=(("main", 1),), scheduling_strategy=""),
        (
            f'cannot read annotation agentaflow.gpu/scheduling-strategy: "": it must be {FOUR}; correct it '
            '(example: agentaflow.gpu/scheduling-strategy: "least_utilized"), or leave it out'
        ),
    ),
    "a priority that is a word": (
        asking("1", priority="high"),
        (
            'cannot read annotation agentaflow.gpu/priority: "high": it must be a number from -1000000000 to '
            '1000000000, without plus sign or leading zero; correct it (example: agentaflow.gpu/priority: "10"), or '
            "leave it out"
        ),
    ),
    "an odd choice of the kind that map pods have": (
        asking("1", observer="yes"),
        (
            'cannot read annotation agentaflow.gpu/observer: "yes": it must be "true" or "false"; '
            'correct it (example: agentaflow.gpu/observer: "true"), or leave it out'
        ),
    ),
    "limits in two containers": (
        asking("2", (("main", 1), ("side", 1))),
        (
            'cannot read limit nvidia.com/gpu: 1 of container "side": one container of a pod must have that limit, '
            'and "main" has it; leave it out of all but one (example: nvidia.com/gpu: 1 in "main")'
        ),
    ),
    "to keep GPUs that no map names": (
        asking("1", keep_env="true", containers=(container((visible("3,1"),)),)),
        (
            'cannot keep CUDA_VISIBLE_DEVICES="3,1": the GPUs of a pod without a map are chosen when it is placed; '
            "leave the variable out of its containers, or write a map "
            '(annotation gpu-scheduling-map, example: "0=node1:0,1")'
        ),
    ),
}


@pytest.mark.parametrize(("given", "sentence"), FAULTS.values(), ids=FAULTS)
def test_fault(given: PodText, sentence: str) -> None:
    """Cannot + value + rule + valid example; all of them are refused before the pod exists."""
    read = read_request(given).fault

    assert read is not None
    assert f"RequestInvalid: {sentence}" == read.message
    assert read.reason in REFUSED_AT_ADMISSION


def test_fields_that_no_strategy_reads() -> None:
    """The cure names what a strategy does read."""
    read = read_request(asking("1", unsupported=("spec.resourceClaims",))).fault

    assert read is not None
    assert read.message == (
        "Unsupported: cannot place a pod by spec.resourceClaims: this scheduler does not read it; leave it out: "
        "nodeSelector and required node affinity are read "
        '(example: nodeSelector: {"kubernetes.io/arch": "amd64"})'
    )


NOT_BY_NUMBER = {
    "a pod that asks for nothing": asking(),
    "a limit alone": asking(limits=(("main", 2),)),
    "a strategy alone": asking(scheduling_strategy="best_fit"),
    "only what a number would have needed": asking(memory="x", exclusive="x", type="", priority="x"),
}


@pytest.mark.parametrize("given", NOT_BY_NUMBER.values(), ids=NOT_BY_NUMBER)
def test_who_does_not_ask_by_number(given: PodText) -> None:
    """What nobody asked for is no fault."""
    read = read_request(given)

    assert read.fault is not None
    assert read.fault.reason is Reason.NOTHING_REQUESTED
    assert read_count(given) is None


def test_a_map_wins() -> None:
    """What stands beside it, odd or not, is for a pod without one."""
    text = "0=node1:0"
    annotations = {"gpu-scheduling-map": text, f"{PREFIX}count": "x", f"{PREFIX}memory": "x", f"{PREFIX}index": "0"}

    read = read_request(PodText("default", "train", annotations=annotations))
    workload = WorkloadKey("default", "", "", parse_placement_map(text).digest)

    assert read == PlacementRequest(LineRequest(workload, 0, Slot(0, "node1", ("0",))))


# Per annotation: what it may say, and what then is asked for.
COUNTS = st.integers(1, MAX_DEVICES)
MEMORIES = st.integers(0, MAX_MEMORY)
PRIORITIES = st.integers(-MAX_PRIORITY, MAX_PRIORITY)
TYPES = st.text(string.printable[:95], min_size=1, max_size=63)
STRATEGIES = st.sampled_from(Strategy)


@for_all(
    st.builds(CountRequest, COUNTS, MEMORIES, st.booleans(), TYPES, STRATEGIES, PRIORITIES).filter(
        lambda wish: wish.exclusive or wish.memory
    ),
    st.booleans(),
)
def test_what_is_written_is_what_is_read(wish: CountRequest, limited: bool) -> None:  # noqa: FBT001
    """Every value that there may be, whichever way the number is said."""
    assert wish.strategy is not None
    given = asking(
        None if limited else str(wish.count),
        (("main", wish.count),) if limited else (),
        memory=str(wish.memory),
        exclusive=str(wish.exclusive).lower(),
        type=wish.gpu_type,
        scheduling_strategy=str(wish.strategy),
        priority=str(wish.priority),
    )

    assert read_request(given) == PlacementRequest(count=wish)


DIGITS = st.text("0123456789+-_ ,.eE\u0661\u00b2", max_size=50)
TEXTS = st.none() | st.text(max_size=70) | DIGITS | st.integers().map(str)


def numeral(text: str | None, least: int, most: int, otherwise: int) -> int | None:
    """A small reference model: a number is what Python prints of it, within its bounds; None for anything else."""
    if text is None:
        return otherwise
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and least <= number <= most else None


@for_all(TEXTS, TEXTS, TEXTS)
def test_any_text_is_a_number_or_a_fault(count: str | None, memory: str | None, priority: str | None) -> None:
    """Nothing crashes, and nothing but a number within its bounds is taken for one."""
    read = read_count(asking(count or "x", memory=memory, priority=priority))
    numerals = (
        numeral(count or "x", 1, 1024, 0),
        numeral(memory, 0, 2**40, 0),
        numeral(priority, -(10**9), 10**9, 0),
    )

    if None in numerals:
        assert isinstance(read, Fault)
        assert read.reason is Reason.REQUEST_INVALID
    else:
        assert isinstance(read, CountRequest)
        assert numerals == (read.count, read.memory, read.priority)


WORDS = st.none() | st.text(max_size=70) | st.sampled_from(["true", "false", "A100", *Strategy])


@for_all(WORDS, WORDS, WORDS)
def test_any_text_is_a_word_or_a_fault(exclusive: str | None, model: str | None, strategy: str | None) -> None:
    """Nothing but the words that there are is taken for one, and a model is what can be printed on a line."""
    read = read_count(asking("1", memory="1", exclusive=exclusive, type=model, scheduling_strategy=strategy))
    printable = model is None or (1 <= len(model) <= 63 and all(" " <= pending <= "~" for pending in model))
    right = exclusive in {None, "true", "false"} and printable and strategy in {None, *Strategy}

    assert right is isinstance(read, CountRequest)
