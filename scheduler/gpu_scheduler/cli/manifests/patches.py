"""Applies what the webhook would add to an object."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.webhook.review import AddOp


def patched(body: dict[str, Any], patches: Iterable[AddOp]) -> dict[str, Any]:
    """Return a copy of `body` with these JSON patch operations `add` applied (RFC 6902); `body` itself is kept."""
    result = copy.deepcopy(body)
    for patch in patches:
        *parents, last = (_unescaped(key) for key in patch.path.split("/")[1:])
        target: Any = result
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        if isinstance(target, list):
            target.insert(int(last), patch.value)
        else:
            target[last] = patch.value
    return result


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
