"""What nodes lack, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.strategies.diagnosis import Diagnosis, FailureCount, NodeNumbers
from gpu_scheduler.core.strategies.node_fit import FilterFailure

NAMES = st.sampled_from("abcde")
LACKS = st.builds(
    FilterFailure,
    st.sampled_from([Reason.GPU_NOT_FOUND, Reason.NOT_ENOUGH_GPUS, Reason.GPU_UNHEALTHY]),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(NAMES, st.none() | LACKS), max_size=40))
def test_a_tally_is_what_was_said_last_of_each(events: list[tuple[str, FilterFailure | None]]) -> None:
    """How many lack it, the most that one of them has, and one that has the most."""
    tally, model = Diagnosis(NodeNumbers()), dict[str, FilterFailure | None]()
    for name, lack in events:
        tally.put(name, lack)
        model[name] = lack
    lacks = {name: lack for name, lack in model.items() if lack is not None}
    for reason in Reason:
        same = {name: lack.offer for name, lack in lacks.items() if lack.reason is reason}
        count = tally.count(reason)
        assert (count.nodes, count.offer) == (len(same), max(same.values(), default=0))
        assert same.get(count.node, 0) == count.offer
        assert count.node in same or not same

    order = [Reason.GPU_UNHEALTHY, Reason.NOT_ENOUGH_GPUS, Reason.GPU_NOT_FOUND]
    assert tally.leading() is min((lack.reason for lack in lacks.values()), key=order.index, default=order[-1])


def test_a_tally_costs_a_few_bytes_a_node() -> None:
    """However many different lacks there were, only those that there are have a code."""
    places = NodeNumbers()
    tally, other = Diagnosis(places), Diagnosis(places)
    for offer in range(1000):
        tally.put("a", FilterFailure(Reason.NOT_ENOUGH_GPUS, offer))
    other.put("b", FilterFailure(Reason.GPU_NOT_FOUND))

    assert tally.count(Reason.NOT_ENOUGH_GPUS) == FailureCount(1, 999, "a")
    assert len(tally._lacks) == 2
    assert len(places) == 2
    assert (places.name(0), other.count(Reason.GPU_NOT_FOUND).node) == ("a", "b")
