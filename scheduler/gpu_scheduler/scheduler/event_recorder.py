"""Events and conditions: what pods' owners read, written from a queue of its own so that no bind ever waits for it.

A condition is tried until it is written or no longer true; an event is news, and dropped after a few failures.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.http.client import STRATEGIC_MERGE, NoResponseError, TooLongError, segment, status_message
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.scheduler.ports import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.pods.pod import ScheduledCondition
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
    from gpu_scheduler.scheduler.ports import Notice

TOO_MANY = 429
SERVER_FAULTS = 500
QUEUE = 50_000
REASONS_AT_ONCE = 16
"""Pods that are told at once why they wait,"""
NEWS_AT_ONCE = 64
"""and that they are bound: as many as binds at once, whose connections are there; 16 made a backlog a tenth longer."""
REASONS_YIELD = 5.0
"""Seconds for which why a pod waits gives way to binds at most,"""
NEWS_YIELD = 15.0
"""and for which the news of a bind does: that its pod runs everybody sees."""
LOOK = 0.05
"""Seconds between two looks whether they still need all there is."""
EVENT_TRIES = 3
LONGEST = 2**17
"""Bytes of an answer that are read: to a write it is the pod itself, which may have megabytes."""
BACKOFF_FIRST = 0.5
BACKOFF_LONGEST = 10.0

log = get_logger(__name__)

Key = tuple[str, str]


class _Queue:
    """Notices that wait alike, first come first served."""

    __slots__ = ("at_once", "turn", "waiting", "yielding")

    def __init__(self, at_once: int, yielding: float) -> None:
        """So many are delivered at once, and each gives way to binds for so many seconds at most."""
        self.at_once = at_once
        self.yielding = yielding
        self.waiting: asyncio.Queue[Key] = asyncio.Queue(QUEUE)
        self.turn = asyncio.Lock()


@dataclass(slots=True)
class _PendingNotice:
    """A notice on its way; `writing` is held while its condition is written, and handed on to what replaces it.

    Its `event` has one name, however often it is tried: of two tries whose answers were lost both may have arrived.
    """

    pod: PodRef
    notice: Notice
    event: str
    at: datetime
    condition_due: bool
    writing: asyncio.Lock
    since: float
    event_due: bool = True
    tries: int = 0


class ApiEventRecorder(EventRecorder):
    """Delivers notices through events.k8s.io/v1 and pods/status."""

    def __init__(
        self,
        api: ApiClient,
        *,
        controller: str,
        instance: str,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`controller` is the scheduler's name and `instance` this replica, as events report them.

        While the binds are `busy` with all the requests that they may have in flight, notices wait: a pod that runs
        sooner is worth more than one that is told of sooner.
        """
        self._api = api
        self._busy = busy
        self._controller = controller
        self._instance = instance
        self._wall = wall
        self._letters: dict[Key, _PendingNotice] = {}
        self._reasons, self._news = _Queue(REASONS_AT_ONCE, REASONS_YIELD), _Queue(NEWS_AT_ONCE, NEWS_YIELD)

    def record(self, pod: PodRef, notice: Notice) -> bool:
        """See Announcer."""
        key = (pod.uid, notice.reason)
        earlier = self._letters.get(key)
        if earlier is None:
            queue = self._news if notice.condition is None else self._reasons
            try:
                queue.waiting.put_nowait(key)
            except asyncio.QueueFull:
                return False
        writing = earlier.writing if earlier else asyncio.Lock()
        now = asyncio.get_running_loop().time()
        # As client-go names them: the object, then a number that never repeats.
        event = f"{pod.name[:200]}.{time.time_ns():x}"
        self._letters[key] = _PendingNotice(
            pod, notice, event, self._wall(), notice.condition is not None, writing, now
        )
        return True

    async def withdraw(self, pod: PodRef) -> bool:
        """See Announcer."""
        pending = self._letters.get((pod.uid, names.EVENT_FAILED))
        if pending is None:
            return False
        # Whoever is writing it finishes first; after that nobody begins any more.
        async with pending.writing:
            unwritten, pending.condition_due = pending.condition_due, False
        return unwritten

    async def run(self) -> None:
        """Deliver for ever."""
        async with asyncio.TaskGroup() as workers:
            for queue in (self._reasons, self._news):
                for _ in range(queue.at_once):
                    workers.create_task(self._work(queue))

    async def flush(self, seconds: float) -> None:
        """Wait until everything is delivered, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                while self._letters:  # noqa: ASYNC110 - asked once, at the end of the process
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("Stopping with announcements unwritten", left=len(self._letters))

    async def _work(self, queue: _Queue) -> None:
        """Deliver what is newest under each key; what fails comes back later and keeps no worker meanwhile."""
        while True:
            key = await queue.waiting.get()
            await self._give_way(queue, key)
            pending = self._letters[key]
            delay = await self._deliver(pending)
            if pending is self._letters[key] and not pending.condition_due and not pending.event_due:
                del self._letters[key]
            else:
                asyncio.get_running_loop().call_later(delay, self._come_back, queue, key)

    async def _give_way(self, queue: _Queue, key: Key) -> None:
        """One looks, and those behind wait for him."""
        loop = asyncio.get_running_loop()
        async with queue.turn:
            until = self._letters[key].since + queue.yielding
            while self._busy() and loop.time() < until:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(LOOK)

    def _come_back(self, queue: _Queue, key: Key) -> None:
        try:
            queue.waiting.put_nowait(key)
        except asyncio.QueueFull:
            asyncio.get_running_loop().call_later(BACKOFF_LONGEST, self._come_back, queue, key)

    async def _deliver(self, pending: _PendingNotice) -> float:
        """One try; answers the seconds to wait before the next, 0 when there is nothing to wait for."""
        delay = 0.0
        pending.tries += 1
        condition = pending.notice.condition
        if condition is not None:
            async with pending.writing:
                if pending.condition_due:
                    body = self._status(pending.pod, condition)
                    delay = await self._send("PATCH", _status_path(pending.pod), body, pending.tries)
                    pending.condition_due = delay > 0
        if pending.event_due and not delay:
            delay = await self._send("POST", _events_path(pending.pod), self._event(pending), pending.tries)
            pending.event_due = delay > 0 and pending.tries < EVENT_TRIES
        return delay

    async def _send(self, method: str, path: str, body: dict[str, object], tries: int) -> float:
        """0 when done or hopeless, else the seconds to wait."""
        data = msgspec.json.encode(body)
        try:
            if method == "PATCH":
                answer = await self._api.call("PATCH", path, body=data, content_type=STRATEGIC_MERGE, most=LONGEST)
            else:
                answer = await self._api.call("POST", path, body=data, most=LONGEST)
        except TooLongError:
            # No refusal is so long: it is the pod, with what was written.
            return 0.0
        except NoResponseError as error:
            log.warning("An announcement had no answer", path=path, error=str(error))
            return _backoff(tries, None)
        if answer.status == TOO_MANY or answer.status >= SERVER_FAULTS:
            return _backoff(tries, answer.retry_after)
        if not answer.ok:
            _log_refusal(path, answer)
        return 0.0

    def _status(self, pod: PodRef, condition: ScheduledCondition) -> dict[str, object]:
        """The uid makes this a patch of exactly that pod; conditions merge by their type."""
        return {
            "metadata": {"uid": pod.uid},
            "status": {
                "conditions": [
                    {
                        "type": names.CONDITION_POD_SCHEDULED,
                        "status": condition.status,
                        "reason": condition.reason,
                        "message": condition.message,
                        "lastTransitionTime": condition.since or self._wall().strftime("%Y-%m-%dT%H:%M:%SZ"),
                    },
                ],
            },
        }

    def _event(self, pending: _PendingNotice) -> dict[str, object]:
        pod, notice = pending.pod, pending.notice
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": pending.event, "namespace": pod.namespace},
            "eventTime": pending.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": notice.type,
            "reason": notice.reason,
            "action": notice.action,
            "note": notice.note,
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
        }


def _backoff(tries: int, asked: float | None) -> float:
    ceiling = min(BACKOFF_LONGEST, BACKOFF_FIRST * 2 ** min(tries, 16))
    jittered: float = ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    return max(asked or 0.0, jittered)


def _log_refusal(path: str, answer: ApiResponse) -> None:
    """A pod or namespace that went meanwhile is no fault."""
    if answer.status not in {404, 409}:
        log.error("An announcement was refused", path=path, status=answer.status, error=status_message(answer))


def _status_path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}/status"


def _events_path(pod: PodRef) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{segment(pod.namespace)}/events"
