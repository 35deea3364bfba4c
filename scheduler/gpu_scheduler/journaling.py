"""The journal of who keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler.ports import Journal

if TYPE_CHECKING:
    from gpu_scheduler.core.decide import Decision
    from gpu_scheduler.core.model import PodRef
    from gpu_scheduler.ports import News


class NoJournal(Journal):
    """Keeps nothing."""

    def took(self, news: News, value: object, *, gone: bool = False) -> None:
        """See Journal."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """See Journal."""
