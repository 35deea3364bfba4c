from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.constraints import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
)

ML = Taint("dedicated", "ml", "NoSchedule")

TOLERATED = {
    "the very taint": (Toleration("dedicated", "Equal", "ml", "NoSchedule"), True),
    "any effect of it": (Toleration("dedicated", "Equal", "ml", ""), True),
    "any value of it": (Toleration("dedicated", "Exists", "", "NoSchedule"), True),
    "every taint there is": (Toleration("", "Exists", "", ""), True),
    "another value": (Toleration("dedicated", "Equal", "web", "NoSchedule"), False),
    "another key": (Toleration("special", "Exists", "", "NoSchedule"), False),
    "another effect": (Toleration("dedicated", "Exists", "", "NoExecute"), False),
    "an operator that we do not know": (Toleration("dedicated", "Gt", "ml", "NoSchedule"), False),
}


@pytest.mark.parametrize(("toleration", "tolerated"), TOLERATED.values(), ids=TOLERATED)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:  # noqa: FBT001 - a table's column
    """A taint is tolerated as Kubernetes has it."""
    assert tolerated is SchedulingConstraints(tolerations=(toleration,)).tolerates(ML)


def test_one_toleration_is_enough() -> None:
    """And without any nothing is tolerated."""
    others = Toleration("other", "Exists", "", ""), Toleration("dedicated", "Exists", "", "")

    assert SchedulingConstraints(tolerations=others).tolerates(ML)
    assert not SchedulingConstraints().tolerates(ML)


LABELS = {"zone": "a", "gpus": "8", "size": "-3", "empty": "", "huge": "9223372036854775808"}

HOLDS = {
    "the label has one of the values": (NodeSelectorRequirement("zone", "In", ("b", "a")), True),
    "the label has none of the values": (NodeSelectorRequirement("zone", "In", ("b",)), False),
    "a missing label is in nothing": (NodeSelectorRequirement("rack", "In", ("a",)), False),
    "nothing is in no values": (NodeSelectorRequirement("zone", "In"), False),
    "an empty value is a value": (NodeSelectorRequirement("empty", "In", ("",)), True),
    "a label that avoids the values": (NodeSelectorRequirement("zone", "NotIn", ("b", "c")), True),
    "a label that does not avoid them": (NodeSelectorRequirement("zone", "NotIn", ("a",)), False),
    "a missing label avoids every value": (NodeSelectorRequirement("rack", "NotIn", ("a",)), True),
    "to avoid no values at all is no valid wish": (NodeSelectorRequirement("zone", "NotIn"), False),
    "a label exists": (NodeSelectorRequirement("empty", "Exists"), True),
    "a missing label does not exist": (NodeSelectorRequirement("rack", "Exists"), False),
    "a missing label is wished away": (NodeSelectorRequirement("rack", "DoesNotExist"), True),
    "a label that is there is not away": (NodeSelectorRequirement("empty", "DoesNotExist"), False),
    "more than seven": (NodeSelectorRequirement("gpus", "Gt", ("7",)), True),
    "more than eight": (NodeSelectorRequirement("gpus", "Gt", ("8",)), False),
    "less than nine": (NodeSelectorRequirement("gpus", "Lt", ("9",)), True),
    "less than eight": (NodeSelectorRequirement("gpus", "Lt", ("8",)), False),
    "a number with a sign": (NodeSelectorRequirement("size", "Lt", ("-2",)), True),
    "a word is not more than a number": (NodeSelectorRequirement("zone", "Gt", ("1",)), False),
    "a number is not less than a word": (NodeSelectorRequirement("gpus", "Lt", ("many",)), False),
    "a missing label is not more than a number": (NodeSelectorRequirement("rack", "Gt", ("1",)), False),
    "a number is compared with one number only": (NodeSelectorRequirement("gpus", "Gt", ("1", "2")), False),
    "what has more than 64 bits is no number": (NodeSelectorRequirement("huge", "Gt", ("1",)), False),
    "an operator that we do not know": (NodeSelectorRequirement("zone", "Matches", ("a",)), False),
}


@pytest.mark.parametrize(("requirement", "holds"), HOLDS.values(), ids=HOLDS)
def test_requirements(requirement: NodeSelectorRequirement, holds: bool) -> None:  # noqa: FBT001 - a table's column
    """Each operator means what it means to kube-scheduler; what it would refuse never holds."""
    assert holds is requirement.holds(LABELS)


MATCHES = {
    "all expressions hold": (
        NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"), NodeSelectorRequirement("gpus", "Gt", ("1",)))),
        True,
    ),
    "one expression does not": (
        NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"), NodeSelectorRequirement("rack", "Exists"))),
        False,
    ),
    "the node's name": (NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)), True),
    "another node's name": (
        NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "NotIn", ("node1",)),)),
        False,
    ),
    "labels and name both count": (
        NodeSelectorTerm(
            (NodeSelectorRequirement("zone", "Exists"),), (NodeSelectorRequirement("metadata.name", "In", ("node2",)),)
        ),
        False,
    ),
    "a term that says nothing matches nothing": (NodeSelectorTerm(), False),
}


@pytest.mark.parametrize(("term", "matches"), MATCHES.values(), ids=MATCHES)
def test_terms(term: NodeSelectorTerm, matches: bool) -> None:  # noqa: FBT001 - a table's column
    """A term matches a node when all that it says does."""
    assert matches is term.matches(LABELS, "node1")


WORDS = {
    "a taint": (ML, "dedicated=ml:NoSchedule"),
    "a taint without a value": (Taint("broken", "", "NoExecute"), "broken:NoExecute"),
    "a requirement": (NodeSelectorRequirement("zone", "In", ("a", "b")), "zone In a, b"),
    "a requirement without values": (NodeSelectorRequirement("zone", "Exists"), "zone Exists"),
}


@pytest.mark.parametrize(("value", "text"), WORDS.values(), ids=WORDS)
def test_they_read_as_people_write_them(value: object, text: str) -> None:
    """Messages quote them."""
    assert text == str(value)


OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "Near"]
VALUES = st.sampled_from(["", "a", "b", "0", "1", "+2", "-1", "٣", "1_0", "9" * 64, "1.5"])


@given(
    st.dictionaries(st.sampled_from("xyz"), VALUES),
    st.builds(
        NodeSelectorRequirement,
        st.sampled_from("xyz"),
        st.sampled_from(OPERATORS),
        st.lists(VALUES, max_size=3).map(tuple),
    ),
)
def test_requirements_agree_with_a_naive_model(labels: Mapping[str, str], requirement: NodeSelectorRequirement) -> None:
    """Whatever labels and values are, the answer is yes or no, and the same as of the rules written down once more."""
    assert _naive(labels, requirement) is requirement.holds(labels)


def _naive(labels: Mapping[str, str], requirement: NodeSelectorRequirement) -> bool:
    there, values = requirement.key in labels, list(requirement.values)
    label = labels.get(requirement.key, "")
    answers = {
        "In": there and label in values,
        "NotIn": len(values) > 0 and not (there and label in values),
        "Exists": there,
        "DoesNotExist": not there,
        "Gt": there and _numbers(label, *values) and int(label) > int(values[0]),
        "Lt": there and _numbers(label, *values) and int(label) < int(values[0]),
    }
    return answers.get(requirement.operator, False)


def _numbers(*texts: str) -> bool:
    digits = [text[1:] if text[:1] in {"+", "-"} else text for text in texts]
    return len(texts) == 2 and all(text.isascii() and text.isdigit() and len(text) < 19 for text in digits)
