"""Which strategy holds for pods that name none: as the process was started, until somebody says otherwise.

LAW: a word that is no strategy is told and changes nothing.
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

    from gpu_scheduler.core.namespace_limits import NamespaceLimits
    from gpu_scheduler.core.pods.pod import Pod

log = logging.getLogger(__name__)


class DynamicConfig:
    """Is told of the settings that may change while the scheduler runs: fits ports.Observer."""

    def __init__(
        self, usual: Strategy, turn: Callable[[], None], limits: Callable[[], NamespaceLimits] = lambda: NO_LIMITS
    ) -> None:
        """`usual` holds where the settings name none; `turn` is told after each change; `limits` bound priorities."""
        self._usual = usual
        self._changed = turn
        self._limits = limits
        self._odd: str | None = None
        self.strategy = usual

    def applied(self, written: str | None) -> None:
        """Take the strategy as the settings have it now; None where they have none."""
        word = None if written is None else written.strip()
        try:
            strategy = self._usual if word is None else Strategy(word)
        except ValueError:
            self._tell(word or "")
            return
        self._odd = None
        if strategy is not self.strategy:
            log.info("The strategy is %s", strategy, extra={"strategy": strategy, "before": self.strategy})
            self.strategy = strategy
            self._changed()

    def forgotten(self, _: str | None) -> None:
        """The settings are gone: as the process was started."""
        self.applied(None)

    def priority_of(self, pod: Pod) -> int:
        """How far before the others the pod is looked at: its priority, where the strategy goes by it."""
        count = pod.request.count
        if count.count and pod.request.fault is None and (count.strategy or self.strategy) is Strategy.PRIORITY:
            return self._limits().priority(pod.ref.namespace, count.priority)
        return 0

    def _tell(self, word: str) -> None:
        """Once, however often the same settings are listed again."""
        if word != self._odd:
            self._odd = word
            told = (
                f"cannot use strategy {quote(word)} of ConfigMap {names.SETTINGS}: must be one of {', '.join(Strategy)}"
            )
            log.error("%s; %s stays (example: gpu-scheduler strategy best_fit)", told, self.strategy)
