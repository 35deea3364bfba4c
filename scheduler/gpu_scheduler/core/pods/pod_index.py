"""Which line of the map is this pod's, where the pod itself already says so.

LAW: sources are asked in one order and the first that applies wins; a name that Kubernetes generated is never one,
because its suffix may happen to be all digits.
"""

from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.placement_map import MAX_NUMBER, parse_number
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.reasons import Fault, Reason
from gpu_scheduler.core.text import quote

# k8s.io/apimachinery/pkg/util/rand: no vowels, and no digits that look like them.
_SUFFIX_ALPHABET: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
_SUFFIX_LENGTH: Final = 5
# k8s.io/apiserver/pkg/storage/names: a longer generateName is cut, so that the name stays a DNS label of 63.
_MAX_PREFIX: Final = 63 - _SUFFIX_LENGTH


def static_index(pod: PodText) -> int | Fault | None:
    """The index that `pod` brings along; None when it brings none, Fault when what it brings is no number."""
    written = _written(pod)
    if written is None:
        return _from_name(pod)
    source, text = written
    index = parse_number(text)
    if index is None:
        return Fault(
            Reason.INDEX_UNKNOWN,
            f"cannot read {source}: {quote(text)}: "
            f"an index must be a number without sign or leading zero, at most {MAX_NUMBER}",
            f'correct it (example: {names.INDEX}: "0")',
        )
    return index


def _written(pod: PodText) -> tuple[str, str] | None:
    """The first index that somebody wrote on the pod: where, and what."""
    if names.INDEX in pod.annotations:
        return f"annotation {names.INDEX}", pod.annotations[names.INDEX]
    if names.REPLICA_TYPE in pod.labels:
        # Kubeflow numbers its replicas per type, so that two pods of one job carry the same number.
        return None
    for kind, key, given in (
        ("label", names.POD_INDEX, pod.labels),
        ("label", names.COMPLETION_INDEX, pod.labels),
        ("annotation", names.COMPLETION_INDEX, pod.annotations),
    ):
        if key in given:
            return f"{kind} {key}", given[key]
    return None


def _from_name(pod: PodText) -> int | None:
    """The trailing `-N` of a name that somebody gave."""
    if names.REPLICA_TYPE in pod.labels or _generated(pod):
        return None
    _, dash, tail = pod.name.rpartition("-")
    return parse_number(tail) if dash else None


def _generated(pod: PodText) -> bool:
    """Whether the API server made the name up. At admission it has not done so yet: the name is empty."""
    name, prefix = pod.name, pod.generate_name
    if not name:
        return True
    if not prefix or (pod.owner is not None and pod.owner.kind == "StatefulSet"):
        return False
    prefix = prefix[:_MAX_PREFIX]
    suffix = name[len(prefix) :]
    return name.startswith(prefix) and len(suffix) == _SUFFIX_LENGTH and _SUFFIX_ALPHABET.issuperset(suffix)
