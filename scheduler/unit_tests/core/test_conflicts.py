from dataclasses import replace

from gpu_scheduler.core.policy import Policy, Sharing
from unit_tests.core.build import ledger, own, pod, running


def test_a_conflict_names_both_pods() -> None:
    """If the API server shows one GPU held twice against the rules, both holders are named in a stable order."""
    second = running("b-0", "node4", "0=node4:3", owner=None, containers=own("3"))
    first = running("a-0", "node4", "0=node4:1,3", owner=None, containers=own("1,3"))
    (conflict,) = ledger(second, first).conflicts()

    assert (
        conflict.node,
        conflict.device,
        str(conflict.first.ref),
        str(conflict.second.ref),
    ) == ("node4", "3", "default/a-0", "default/b-0")


def test_pods_that_may_share_have_no_conflict() -> None:
    """Two lines of one map name the same GPU."""
    assert ledger(running("train-3", "node4"), running("train-4", "node4")).conflicts() == ()


def test_a_conflict_ends_with_either_pod() -> None:
    """A deleted pod leaves no conflict."""
    held = ledger(
        running("a-0", "node4", "0=node4:3", owner=None),
        running("b-0", "node4", "0=node4:3\n9=a:0", owner=None),
    )
    before = len(held.conflicts())
    held.forget("uid-of-default/a-0")

    assert (before, held.conflicts()) == (1, ())


def test_a_conflict_of_three_pods_stays_when_one_is_deleted() -> None:
    """The other two pods are still in conflict."""
    held = ledger(*(running(f"{name}-0", "node4", f"0=node4:3\n{number}=a:0") for number, name in enumerate("abc", 1)))
    before = len(held.conflicts())
    held.forget("uid-of-default/b-0")

    assert [before, len(held.conflicts())] == [3, 1]


def test_two_pods_with_one_index_are_in_conflict() -> None:
    """Only two different lines share a GPU; two pods with one line have a conflict."""
    twice = pod("train-a", annotations={"agentaflow.gpu/index": "3"})

    assert len(ledger(running("train-3", "node4"), replace(twice, node="node4")).conflicts()) == 1


def test_conflicts_follow_the_policy() -> None:
    """Sharing that the policy allows is no conflict."""
    two_workloads = running("a-0", "node4", containers=own("3")), running("b-1", "node4", containers=own("3"))

    assert [
        len(ledger(*two_workloads, policy=Policy(sharing=sharing)).conflicts())
        for sharing in (Sharing.ANY, Sharing.SAME_WORKLOAD, Sharing.NONE)
    ] == [0, 1, 1]
