"""Confirms cordons: a GPUNode's status says from which generation of its spec on no bind against it can come.

LAW: a generation is confirmed only by the leader, and only after every bind to the node that was under way when the
leader saw that generation has ended.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.scheduler.pod_states import PodStates
    from gpu_scheduler.scheduler.ports import CordonStatus

POLL: Final = 0.05
"""Seconds between two looks whether binds have ended."""
RETRY: Final = 2.0
"""Seconds after a failed write."""

log = logging.getLogger(__name__)


@immutable
class _Unconfirmed:
    """A GPUNode that waits for its confirmation, and the binds to its node that were under way, by uid of the pod."""

    cordons: NodeCordons
    binds: dict[str, Bind]


class CordonConfirmer:
    """Gets every GPUNode as it is now. Only `run` writes."""

    def __init__(self, states: PodStates) -> None:
        """Nothing is written before `run`."""
        self._states = states
        self._unconfirmed: dict[str, _Unconfirmed] = {}
        self._wakeup = asyncio.Event()

    @property
    def unconfirmed(self) -> int:
        """The number of GPUNodes that wait for their confirmation."""
        return len(self._unconfirmed)

    def applied(self, cordons: NodeCordons) -> None:
        """Remember the GPUNode if it waits for a confirmation. Decisions obey its cordons already."""
        known = self._unconfirmed.get(cordons.node)
        if not cordons.unconfirmed:
            self._unconfirmed.pop(cordons.node, None)
        elif known is None or known.cordons != cordons:
            self._unconfirmed[cordons.node] = _Unconfirmed(cordons, self._binds_to(cordons.node))
            self._wakeup.set()

    def forgotten(self, cordons: NodeCordons) -> None:
        """Forget a GPUNode that is gone."""
        self._unconfirmed.pop(cordons.node, None)

    async def run(self, status: CordonStatus) -> None:
        """Confirm. This replica must lead, and must have listed everything since its election."""
        while True:
            self._wakeup.clear()
            delay = await self._confirm_all(status)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()

    async def _confirm_all(self, status: CordonStatus) -> float | None:
        """Confirm what can be confirmed. Return the seconds after which to try again; None if nothing waits."""
        delay: float | None = None
        for each in list(self._unconfirmed.values()):
            if any(self._under_way(uid, bind) for uid, bind in each.binds.items()):
                delay = POLL
                continue
            failure = await status.confirm(each.cordons)
            if failure is None:
                # Unless it has changed meanwhile, or waits again because the watch was behind.
                if self._unconfirmed.get(each.cordons.node) is each:
                    del self._unconfirmed[each.cordons.node]
                log.info("Confirmed the cordons of a node", extra={"node": each.cordons.node})
            else:
                log.warning("Cordons could not be confirmed", extra={"node": each.cordons.node, "error": failure})
                delay = delay or RETRY
        return delay

    def _binds_to(self, node: str) -> dict[str, Bind]:
        return {
            uid: state.assumed
            for uid, state in self._states.items()
            if state.assumed is not None and state.assumed.placement.node == node
        }

    def _under_way(self, uid: str, bind: Bind) -> bool:
        state = self._states.get(uid)
        return state is not None and state.assumed is bind
