"""The limits of namespaces that apply now: none, until an operator writes some.

LAW: a text with a fault never lifts the limits that applied before it, and never ends the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.core.namespace_limits import EXAMPLE, NO_LIMITS, NamespaceLimits, parse_limits

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_NO_TEXT = f'it has no key "{names.LIMITS_TEXT}" with a line per namespace (example: {EXAMPLE})'


class LimitsConfig:
    """Applies the ConfigMap of limits; an EventHandler."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of the limits."""
        self._changed = changed
        self._complete = False
        """Whether the limits that apply come from a text without a fault."""
        self.limits = NO_LIMITS
        self.faults: tuple[str, ...] = ()
        """What is wrong with the last text that was written."""

    def applied(self, text: str | None) -> None:
        """Apply the text of the ConfigMap; None if it has none."""
        limits, faults = (NO_LIMITS, (_NO_TEXT,)) if text is None else parse_limits(text)
        if faults and faults != self.faults:
            stays = "the limits before it stay" if self._complete else "the lines that can be read hold"
            log.error("cannot use all of ConfigMap %s: %s; %s", names.LIMITS, _first(faults), stays)
        self.faults = faults
        if not faults or not self._complete:
            self._complete = not faults
            self._take(limits)

    def forgotten(self, _: str | None) -> None:
        """Limit no namespace, because the ConfigMap is gone."""
        self.faults, self._complete = (), False
        self._take(NO_LIMITS)

    def _take(self, limits: NamespaceLimits) -> None:
        if limits != self.limits:
            log.info("The limits of namespaces have changed", extra={"namespaces": len(limits.lines)})
            self.limits = limits
            self._changed()


def _first(faults: tuple[str, ...]) -> str:
    more = len(faults) - 1
    return faults[0] + (f", and {more} more" if more else "")
