"""DeviceFilter and NodeFilter find something once for all pods that need the same, and again after a change."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.strategies.device_fit import DeviceFilter
from gpu_scheduler.core.strategies.equivalence import equivalence_class_of
from gpu_scheduler.core.strategies.filter_failure import FilterFailure
from gpu_scheduler.core.strategies.node_fit import NodeFilter
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import bound, limit, running
from unit_tests.core.naive_placement import PodRequest
from unit_tests.core.test_candidates import pod_of, some_node, some_request

Holders = Sequence[tuple[int, PodRequest]]
HOLDERS = st.lists(st.tuples(st.integers(0, 3), some_request()), max_size=4)


def filter_of(state: ClusterState, pod: Pod) -> DeviceFilter:
    """Return the pod's filter of devices, with an empty cache."""
    requirements = equivalence_class_of(pod, pod.request.count, Strategy.LEAST_UTILIZED).of_devices
    return DeviceFilter(requirements, pod, state.ledger, state.cluster.policy)


def bind(state: ClusterState, where: str, holders: Holders) -> None:
    """Apply pods that a strategy placed on these devices of the node."""
    for number, (device, pod_request) in enumerate(holders):
        pod = pod_of(pod_request, f"holder-{number}")
        state.ledger.apply(bound(pod, Placement(where, (str(device),), None), ""))


@given(some_node(), HOLDERS, some_request(), st.sampled_from(Sharing))
def test_an_exclusive_pod_needs_no_check_of_holders(
    node: Node, holders: Holders, pod_request: PodRequest, sharing: Sharing
) -> None:
    """For an exclusive pod the fit is the same, whether the holders of each device are checked or not."""
    state = ClusterState(node, policy=Policy(sharing=sharing))
    bind(state, node.name, holders)
    without_check, with_check = filter_of(state, pod_of(pod_request, "a")), filter_of(state, pod_of(pod_request, "a"))
    with_check.exclusive = False

    assert without_check.fit(node) == with_check.fit(node)


@given(some_node(), HOLDERS, some_request())
def test_the_failure_has_the_first_reason(node: Node, holders: Holders, pod_request: PodRequest) -> None:
    """The reason that is kept is that of the message."""
    state = ClusterState(node)
    bind(state, node.name, holders)
    node_filter = NodeFilter(pod_of(pod_request, "a"), state.ledger.used_resources)
    found = node_filter.unschedulable(node)

    failure = node_filter.failure(node)

    assert (failure and failure.ranked_reason) == (found and found.ranked_reason)


def test_a_fit_is_kept_until_its_node_changes() -> None:
    """Changes of other nodes do not matter."""
    node, other = having("node1", 8000), having("node2", 8000)
    state = ClusterState(node, other)
    device_filter = filter_of(state, asking())
    holder = running("holder", "node1", None, annotations=words(assigned_devices=0))
    found = [device_filter.fit(node)]

    def changed(now: Node = node) -> bool:
        found.append(device_filter.fit(now))
        return found[-1] is not found[-2]

    state.ledger.apply_foreign_pod(ForeignPod(PodRef("other", "a", "a"), "node2", ResourceRequest({"cpu": 1})))
    assert not changed()
    state.ledger.apply(holder)
    assert changed()
    assert found[-1] == found[0]._replace(
        devices=(), available=0, available_if_healthy=0, available_if_uncordoned=0, unheld=0, busy=1000
    )
    state.end(holder)
    assert changed()
    assert found[-1] == found[0]
    cordoned = replace(node, unschedulable=True)
    state.apply_nodes(cordoned)
    assert changed(cordoned)
    assert not changed(cordoned)


def test_one_fit_serves_all_numbers_of_devices() -> None:
    """Only the failure depends on the number."""
    state = ClusterState(having("node1", 8000, 8000, 4000))
    device_filter = filter_of(state, asking(memory=5000))
    fit = device_filter.fit(next(iter(state.nodes)))

    assert [device_filter.failure(fit, number) for number in (1, 2, 3, 4)] == [
        None,
        None,
        FilterFailure(Reason.INSUFFICIENT_GPU_MEMORY, 4000),
        FilterFailure(Reason.GPU_NOT_FOUND, 3),
    ]


def test_equivalence_classes_share_what_they_need_alike() -> None:
    """Those that differ in the count share both filters; a limit needs other devices, a request another node."""
    state = ClusterState(having("node1", 8000, 8000, allocatable={"cpu": 8000}))
    candidates = state.cluster.candidates
    for number in (1, 2):
        state.decide(asking(number))
        state.decide(asking(number, others=limit(number)))
        state.decide(asking(number, others={"resource_request": ResourceRequest({"cpu": 1000})}))

    assert len(candidates._rankings) == 6
    assert len(candidates._device_filters) == 2
    assert len(candidates._node_filters) == 2


def test_deleted_nodes_are_forgotten() -> None:
    """The filters forget them at their next use, for any number of devices."""
    state = ClusterState(*(having(f"node{number}") for number in range(9)))
    state.decide(asking())
    (device_filter,), (node_filter,) = (
        state.cluster.candidates._device_filters.values(),
        state.cluster.candidates._node_filters.values(),
    )

    def kept() -> tuple[int, int]:
        return len(device_filter._fits), len(node_filter._nodes)

    assert kept() == (9, 9)
    state.forget_node("node1")
    state.decide(asking())
    assert kept() == (8, 8)
    state.forget_node("node2")
    state.decide(asking(2))

    assert kept() == (7, 7)
