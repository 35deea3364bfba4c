"""Which limits of namespaces hold: none, until an operator writes some.

LAW: a text with a fault never lifts what held before it, and never ends the loop.
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
    """Is told of the ConfigMap of limits: fits ports.Observer."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of the limits."""
        self._changed = changed
        self._sound = False
        """Whether what holds is a whole text, read without a fault."""
        self.limits = NO_LIMITS
        self.faults: tuple[str, ...] = ()
        """What is wrong with the text that was written last."""

    def applied(self, text: str | None) -> None:
        """Take the text as it is now; None where the ConfigMap has none."""
        limits, faults = (NO_LIMITS, (_NO_TEXT,)) if text is None else parse_limits(text)
        if faults and faults != self.faults:
            stays = "the limits before it stay" if self._sound else "the lines that can be read hold"
            log.error("cannot use all of ConfigMap %s: %s; %s", names.LIMITS, _first(faults), stays)
        self.faults = faults
        if not faults or not self._sound:
            self._sound = not faults
            self._take(limits)

    def forgotten(self, _: str | None) -> None:
        """The ConfigMap is gone: nobody is limited."""
        self.faults, self._sound = (), False
        self._take(NO_LIMITS)

    def _take(self, limits: NamespaceLimits) -> None:
        if limits != self.limits:
            log.info("The limits of namespaces are others", extra={"namespaces": len(limits.lines)})
            self.limits = limits
            self._changed()


def _first(faults: tuple[str, ...]) -> str:
    more = len(faults) - 1
    return faults[0] + (f", and {more} more" if more else "")
