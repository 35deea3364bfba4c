"""What a node has for all pods of one kind: found once, and told from what would be found anew."""

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
from gpu_scheduler.core.strategies.equivalence import equivalence_class_of
from gpu_scheduler.core.strategies.node_fit import FilterFailure, NodeFilter
from tests.core import by_hand
from tests.core.asking import World, asking, having, words
from tests.core.build import bound, running
from tests.core.test_candidates import pod_of, some_ask, some_node

HOLDERS = st.lists(st.tuples(st.integers(0, 3), some_ask()), max_size=4)


def scale_of(world: World, pod: Pod) -> NodeFilter:
    """One that has seen nothing yet."""
    kind = equivalence_class_of(pod, pod.request.count, Strategy.LEAST_UTILIZED).kind
    return NodeFilter(kind, pod, world.ledger, world.cluster.policy)


def bind(world: World, where: str, holders: Sequence[tuple[int, by_hand.Ask]]) -> None:
    """Pods that a strategy has put there."""
    for number, (card, ask) in enumerate(holders):
        pod = pod_of(ask, f"holder-{number}")
        world.ledger.apply(bound(pod, Placement(where, (str(card),), None), ""))


@given(some_node(), HOLDERS, some_ask(), st.sampled_from(Sharing))
def test_whose_cards_are_theirs_alone_need_no_look_at_holders(
    node: Node, holders: list[tuple[int, by_hand.Ask]], ask: by_hand.Ask, sharing: Sharing
) -> None:
    """Taking the held cards out of those that an empty node would have is asking each holder whether it shares."""
    world = World(node, policy=Policy(sharing=sharing))
    bind(world, node.name, holders)
    short, long = scale_of(world, pod_of(ask, "a")), scale_of(world, pod_of(ask, "a"))
    long.alone = False

    assert short.weigh(node) == long.weigh(node)


@given(some_node(), HOLDERS, some_ask())
def test_the_bar_is_the_first_obstacle(node: Node, holders: list[tuple[int, by_hand.Ask]], ask: by_hand.Ask) -> None:
    """The word that decides is the one of the sentence that is told."""
    world = World(node)
    bind(world, node.name, holders)
    scale = scale_of(world, pod_of(ask, "a"))
    obstacle = scale.bar(node)

    assert scale.weigh(node).bar == (None if obstacle is None else obstacle.reason)


def test_a_node_is_weighed_once_until_something_changes_there() -> None:
    """Whatever happens elsewhere is no reason to look again."""
    node, other = having("node1", 8000), having("node2", 8000)
    world = World(node, other)
    scale = scale_of(world, asking())
    holder = running("holder", "node1", None, annotations=words(assigned_devices=0))
    found = [scale.weigh(node)]

    def changed(now: Node = node) -> bool:
        found.append(scale.weigh(now))
        return found[-1] is not found[-2]

    world.ledger.apply_foreign_pod(ForeignPod(PodRef("other", "a", "a"), "node2", ResourceRequest({"cpu": 1})))
    assert not changed()
    world.ledger.apply(holder)
    assert changed()
    assert found[-1] == found[0]._replace(cards=(), left=0, free=0, whole=0, busy=1000)
    world.end(holder)
    assert changed()
    assert found[-1] == found[0]
    busier = replace(node, unschedulable=True)
    world.show(busier)
    assert changed(busier)
    assert not changed(busier)


def test_all_numbers_of_cards_have_one_answer() -> None:
    """Only what is too many depends on the number."""
    world = World(having("node1", 8000, 8000, 4000))
    scale = scale_of(world, asking(memory=5000))
    fit = scale.weigh(next(iter(world.nodes)))

    assert [scale.lack(fit, number) for number in (1, 2, 3, 4)] == [
        None,
        None,
        FilterFailure(Reason.INSUFFICIENT_GPU_MEMORY, 4000),
        FilterFailure(Reason.GPU_NOT_FOUND, 3),
    ]


def test_shapes_that_differ_in_the_number_have_one_scale() -> None:
    """With a limit or without one; another kind of pod has another, and none outlives its lists."""
    world = World(having("node1", 8000, 8000))
    candidates = world.cluster.candidates
    for number in (1, 2):
        limit = {"gpu_limits": (("main", number),), "resource_request": ResourceRequest({"nvidia.com/gpu": number})}
        world.decide(asking(number))
        world.decide(asking(number, others=limit))

    assert len(candidates._rankings) == 4
    assert len(candidates._scales) == 2


def test_nodes_that_are_gone_are_forgotten() -> None:
    """Whoever saw them last."""
    world = World(*(having(f"node{number}") for number in range(9)))
    world.decide(asking())
    scale = next(iter(world.cluster.candidates._scales.values()))
    assert len(scale._known) == 9
    world.hide("node1")
    world.decide(asking())
    assert len(scale._known) == 8
    world.hide("node2")
    world.decide(asking(2))

    assert len(scale._known) == 7
