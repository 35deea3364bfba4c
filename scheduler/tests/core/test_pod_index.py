import pytest

from gpu_scheduler.core.model import Owner, Pod, PodRef
from gpu_scheduler.core.pod_index import static_index
from gpu_scheduler.core.reasons import Obstacle, Reason

INDEX = "agentaflow.gpu/index"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETION = "batch.kubernetes.io/job-completion-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"

SET = Owner("StatefulSet", "web")
REPLICAS = Owner("ReplicaSet", "web-5d9f7c")
JOB = Owner("Job", "web")


def pod(
    name: str,
    generate_name: str | None = None,
    owner: Owner | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Pod:
    ref = PodRef("default", name, "")
    return Pod(ref, generate_name=generate_name, owner=owner, annotations=annotations or {}, labels=labels or {})


INDICES = {
    "the annotation says it": (pod("web", annotations={INDEX: "4"}), 4),
    "the annotation wins over label and name": (pod("web-1", annotations={INDEX: "4"}, labels={POD_INDEX: "2"}), 4),
    "a StatefulSet's label says it": (pod("web-1", "web-", SET, labels={POD_INDEX: "2"}), 2),
    "a StatefulSet's label wins over a Job's": (pod("web", labels={COMPLETION: "3", POD_INDEX: "2"}), 2),
    "an Indexed Job's label says it": (pod("web-3-x7k2q", "web-3-", JOB, labels={COMPLETION: "3"}), 3),
    "an Indexed Job's annotation says it": (pod("web-3-x7k2q", "web-3-", JOB, annotations={COMPLETION: "3"}), 3),
    "an Indexed Job's label wins over its annotation": (
        pod("w", annotations={COMPLETION: "9"}, labels={COMPLETION: "3"}),
        3,
    ),
    "a given name says it": (pod("web-7"), 7),
    "the last part of a given name says it": (pod("web-abc123-0"), 0),
    "a given name without a number says nothing": (pod("web"), None),
    "a given name that is a number but has no dash says nothing": (pod("7"), None),
    "digits with a leading zero are no index": (pod("web-007"), None),
    "a date is no index, because ordinals have 32 bits": (pod("web-20261121013000"), None),
    "digits that follow a letter are no index": (pod("web-a7"), None),
    "digits of other alphabets are no index": (pod("web-\u0667"), None),
    "a StatefulSet's pod has generateName, and a given name all the same": (pod("web-3", "web-", SET), 3),
    "a StatefulSet's ordinal may look like a suffix": (pod("web-24567", "web-", SET), 24567),
    "a generated suffix of digits only is no index": (pod("web-5d9f7c-24567", "web-5d9f7c-", REPLICAS), None),
    "a ReplicaSet hash of digits only is no index": (pod("web-24567-", "web-", REPLICAS), None),
    "a generated name without an owner is no index": (pod("web-24567", "web-"), None),
    "five digits outside the suffix alphabet were given": (pod("web-10345", "web-"), 10345),
    "one digit outside the suffix alphabet is enough": (pod("web-24561", "web-"), 24561),
    "four digits were given": (pod("web-2456", "web-"), 2456),
    "six digits were given": (pod("web-245678", "web-"), 245678),
    "a name that does not begin with generateName was given": (pod("abc-24567", "web-"), 24567),
    "a prefix of 58 leaves room for the suffix": (pod("a" * 57 + "-24567", "a" * 57 + "-"), None),
    "a longer prefix is cut to 58 by the API server": (pod("a" * 57 + "-24567", "a" * 57 + "-bcdfg-"), None),
    "at admission a generated name is still empty": (pod("", "web-5d9f7c-", REPLICAS), None),
    "at admission a generated name may have an annotation": (pod("", "web-", REPLICAS, annotations={INDEX: "1"}), 1),
    "an Indexed Job's pod at admission has its label": (pod("", "web-3-", JOB, labels={COMPLETION: "3"}), 3),
    "a Kubeflow replica's name is no index": (pod("job-worker-1", labels={REPLICA_TYPE: "worker"}), None),
    "a Kubeflow replica's labels are no index": (pod("j", labels={REPLICA_TYPE: "worker", COMPLETION: "1"}), None),
    "a Kubeflow replica's annotation is": (pod("j-1", annotations={INDEX: "3"}, labels={REPLICA_TYPE: "worker"}), 3),
}


@pytest.mark.parametrize(("given", "expected"), INDICES.values(), ids=INDICES)
def test_index(given: Pod, expected: int | None) -> None:
    """The first source that applies gives the index; a generated name is none."""
    assert expected == static_index(given)


UNKNOWN = {
    "an annotation that is a word": (pod("web-1", annotations={INDEX: "one"}), f'annotation {INDEX}: "one"'),
    "an empty annotation": (pod("web-1", annotations={INDEX: ""}), f'annotation {INDEX}: ""'),
    "an annotation with a leading zero": (pod("web-1", annotations={INDEX: "01"}), f'annotation {INDEX}: "01"'),
    "an annotation with spaces": (pod("web-1", annotations={INDEX: " 1"}), f'annotation {INDEX}: " 1"'),
    "an annotation in other digits than ASCII": (pod("web-1", annotations={INDEX: "\u0661"}), "\u0661"),
    "an annotation of hostile length": (pod("web-1", annotations={INDEX: "9" * 9000}), "…"),
    "a label that is a word": (pod("web-1", labels={POD_INDEX: "x"}), f'label {POD_INDEX}: "x"'),
    "a Job's annotation that is a word": (pod("w", annotations={COMPLETION: "x"}), f'annotation {COMPLETION}: "x"'),
}


@pytest.mark.parametrize(("given", "part"), UNKNOWN.values(), ids=UNKNOWN)
def test_index_unknown(given: Pod, part: str) -> None:
    """What somebody wrote as an index and is none is refused, saying where it stands; no later source is asked."""
    obstacle = static_index(given)

    assert isinstance(obstacle, Obstacle)
    assert obstacle.reason is Reason.INDEX_UNKNOWN
    assert part in obstacle.message


def test_index_unknown_reads_as_one_sentence() -> None:
    """Cannot + value + rule + valid example."""
    obstacle = static_index(pod("web", annotations={INDEX: "first"}))

    assert isinstance(obstacle, Obstacle)
    assert obstacle.message == (
        'IndexUnknown: cannot read annotation agentaflow.gpu/index: "first": an index must be a number without sign or '
        'leading zero, at most 2147483647; correct it (example: agentaflow.gpu/index: "0")'
    )
