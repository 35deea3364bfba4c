"""The diagnosis, with its counts of filter failures, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.strategies.diagnosis import Diagnosis, FailureCount
from gpu_scheduler.core.strategies.filter_failure import FilterFailure

NAMES = st.sampled_from("abcde")
FAILURES = st.builds(
    FilterFailure,
    st.sampled_from([Reason.GPU_NOT_FOUND, Reason.NOT_ENOUGH_GPUS, Reason.GPU_UNHEALTHY]),
    st.integers(0, 2),
    beyond=st.just(value=False),
)


@given(st.lists(st.tuples(NAMES, st.none() | FAILURES), max_size=40))
def test_a_diagnosis_counts_the_last_failure_of_each_node(events: list[tuple[str, FilterFailure | None]]) -> None:
    """A count has the number of nodes with a failure, the best offer among them, and a node of that offer."""
    diagnosis, model = Diagnosis(), dict[str, FilterFailure | None]()
    for name, failure in events:
        diagnosis.put(name, failure)
        model[name] = failure
    failures = {name: failure for name, failure in model.items() if failure is not None}
    for reason in Reason:
        same = {name: failure.offer for name, failure in failures.items() if failure.reason is reason}
        count = diagnosis.count((reason, False))
        assert (count.nodes, count.offer) == (len(same), max(same.values(), default=0))
        assert same.get(count.node, 0) == count.offer
        assert count.node in same or not same

    order = [Reason.NOT_ENOUGH_GPUS, Reason.GPU_UNHEALTHY, Reason.GPU_NOT_FOUND]
    closest = min((failure.reason for failure in failures.values()), key=order.index, default=order[-1])
    assert diagnosis.reason() == (closest, False)


def test_former_failures_are_not_kept() -> None:
    """A node has one failure, however many it had before; each diagnosis keeps its own."""
    diagnosis, other = Diagnosis(), Diagnosis()
    for offer in range(1000):
        diagnosis.put("a", FilterFailure(Reason.NOT_ENOUGH_GPUS, offer))
    other.put("b", FilterFailure(Reason.GPU_NOT_FOUND))

    assert diagnosis.count((Reason.NOT_ENOUGH_GPUS, False)) == FailureCount(1, 999, "a")
    assert len(diagnosis._nodes) == len(diagnosis._failures) == 1
    assert other.count((Reason.GPU_NOT_FOUND, False)).node == "b"
