"""The index of the map line that belongs to a pod, if the pod itself already says it.

LAW: the sources are read in one order, and the first that applies wins. A name that Kubernetes generated is never a
source, because its suffix may be all digits by chance.
"""

from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.placement_map import MAX_NUMBER, parse_number
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Fault, Reason
from gpu_scheduler.core.text import quote

# k8s.io/apimachinery/pkg/util/rand: no vowels, and no digits that look like them.
_SUFFIX_ALPHABET: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
_SUFFIX_LENGTH: Final = 5
MAX_PREFIX: Final = 63 - _SUFFIX_LENGTH
"""Longest generateName that the API server does not cut: the name is a DNS label of 63 characters.

k8s.io/apiserver/pkg/storage/names has this number.
"""


def static_index(pod: PodText) -> int | Fault | None:
    """Return the index that `pod` itself says; None if it says none, a Fault if the text is not a valid number."""
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
            made_anew(f'correct it (example: {names.INDEX}: "0")'),
        )
    return index


def _written(pod: PodText) -> tuple[str, str] | None:
    """Return the first index that is written on the pod: the name of its source, and its text."""
    if names.INDEX in pod.annotations:
        return f"annotation {names.INDEX}", pod.annotations[names.INDEX]
    if names.REPLICA_TYPE in pod.labels:
        # Kubeflow numbers its replicas per type, so that two pods of one job may have the same number.
        return None
    for key in (names.POD_INDEX, names.COMPLETION_INDEX):
        if key in pod.labels:
            return f"label {key}", pod.labels[key]
    if names.COMPLETION_INDEX in pod.annotations:
        return f"annotation {names.COMPLETION_INDEX}", pod.annotations[names.COMPLETION_INDEX]
    return None


def _from_name(pod: PodText) -> int | None:
    """Return N if the name ends in `-N` and the API server did not generate it."""
    if names.REPLICA_TYPE in pod.labels or _generated(pod):
        return None
    _, dash, tail = pod.name.rpartition("-")
    return parse_number(tail) if dash else None


def _generated(pod: PodText) -> bool:
    """Whether the API server generates the name. At admission it has not done so yet, and the name is empty."""
    name, prefix = pod.name, pod.generate_name
    if not name:
        return True
    if not prefix or (pod.owner is not None and pod.owner.kind == "StatefulSet"):
        return False
    prefix = prefix[:MAX_PREFIX]
    suffix = name[len(prefix) :]
    return name.startswith(prefix) and len(suffix) == _SUFFIX_LENGTH and _SUFFIX_ALPHABET.issuperset(suffix)
