import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, annotations_of, pod_name, short
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import PodRef
from tests.core.build import pod

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
def test_what_is_asked_for_is_what_the_scheduler_reads(request: CountRequest) -> None:
    """A workload's request, written on a pod and read from it, is the same request."""
    assert pod("train-0", None, annotations=annotations_of(request)).request == PlacementRequest(count=request)


def test_only_what_is_asked_for_is_written() -> None:
    """The count always, so that the pod is one of ours; the rest where it is not as it would be anyway."""
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
    """Whatever Kubernetes allows as an object's name; two long ones stay apart, a short one stays as it is."""
    shortened = short(name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", shortened)
    assert len(pod_name(name, 10)) <= 63
    assert shortened == name or len(name) > 52
    assert shortened == name or short(name + "x") != shortened


@pytest.mark.parametrize("name", ["a" * 52, "a" * 53, "a" * 43 + ".b" * 105, "a" * 42 + "-." + "b" * 200])
def test_a_long_name_is_cut_and_told_apart(name: str) -> None:
    """At a place where a name may end."""
    shortened = short(name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", shortened)
    assert (shortened == name) == (len(name) == 52)
    assert len(shortened) <= 52
    assert short(name + "x") != shortened


@pytest.mark.parametrize(
    ("name", "number"),
    [("train-0", 0), ("train-12", 12), ("train", 0), ("train-x", 0), ("train-٣", 0)],
)
def test_the_number_of_a_try_stands_in_its_pod_s_name(name: str, number: int) -> None:
    """A name without one counts as the first: what is whose is told by the whole name anyway."""
    made = Attempt(PodRef("default", name, "uid"), "train", "uid-1")

    assert (made.number, made.key) == (number, "default/train")


def test_a_workload_s_key() -> None:
    """Namespace and name, as its pods' keys."""
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), 0)

    assert made.key == "default/train"
