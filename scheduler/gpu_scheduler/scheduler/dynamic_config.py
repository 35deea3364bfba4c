"""The strategy of pods that name none: the process's setting, until a ConfigMap names another.

LAW: a word that is no strategy is logged and changes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.core.namespace_limits import NO_LIMITS
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.fair_queue import Priority
    from gpu_scheduler.core.namespace_limits import NamespaceLimits
    from gpu_scheduler.core.pods.pod import Pod

log = logging.getLogger(__name__)


class DynamicConfig:
    """Applies the settings that may change while the scheduler runs; an EventHandler."""

    def __init__(
        self, usual: Strategy, turn: Callable[[], None], limits: Callable[[], NamespaceLimits] = lambda: NO_LIMITS
    ) -> None:
        """`usual` applies while the settings name none; `turn` is called on each change; `limits` bound priorities."""
        self._usual = usual
        self._changed = turn
        self._limits = limits
        self._last_unknown: str | None = None
        self.strategy = usual

    def applied(self, written: str | None) -> None:
        """Apply the strategy that the settings name now; None if they name none."""
        word = None if written is None else written.strip()
        try:
            strategy = self._usual if word is None else Strategy(word)
        except ValueError:
            self._log_unknown(word or "")
            return
        self._last_unknown = None
        if strategy is not self.strategy:
            log.info("The strategy is %s", strategy, extra={"strategy": strategy, "before": self.strategy})
            self.strategy = strategy
            self._changed()

    def forgotten(self, _: str | None) -> None:
        """Return to the strategy of the process, because the ConfigMap is gone."""
        self.applied(None)

    def priority_of(self, pod: Pod) -> Priority:
        """Return the pod's priority in the scheduling queue. The second number is 0 if its strategy ignores priorities.

        Neither exceeds the maximum of the pod's namespace.
        """
        limits, namespace, count = self._limits(), pod.ref.namespace, pod.request.count
        by_strategy = 0
        if count.count and pod.request.fault is None and (count.strategy or self.strategy) is Strategy.PRIORITY:
            by_strategy = limits.priority(namespace, count.priority)
        return limits.priority(namespace, pod.priority), by_strategy

    def _log_unknown(self, word: str) -> None:
        """Log the word once, however often the same settings are listed again."""
        if word != self._last_unknown:
            self._last_unknown = word
            problem = (
                f"cannot use strategy {quote(word)} of ConfigMap {names.SETTINGS}: must be one of {', '.join(Strategy)}"
            )
            log.error("%s; %s stays (example: gpu-scheduler strategy best_fit)", problem, self.strategy)
