"""What a pod without a map asks for: how many GPUs, which properties they must have, and which strategy chooses them.

LAW: only this module reads these annotations. Each fault of them has one message.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.device_selector import ANY_DEVICE, DeviceSelector
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Fault, Reason
from gpu_scheduler.core.text import quote

MAX_PRIORITY: Final = 10**9
"""Highest priority, and with a minus sign the lowest. Kubernetes has the same bounds for priorities that users
define."""

MAX_DEVICES: Final = 1024
"""Most devices of a node that are accepted. A hostile capacity must not fill the memory."""

MAX_MEMORY: Final = 2**40
"""Most MiB of a device that are accepted, or that a pod may ask for."""

_MAX_TYPE: Final = 63
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,12}")
"""At most 13 digits, so that no text of hostile length reaches int()."""


class Strategy(StrEnum):
    """How the devices of a pod that asks for a count are chosen."""

    LEAST_UTILIZED = "least_utilized"
    BEST_FIT = "best_fit"
    PRIORITY = "priority"
    ROUND_ROBIN = "round_robin"


@immutable
class CountRequest:
    """How many devices a pod asks for, all on one node; a strategy chooses them."""

    count: int
    memory: int = 0
    """MiB that must be free on each device; 0 for no requirement."""
    exclusive: bool = True
    gpu_type: str = ""
    """Part of the device's model, in upper or lower case. An empty text accepts any model."""
    strategy: Strategy | None = None
    """None means the strategy that is set for the whole cluster."""
    priority: int = 0
    selector: DeviceSelector = ANY_DEVICE
    """What each device must be, as the pod's own ResourceClaim says."""


NO_COUNT: Final = CountRequest(0)
"""The value for a pod that asks for a line of a map, or for nothing that can be read."""


class _BadAnnotationError(ValueError):
    """The pod's author wrote an annotation or a limit that cannot be read."""

    def __init__(self, what: str, rule: str, remedy: str) -> None:
        self.fault = Fault(Reason.REQUEST_INVALID, f"cannot {what}: {rule}", made_anew(remedy))
        super().__init__(self.fault.message)


def read_count(pod: PodText) -> CountRequest | Fault | None:
    """Return the pod's request for a count, or what is wrong with it; None if the pod does not ask for a count.

    The count of a pod with an own ResourceClaim is 0: the claim says it.
    """
    given = pod.annotations
    if pod.own_claim is None and names.COUNT not in given and not (pod.gpu_limits and names.STRATEGY in given):
        return None
    try:
        request = CountRequest(
            count=_count(pod),
            memory=_number(given, names.MEMORY, (0, MAX_MEMORY), "8192", " of MiB"),
            exclusive=_word(given, names.EXCLUSIVE, ("true", "false")) != "false",
            gpu_type=_gpu_type(given),
            strategy=None if names.STRATEGY not in given else Strategy(_word(given, names.STRATEGY, tuple(Strategy))),
            priority=_number(given, names.PRIORITY, (-MAX_PRIORITY, MAX_PRIORITY), "10"),
        )
        _measured(request)
    except _BadAnnotationError as error:
        return error.fault
    return request


def _count(pod: PodText) -> int:
    """Return the count from the annotation or from the limit. If the pod has both, they must be equal."""
    given = pod.annotations
    container, limit = pod.gpu_limits[0] if pod.gpu_limits else ("", 0)
    count = _number(given, names.COUNT, (1, MAX_DEVICES), "1") if names.COUNT in given else limit
    fault = f"read limit {names.GPU_RESOURCE}: {limit} of container {quote(container)}"
    if count > MAX_DEVICES:
        remedy = f"correct it (example: {names.GPU_RESOURCE}: 1)"
        raise _BadAnnotationError(fault, f"it must be a number from 1 to {MAX_DEVICES}", remedy)
    if limit and limit != count:
        remedy = f"correct it (example: {names.GPU_RESOURCE}: {count}) or leave one of the two out"
        raise _BadAnnotationError(
            fault, f"it must be as many as annotation {names.COUNT} says, which are {count}", remedy
        )
    return count


def _number(given: Mapping[str, str], key: str, bounds: tuple[int, int], example: str, unit: str = "") -> int:
    text = given.get(key)
    if text is None:
        return 0
    number = int(text) if _INTEGER.fullmatch(text) else None
    least, most = bounds
    if number is None or not least <= number <= most:
        rule = f"it must be a number{unit} from {least} to {most}, without plus sign or leading zero"
        raise _odd(given, key, rule, example)
    return number


def _word(given: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    """Return the annotation's value, one of `words`; the first of them if there is no annotation."""
    text = given.get(key, words[0])
    if text not in words:
        *most, last = (f'"{word}"' for word in words)
        raise _odd(given, key, f"it must be {', '.join(most)} or {last}", words[0])
    return text


def _gpu_type(given: Mapping[str, str]) -> str:
    text = given.get(names.GPU_TYPE)
    if text is None:
        return ""
    if not (0 < len(text) <= _MAX_TYPE and text.isascii() and text.isprintable()):
        rule = f"it must be part of a GPU's model: 1 to {_MAX_TYPE} printable ASCII characters"
        raise _odd(given, names.GPU_TYPE, rule, "A100")
    return text


def _measured(request: CountRequest) -> None:
    """Raise if a pod shares devices without a request for memory.

    Otherwise it is unknown how much is left for other pods.
    """
    if not request.exclusive and not request.memory:
        raise _BadAnnotationError(
            f'share GPUs by annotation {names.EXCLUSIVE}: "false"',
            f"annotation {names.MEMORY} must say how many MiB of each the pod takes",
            f'write it (example: {names.MEMORY}: "8192") or leave out {names.EXCLUSIVE}',
        )


def _odd(given: Mapping[str, str], key: str, rule: str, example: str) -> _BadAnnotationError:
    remedy = "write a map instead" if key == names.COUNT else "leave it out"
    return _BadAnnotationError(
        f"read annotation {key}: {quote(given[key])}", rule, f'correct it (example: {key}: "{example}") or {remedy}'
    )
