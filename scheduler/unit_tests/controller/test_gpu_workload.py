import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, annotations_of, pod_name, short
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import PodRef
from unit_tests.core.build import pod

requests = st.builds(
    CountRequest,
    st.integers(1, 1024),
    st.integers(1, 2**40),
    st.booleans(),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=63),
    st.none() | st.sampled_from(Strategy),
    st.integers(-(10**9), 10**9),
)


@given(requests)
def test_the_scheduler_reads_the_request_of_the_workload(request: CountRequest) -> None:
    """A workload's request, written on a pod and read from it, is the same request."""
    assert pod("train-0", None, annotations=annotations_of(request)).request == PlacementRequest(count=request)


def test_only_requested_annotations_are_written() -> None:
    """The count always, because it marks the pod as ours. Other values only if they differ from the default."""
    assert annotations_of(CountRequest(2)) == {"agentaflow.gpu/count": "2"}
    assert annotations_of(CountRequest(1, 8192, False, "A100", Strategy.BEST_FIT, -5)) == {
        "agentaflow.gpu/count": "1",
        "agentaflow.gpu/memory": "8192",
        "agentaflow.gpu/exclusive": "false",
        "agentaflow.gpu/type": "A100",
        "agentaflow.gpu/scheduling-strategy": "best_fit",
        "agentaflow.gpu/priority": "-5",
    }


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(NAMES)
def test_a_name_fits_into_a_label_and_a_pod_s_name(name: str) -> None:
    """For every valid name of an object. Two long names stay different, and a short one is unchanged."""
    shortened = short(name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", shortened)
    assert len(pod_name(name, 10)) <= 63
    assert shortened == name or len(name) > 52
    assert shortened == name or short(name + "x") != shortened


@pytest.mark.parametrize("name", ["a" * 52, "a" * 53, "a" * 43 + ".b" * 105, "a" * 42 + "-." + "b" * 200])
def test_a_long_name_is_cut_and_stays_unique(name: str) -> None:
    """It is cut where a name may end."""
    shortened = short(name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", shortened)
    assert (shortened == name) == (len(name) == 52)
    assert len(shortened) <= 52
    assert short(name + "x") != shortened


@pytest.mark.parametrize(
    ("name", "number"), [("train-0", 0), ("train-12", 12), ("train", 0), ("train-x", 0), ("train-٣", 0)]
)
def test_the_name_of_a_pod_has_the_number_of_its_attempt(name: str, number: int) -> None:
    """A name without a number counts as the first attempt. The owner follows from the whole name in any case."""
    made = Attempt(PodRef("default", name, "uid"), "train", "uid-1")

    assert (made.number, made.key) == (number, "default/train")


def test_the_key_of_a_workload_has_namespace_and_name() -> None:
    """The keys of its pods are equal to it."""
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), 0)

    assert made.key == "default/train"
