"""Tells a pod's owner why it waits: once for each reason, however often it is looked at."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_scheduler.notices import notice_of

if TYPE_CHECKING:
    from gpu_scheduler.core.decide import Refuse, Wait
    from gpu_scheduler.ports import Announcer
    from gpu_scheduler.tracking import Tracked

log = logging.getLogger(__name__)


class Teller:
    """Remembers on each pod what was told of it last."""

    def __init__(self, announcer: Announcer) -> None:
        """It tells through `announcer`."""
        self._announcer = announcer

    def tell(self, tracked: Tracked, decision: Wait | Refuse) -> None:
        """The same reason again would only cost writes, whatever numbers in it have changed."""
        notice = notice_of(decision, tracked.pod.scheduled_condition)
        if decision.topic == tracked.topic or notice.condition == tracked.told:
            tracked.topic = decision.topic
            return
        details = {"pod": str(decision.pod), "reason": decision.reason}
        log.info("%s waits: %s", decision.pod, decision.message, extra=details)
        if self._announcer.announce(decision.pod, notice):
            tracked.told, tracked.topic = notice.condition, decision.topic

    async def hush(self, tracked: Tracked) -> None:
        """Before a bind: what was told is soon untrue. Return when it is not being written any more."""
        if await self._announcer.withdraw(tracked.pod.ref):
            tracked.told = tracked.topic = None
