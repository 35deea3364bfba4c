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
    "the same taint": (Toleration("dedicated", "Equal", "ml", "NoSchedule"), True),
    "any effect of the taint": (Toleration("dedicated", "Equal", "ml", ""), True),
    "any value of the taint": (Toleration("dedicated", "Exists", "", "NoSchedule"), True),
    "every taint": (Toleration("", "Exists", "", ""), True),
    "another value": (Toleration("dedicated", "Equal", "web", "NoSchedule"), False),
    "another key": (Toleration("special", "Exists", "", "NoSchedule"), False),
    "another effect": (Toleration("dedicated", "Exists", "", "NoExecute"), False),
    "an unknown operator": (Toleration("dedicated", "Gt", "ml", "NoSchedule"), False),
}


@pytest.mark.parametrize(("toleration", "tolerated"), TOLERATED.values(), ids=TOLERATED)
def test_a_toleration_matches_a_taint(toleration: Toleration, tolerated: bool) -> None:  # noqa: FBT001 - a table's column
    """Tolerations match taints as in Kubernetes."""
    assert tolerated is SchedulingConstraints(tolerations=(toleration,)).tolerates(ML)


def test_one_toleration_is_enough() -> None:
    """A pod without tolerations tolerates no taint."""
    others = Toleration("other", "Exists", "", ""), Toleration("dedicated", "Exists", "", "")

    assert SchedulingConstraints(tolerations=others).tolerates(ML)
    assert not SchedulingConstraints().tolerates(ML)


LABELS = {"zone": "a", "gpus": "8", "size": "-3", "empty": "", "huge": "9223372036854775808"}


MATCHES = {
    "all expressions hold": (
        NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"), NodeSelectorRequirement("gpus", "Gt", ("1",)))),
        True,
    ),
    "one expression does not hold": (
        NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"), NodeSelectorRequirement("rack", "Exists"))),
        False,
    ),
    "the node's name": (NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)), True),
    "another node's name": (
        NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "NotIn", ("node1",)),)),
        False,
    ),
    "labels match and the name does not": (
        NodeSelectorTerm(
            (NodeSelectorRequirement("zone", "Exists"),), (NodeSelectorRequirement("metadata.name", "In", ("node2",)),)
        ),
        False,
    ),
    "an empty term matches no node": (NodeSelectorTerm(), False),
    "a label that is no number": (NodeSelectorTerm((NodeSelectorRequirement("zone", "Gt", ("1",)),)), False),
    "an unknown operator": (NodeSelectorTerm((NodeSelectorRequirement("zone", "Near", ("a",)),)), False),
}


@pytest.mark.parametrize(("term", "matches"), MATCHES.values(), ids=MATCHES)
def test_a_term_matches_a_node(term: NodeSelectorTerm, matches: bool) -> None:  # noqa: FBT001 - a table's column
    """A term matches a node when all its requirements hold."""
    assert matches is term.matches(LABELS, "node1")


TEXTS = {
    "a taint": (ML, "dedicated=ml:NoSchedule"),
    "a taint without a value": (Taint("broken", "", "NoExecute"), "broken:NoExecute"),
    "a requirement": (NodeSelectorRequirement("zone", "In", ("a", "b")), "zone In a, b"),
    "a requirement without values": (NodeSelectorRequirement("zone", "Exists"), "zone Exists"),
}


@pytest.mark.parametrize(("value", "text"), TEXTS.values(), ids=TEXTS)
def test_taints_and_requirements_have_a_text(value: object, text: str) -> None:
    """Messages quote the text."""
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
    """For any labels and values, the result is the same as of a second implementation of the rules."""
    assert _naive(labels, requirement) is requirement.holds(labels)


def _naive(labels: Mapping[str, str], requirement: NodeSelectorRequirement) -> bool:
    exists, values = requirement.key in labels, list(requirement.values)
    label = labels.get(requirement.key, "")
    answers = {
        "In": exists and label in values,
        "NotIn": len(values) > 0 and not (exists and label in values),
        "Exists": exists,
        "DoesNotExist": not exists,
        "Gt": exists and _numbers(label, *values) and int(label) > int(values[0]),
        "Lt": exists and _numbers(label, *values) and int(label) < int(values[0]),
    }
    return answers.get(requirement.operator, False)


def _numbers(*texts: str) -> bool:
    digits = [text[1:] if text[:1] in {"+", "-"} else text for text in texts]
    return len(texts) == 2 and all(text.isascii() and text.isdigit() and len(text) < 19 for text in digits)
