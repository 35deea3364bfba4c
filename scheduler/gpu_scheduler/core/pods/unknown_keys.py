"""Annotations that resemble ours although no program reads them: their keys are probably misspelt.

LAW: a pod may have thousands of annotations. Few of their keys are compared, kept and named.
"""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.text import quote

MOST_NAMED: Final = 3
"""Most unknown keys of a pod that are kept and named."""

_MOST_READ: Final = 8
"""Most unknown keys of a pod that are compared with the known ones."""

_MAX_KEY: Final = len(names.PREFIX) + 63
"""Longest key with our prefix that the API server accepts."""

_ASSIGNED: Final = f"{names.PREFIX}assigned-"
"""How the keys begin that the scheduler writes in a Binding, those of later versions too."""

_PROGRAMS: Final = frozenset(
    {
        names.COMPLETION_INDEX,
        names.WORKLOAD,
        names.DEVICES,
        names.ENABLED,
        names.SCHEDULABLE,
        names.TIER,
        names.STATUS,
        names.LAST_UPDATE,
    }
)
"""Keys of pods, nodes and labels that users do not write as annotations of a pod, but that are not misspelt."""

_KNOWN: Final = names.POD_ANNOTATIONS | _PROGRAMS
WRITTEN: Final = sorted(key for key in names.POD_ANNOTATIONS - _PROGRAMS if not key.startswith(_ASSIGNED))
"""Keys that users write on pods."""

_NAMES: Final = {key.removeprefix(names.PREFIX): key for key in WRITTEN}
_WORDS: Final = {name.rpartition("-")[2]: key for name, key in _NAMES.items()} | _NAMES
"""The keys that users write on pods, by name without prefix and by the last word of it: `map` for the map."""

_SAME: Final = 0.85
"""How similar a key without our prefix must be to a known one. 1 means equal; 0.85 allows about three wrong letters."""


def unknown_keys(given: Iterable[str]) -> tuple[str, ...]:
    """Return the first keys of a pod's annotations that resemble ours and that no program reads."""
    # This runs for each pod that is read, and nearly always ends here.
    suspects = [key for key in given if "gpu" in key and key not in _KNOWN]
    if not suspects:
        return ()
    ours = (sys.intern(key[:_MAX_KEY]) for key in suspects[:_MOST_READ] if _is_nearly_ours(key))
    return tuple(islice(ours, MOST_NAMED))


@lru_cache(maxsize=1024)
def unknown_key_message(key: str) -> str:
    """Return what is wrong with an unknown key, and the known key that is nearest to it."""
    near = get_close_matches(key.rpartition("/")[2].lower(), _WORDS, 1)
    advice = f"did you mean {_WORDS[near[0]]}?" if near else "docs/map.md lists the known ones"
    return f"annotation {quote(key)} is unknown: {advice}"


def _is_nearly_ours(key: str) -> bool:
    if key.startswith(names.PREFIX):
        return not key.startswith(_ASSIGNED)
    return len(key) <= _MAX_KEY and _resembles_a_known_key(key)


@lru_cache(maxsize=1024)
def _resembles_a_known_key(key: str) -> bool:
    return bool(get_close_matches(key, WRITTEN, 1, _SAME))
