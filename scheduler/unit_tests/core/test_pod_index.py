import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.pod_index import static_index
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.reasons import Fault, Reason
from gpu_scheduler.core.refs import Owner

INDEX = "agentaflow.gpu/index"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETION = "batch.kubernetes.io/job-completion-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"

SET = Owner("StatefulSet", "web")
REPLICAS = Owner("ReplicaSet", "web-5d9f7c")
JOB = Owner("Job", "web")
POD_NAME = "statefulset.kubernetes.io/pod-name"
HASH = "pod-template-hash"


def pod(
    name: str,
    generate_name: str | None = None,
    owner: Owner | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> PodText:
    return PodText("default", name, generate_name, owner, annotations=annotations or {}, labels=labels or {})


INDICES = {
    "the annotation gives it": (pod("web", annotations={INDEX: "4"}), 4),
    "the annotation wins over label and name": (pod("web-1", annotations={INDEX: "4"}, labels={POD_INDEX: "2"}), 4),
    "a StatefulSet's label gives it": (pod("web-1", "web-", SET, labels={POD_INDEX: "2"}), 2),
    "a StatefulSet's label wins over a Job's": (pod("web", labels={COMPLETION: "3", POD_INDEX: "2"}), 2),
    "an Indexed Job's label gives it": (pod("web-3-x7k2q", "web-3-", JOB, labels={COMPLETION: "3"}), 3),
    "an Indexed Job's annotation gives it": (pod("web-3-x7k2q", "web-3-", JOB, annotations={COMPLETION: "3"}), 3),
    "an Indexed Job's label wins over its annotation": (
        pod("w", annotations={COMPLETION: "9"}, labels={COMPLETION: "3"}),
        3,
    ),
    "a given name gives it": (pod("web-7"), 7),
    "the last part of a given name gives it": (pod("web-abc123-0"), 0),
    "a given name without a number gives none": (pod("web"), None),
    "a given name that is a number but has no dash gives none": (pod("7"), None),
    "digits with a leading zero are no index": (pod("web-007"), None),
    "a date is no index, because ordinals have 32 bits": (pod("web-20261121013000"), None),
    "digits that follow a letter are no index": (pod("web-a7"), None),
    "digits of other alphabets are no index": (pod("web-\u0667"), None),
    "a StatefulSet that starts at 5 has labels that start at 5": (
        pod("web-5", "web-", SET, labels={POD_INDEX: "5", POD_NAME: "web-5"}),
        5,
    ),
    "a StatefulSet that starts at 5, before there were labels": (pod("web-5", "web-", SET), 5),
    "a StatefulSet's name may end in a number of its own": (pod("web-2-0", "web-2-", SET), 0),
    "an Indexed Job's pod without label and annotation has a generated name": (pod("web-3-x7k2q", "web-3-", JOB), None),
    "a Job's pod takes any line": (pod("web-x7k2q", "web-", JOB), None),
    "a Deployment's pod takes any line": (
        pod("web-5d9f7c-x7k2q", "web-5d9f7c-", REPLICAS, labels={HASH: "5d9f7c"}),
        None,
    ),
    "a Deployment's pod takes any line even with a hash and a suffix of digits only": (
        pod("web-2456789-24567", "web-2456789-", Owner("ReplicaSet", "web-2456789"), labels={HASH: "2456789"}),
        None,
    ),
    "a Deployment's pod may have an index written by its author": (
        pod("web-5d9f7c-x7k2q", "web-5d9f7c-", REPLICAS, annotations={INDEX: "2"}),
        2,
    ),
    "a bare pod of two digits in its name was given that name": (pod("test-12"), 12),
    "a generateName without a dash at its end": (pod("web-224567", "web-2"), None),
    "an empty generateName is none": (pod("web-24567", ""), 24567),
    "a pod of another set's kind has the index of its name": (pod("web-24567", "web-", Owner("CloneSet", "web")), None),
    "a StatefulSet's pod has generateName, and a given name all the same": (pod("web-3", "web-", SET), 3),
    "a StatefulSet's ordinal may look like a suffix": (pod("web-24567", "web-", SET), 24567),
    "a generated suffix of digits only is no index": (pod("web-5d9f7c-24567", "web-5d9f7c-", REPLICAS), None),
    "a generated name without an owner is no index": (pod("web-24567", "web-"), None),
    "five digits outside the suffix alphabet were given": (pod("web-10345", "web-"), 10345),
    "a name that does not begin with generateName was given": (pod("abc-24567", "web-"), 24567),
    "a prefix of 58 leaves room for the suffix": (pod("a" * 57 + "-24567", "a" * 57 + "-"), None),
    "a longer prefix is cut to 58 by the API server": (pod("a" * 57 + "-24567", "a" * 57 + "-bcdfg-"), None),
    "a Deployment's long name is cut to 58, and digits of it stay no index": (
        pod("a" * 55 + "-24" + "56789", "a" * 55 + "-2456789-", REPLICAS),
        None,
    ),
    "at admission a generated name is still empty": (pod("", "web-5d9f7c-", REPLICAS), None),
    "at admission a generated name may have an annotation": (pod("", "web-", REPLICAS, annotations={INDEX: "1"}), 1),
    "an Indexed Job's pod at admission has its label": (pod("", "web-3-", JOB, labels={COMPLETION: "3"}), 3),
    "a Kubeflow replica's name is no index": (pod("job-worker-1", labels={REPLICA_TYPE: "worker"}), None),
    "a Kubeflow replica's labels are no index": (pod("j", labels={REPLICA_TYPE: "worker", COMPLETION: "1"}), None),
    "an empty replica type is one": (pod("j-1", labels={REPLICA_TYPE: ""}), None),
    "a Kubeflow replica's annotation is": (pod("j-1", annotations={INDEX: "3"}, labels={REPLICA_TYPE: "worker"}), 3),
}


@pytest.mark.promise("index-5", "job-4", "index-1", "index-2", "index-3", "index-4", "index-20")
@pytest.mark.parametrize(("given", "expected"), INDICES.values(), ids=INDICES)
def test_index(given: PodText, expected: int | None) -> None:
    """The first source that applies gives the index; a generated name gives none."""
    assert expected == static_index(given)


UNKNOWN = {
    "an annotation that is a word": (pod("web-1", annotations={INDEX: "one"}), f'annotation {INDEX}: "one"'),
    "an empty annotation": (pod("web-1", annotations={INDEX: ""}), f'annotation {INDEX}: ""'),
    "an annotation with a leading zero": (pod("web-1", annotations={INDEX: "01"}), f'annotation {INDEX}: "01"'),
    "an annotation with spaces": (pod("web-1", annotations={INDEX: " 1"}), f'annotation {INDEX}: " 1"'),
    "an annotation in other digits than ASCII": (pod("web-1", annotations={INDEX: "\u0661"}), "\u0661"),
    "an annotation of hostile length": (pod("web-1", annotations={INDEX: "9" * 9000}), "…"),
    "a label that is a word": (pod("web-1", labels={POD_INDEX: "x"}), f'label {POD_INDEX}: "x"'),
    "a Kubeflow replica's annotation that is a word": (
        pod("j", annotations={INDEX: "x"}, labels={REPLICA_TYPE: "worker"}),
        f'annotation {INDEX}: "x"',
    ),
    "an empty label": (pod("web-1", labels={POD_INDEX: ""}), f'label {POD_INDEX}: ""'),
    "a number beyond 32 bits": (pod("web-1", labels={POD_INDEX: "2147483648"}), f'label {POD_INDEX}: "2147483648"'),
    "a Job's label that is a word": (pod("w", labels={COMPLETION: "x"}), f'label {COMPLETION}: "x"'),
    "a Job's annotation that is a word": (pod("w", annotations={COMPLETION: "x"}), f'annotation {COMPLETION}: "x"'),
}


@pytest.mark.parametrize(("given", "part"), UNKNOWN.values(), ids=UNKNOWN)
def test_index_unknown(given: PodText, part: str) -> None:
    """A malformed index is refused with its source; later sources do not count."""
    fault = static_index(given)

    assert isinstance(fault, Fault)
    assert fault.reason is Reason.INDEX_UNKNOWN
    assert part in fault.message


SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
TEXTS = st.sampled_from(
    ["0", "7", "24567", "2147483647", "2147483648", "", "x", "-1", "007", "+1", "1_0", "\u0667", "1 "]
)
OWNERS = st.sampled_from([None, SET, REPLICAS, JOB, Owner("CloneSet", "web")])
STEMS = st.sampled_from(["web-", "web", "web-5d9f7c-", "a" * 57 + "-", "a" * 58 + "-", "a" * 56 + "-2456-", "-", ""])
TAILS = st.one_of(TEXTS, st.text(SUFFIX, min_size=5, max_size=5), st.text("0123456789a-", max_size=7))


@st.composite
def pods(draw: st.DrawFn) -> PodText:
    """Draw pods with names of controllers, authors and the API server, and with names that none of them gives."""
    prefix = draw(st.one_of(st.none(), STEMS))
    name = draw(st.one_of(st.just(""), st.builds("{}{}".format, st.just((prefix or "web-")[:58]), TAILS), STEMS))
    given_labels = draw(st.dictionaries(st.sampled_from([POD_INDEX, COMPLETION, REPLICA_TYPE, HASH]), TEXTS))
    annotations = draw(st.dictionaries(st.sampled_from([INDEX, COMPLETION]), TEXTS))
    return pod(name, prefix, draw(OWNERS), annotations, given_labels)


def model(of: PodText) -> int | str | None:
    """Return the index by a second, plain implementation of its rules; a text is a malformed index."""
    kubeflow = REPLICA_TYPE in of.labels
    written = [of.annotations.get(INDEX)]
    if not kubeflow:
        written += [of.labels.get(POD_INDEX), of.labels.get(COMPLETION), of.annotations.get(COMPLETION)]
    for text in written:
        if text is not None:
            number = number_in(text)
            return text if number is None else number
    name = of.name
    parts = name.split("-")
    if kubeflow or not name or len(parts) == 1 or is_generated(name, of):
        return None
    return number_in(parts[-1])


def number_in(text: str) -> int | None:
    if not text or any(character not in "0123456789" for character in text):
        return None
    return int(text) if str(int(text)) == text and int(text) < 2**31 else None


def is_generated(name: str, of: PodText) -> bool:
    if not of.generate_name or (of.owner is not None and of.owner.kind == "StatefulSet"):
        return False
    stem, suffix = name[:-5], name[-5:]
    return stem == of.generate_name[:58] and len(suffix) == 5 and all(each in SUFFIX for each in suffix)


@given(pods())
@example(pod("-24567", "-"))
@example(pod("2456", ""))
def test_every_pod_has_the_index_of_the_rules(given_pod: PodText) -> None:
    """The index of any pod is that of the second implementation."""
    index, expected = static_index(given_pod), model(given_pod)

    if isinstance(expected, str):
        assert isinstance(index, Fault)
        assert index.reason is Reason.INDEX_UNKNOWN
    else:
        assert expected == index
