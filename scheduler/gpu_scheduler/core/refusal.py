"""What the API server says when it does not make a workload's pod, as a reason and a sentence.

LAW: a word of the closed list wherever the fault is the workload's own, so that it reads as on a pod.
"""

import re
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.bounds import Excess
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.core.workload_phase import Trouble

_AGAIN: Final = "trying again by itself"
_CORRECTED: Final = f"correct it in a new {names.WORKLOAD_KIND} where it is its own fault; {_AGAIN}"
_TOLD: Final = re.compile(rf"\b(?P<word>{'|'.join(reason.value for reason in Reason)}): (?P<what>.+)", re.DOTALL)
_QUOTA: Final = "exceeded quota"
# What the API server says to a controller that lacks a right, and to nobody's pod.
_NO_RIGHT: Final = "cannot create resource"
_REFUSALS: Final = frozenset({400, 403, 404, 413, 422})


def refused(pod: str, status: int, message: str) -> Trouble:
    """What an answer of this HTTP status means for who waits for the pod."""
    told = _TOLD.search(message)
    if told is not None:
        return Trouble(told["word"], sentence(told["word"], told["what"], ""))
    word: str = Reason.REQUEST_INVALID
    cure = _CORRECTED
    if _QUOTA in message:
        word, cure = Reason.INSUFFICIENT_RESOURCES, f"make room in the quota; {_AGAIN}"
    elif status not in _REFUSALS or _NO_RIGHT in message:
        word, cure = names.CONDITION_SCHEDULER_ERROR, _AGAIN
    return Trouble(word, sentence(word, f"cannot make pod {pod}: {message}", cure))


def unanswered(pod: str, why: str) -> Trouble:
    """Nobody knows whether the pod was made; the next try finds out."""
    word = names.CONDITION_SCHEDULER_ERROR
    return Trouble(word, sentence(word, f"cannot tell whether pod {pod} was made: {why}", _AGAIN))


def excessive(excess: Excess) -> Trouble:
    """Of a template that is too long no pod is made: each would be as long."""
    cure = "let its containers read long texts from a ConfigMap, and create the GPUWorkload anew"
    return Trouble(Reason.REQUEST_INVALID, sentence(Reason.REQUEST_INVALID, str(excess), cure))


def taken(pod: str, *, going: bool) -> Trouble:
    """A pod of that name is there and is not the workload's; `going`: it is being deleted."""
    if going:
        return Trouble("", f"pod {pod} of another owner is still going; this workload's is made when it has gone")
    return Trouble(
        Reason.REQUEST_INVALID,
        sentence(
            Reason.REQUEST_INVALID,
            f"cannot make pod {pod}: a pod of that name is there, and it is not this workload's",
            f"delete it, or give the workload another name; {_AGAIN}",
        ),
    )
