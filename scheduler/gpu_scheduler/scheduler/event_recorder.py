"""Writes events and conditions of pods, from its own queues.

A bind waits for one of their requests at most: for a condition of the same pod that is already sent. It waits until
that is answered, at most CALL_TIMEOUT (3 s): a condition that the API server stores after the bind is untrue.

A condition is retried until it is written or no longer true. An event is dropped after a few failures. Only the
leader sends conditions, and none after it has begun to stop: its successor may have bound the pod.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.events import ObjectRef, event_name, event_object, events_path
from gpu_scheduler.kube.http.client import (
    JSON,
    STRATEGIC_MERGE,
    UNAUTHORIZED,
    NoResponseError,
    NotSentError,
    TooLongError,
    segment,
    status_message,
)
from gpu_scheduler.kube.timestamps import time_of
from gpu_scheduler.scheduler.ports import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.pods.pod import ScheduledCondition
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
    from gpu_scheduler.scheduler.ports import Notice

SERVER_FAULTS = 500
# After 401 the API client has read the credentials again, after 429 the API server has too many requests.
_TRY_AGAIN = frozenset({UNAUTHORIZED, 429})
QUEUE = 50_000
WAITING_WORKERS = 16
"""Workers that write notices of waiting pods: the condition and its event."""
BOUND_WORKERS = 64
"""Workers that write the events of bound pods: as many as there are binds at once, whose connections they use. With 16,
a backlog took a tenth longer until its last event."""
POLL = 0.05
"""Seconds between two checks whether the binds still go first."""
EVENT_TRIES = 3
MAX_ANSWER_BYTES = 2**17
"""Bytes of an answer that are read. The answer to a write is the pod, which may have megabytes."""
BACKOFF_FIRST = 0.5
BACKOFF_LONGEST = 10.0

log = logging.getLogger(__name__)

Key = tuple[str, str]


class _Queue:
    """Notices of one kind, first in, first out."""

    __slots__ = ("at_once", "turn", "waiting")

    def __init__(self, at_once: int) -> None:
        """Deliver `at_once` notices at once."""
        self.at_once = at_once
        self.waiting: asyncio.Queue[Key] = asyncio.Queue(QUEUE)
        self.turn = asyncio.Lock()


@dataclass(slots=True)
class _PendingNotice:
    """A notice that is not written yet.

    `event` is the name of its event, the same for each try. If the answers to two tries are lost and both have arrived,
    the API server still has one event only. `answered` is set unless a request with the condition is in flight; a
    later notice with the same key takes it over.
    """

    pod: PodRef
    notice: Notice
    event: str
    at: datetime
    condition_due: bool
    answered: asyncio.Event
    attempts: int
    """The attempts of the scheduling loop that go first."""
    event_due: bool
    tries: int = 0

    @property
    def key(self) -> Key:
        """Notices with the same key replace each other."""
        return self.pod.uid, self.notice.reason

    @property
    def due(self) -> bool:
        """Whether anything is left to write."""
        return self.condition_due or self.event_due


class ApiEventRecorder(EventRecorder):
    """Writes notices through events.k8s.io/v1 and pods/status."""

    def __init__(  # noqa: PLR0913 - what tests turn has defaults
        self,
        api: ApiClient,
        *,
        controller: str,
        instance: str,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        attempts_due: Callable[[], int] = lambda: 0,
        binds_first: Callable[[int], bool] = lambda _: False,
        may_write: Callable[[], bool] = lambda: True,
        events: bool = True,
        conditions: bool = True,
    ) -> None:
        """`controller` is the scheduler's name and `instance` this replica, as events report them.

        `may_write` tells whether this replica leads for certain. It is called right before a condition is sent.
        It is worth more that a pod runs sooner than that an event comes sooner, so a notice waits while `binds_first`
        says so of the number that `attempts_due` returned when it came: the pods that were active then go first, and
        none that came later. `events` and `conditions` tell what it has the right to write; the rest is never sent.
        """
        self._api = api
        self._events = events
        self._conditions = conditions
        self._attempts_due = attempts_due
        self._binds_first = binds_first
        self._may_write = may_write
        self._stopping = False
        self._controller = controller
        self._instance = instance
        self._wall = wall
        self._undelivered: dict[Key, _PendingNotice] = {}
        self._waiting_queue, self._bound_queue = _Queue(WAITING_WORKERS), _Queue(BOUND_WORKERS)

    def record(self, pod: PodRef, notice: Notice) -> bool:
        """Queue the notice, see EventRecorder. False if its queue is full, or if no condition may be written."""
        if self._stopping and notice.condition is not None:
            return False
        condition_due = self._conditions and notice.condition is not None
        if not (self._events or condition_due):
            return True
        key = (pod.uid, notice.reason)
        earlier = self._undelivered.get(key)
        if earlier is None:
            queue = self._bound_queue if notice.condition is None else self._waiting_queue
            try:
                queue.waiting.put_nowait(key)
            except asyncio.QueueFull:
                return False
        answered = earlier.answered if earlier else _set_event()
        # A notice in the place of an earlier one has waited as long as that one.
        attempts = earlier.attempts if earlier else self._attempts_due()
        event = event_name(pod.name)
        self._undelivered[key] = _PendingNotice(
            pod, notice, event, self._wall(), condition_due, answered, attempts, self._events
        )
        return True

    @property
    def undelivered(self) -> int:
        """The number of notices that are not written yet."""
        return len(self._undelivered)

    async def withdraw(self, pod: PodRef) -> bool:
        """Withdraw the pod's condition, see EventRecorder. True if it was not written yet."""
        pending = self._undelivered.get((pod.uid, names.EVENT_FAILED))
        return pending is not None and await self._withdraw(pending)

    async def withdraw_all(self) -> None:
        """Withdraw all conditions, with the events that say the same, and record no more of them.

        Return when no write of one is in flight, after at most CALL_TIMEOUT.
        """
        self._stopping = True
        for pending in tuple(self._undelivered.values()):
            if pending.condition_due and await self._withdraw(pending):
                pending.event_due = False

    @staticmethod
    async def _withdraw(pending: _PendingNotice) -> bool:
        """Withdraw the condition, and wait until a write of it is answered. True if it was not written yet."""
        await pending.answered.wait()
        # A request that is not sent yet is not waited for: from now on `_may_send` does not allow it.
        unwritten, pending.condition_due = pending.condition_due, False
        return unwritten

    async def run(self) -> None:
        """Deliver notices until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for queue in (self._waiting_queue, self._bound_queue):
                for _ in range(queue.at_once):
                    workers.create_task(self._work(queue))

    async def flush(self, seconds: float) -> None:
        """Wait until everything is delivered, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while any(pending.due for pending in self._undelivered.values()):  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.01)
        except TimeoutError:
            left = sum(pending.due for pending in self._undelivered.values())
            log.warning("Stopping with unwritten notices", extra={"left": left})

    async def _work(self, queue: _Queue) -> None:
        """Deliver the newest notice of each key. A failed one is queued again later and keeps no worker meanwhile."""
        while True:
            key = await queue.waiting.get()
            await self._wait_for_binds(queue, key)
            pending = self._undelivered[key]
            delay = await self._deliver(pending)
            if pending is self._undelivered[key] and not pending.due:
                del self._undelivered[key]
            else:
                asyncio.get_running_loop().call_later(delay, self._requeue, queue, key)

    async def _wait_for_binds(self, queue: _Queue, key: Key) -> None:
        """Wait while binds go first. One worker of a queue polls; the rest wait."""
        async with queue.turn:
            while self._binds_first(self._undelivered[key].attempts):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(POLL)

    def _requeue(self, queue: _Queue, key: Key) -> None:
        try:
            queue.waiting.put_nowait(key)
        except asyncio.QueueFull:
            asyncio.get_running_loop().call_later(BACKOFF_LONGEST, self._requeue, queue, key)

    async def _deliver(self, pending: _PendingNotice) -> float:
        """Try once to write the notice. Return the seconds to wait before the next try, 0 if no wait is necessary."""
        delay = 0.0
        pending.tries += 1
        if pending.condition_due and pending.notice.condition is not None:
            delay = await self._write_condition(pending, pending.notice.condition)
        if pending.event_due and not delay:
            delay = await self._send("POST", events_path(pending.pod.namespace), self._event(pending), pending.tries)
            pending.event_due = delay > 0 and pending.tries < EVENT_TRIES
        return delay

    async def _write_condition(self, pending: _PendingNotice, condition: ScheduledCondition) -> float:
        """Try once to write the condition. Return as `_deliver`."""
        path, body = _status_path(pending.pod), self._status(pending.pod, condition)
        try:
            delay = await self._send("PATCH", path, body, pending.tries, lambda: self._may_send(pending))
            pending.condition_due = delay > 0
        except NotSentError:
            # The event of a withdrawn condition is still due. Without the Lease, or if there is a later notice, nothing
            # of this one is.
            pending.event_due = pending.event_due and not pending.condition_due
            pending.condition_due = False
            return 0.0
        finally:
            pending.answered.set()
        return delay

    def _may_send(self, pending: _PendingNotice) -> bool:
        """Whether the condition may be sent now. If so, it counts as in flight."""
        newest = self._undelivered.get(pending.key) is pending
        allowed = newest and pending.condition_due and not self._stopping and self._may_write()
        if allowed:
            pending.answered.clear()
        return allowed

    async def _send(
        self,
        method: Literal["PATCH", "POST"],
        path: str,
        body: dict[str, object],
        tries: int,
        guard: Callable[[], bool] | None = None,
    ) -> float:
        """Send one request. Return 0 if it succeeded or a retry cannot help, else the seconds before a retry.

        Raise NotSentError if `guard` did not allow it.
        """
        data, content_type = msgspec.json.encode(body), STRATEGIC_MERGE if method == "PATCH" else JSON
        try:
            answer = await self._api.call(
                method, path, body=data, content_type=content_type, guard=guard, most=MAX_ANSWER_BYTES
            )
        except NotSentError:
            raise
        except TooLongError:
            # No error answer is longer than LONGEST: the body is the written pod.
            return 0.0
        except NoResponseError as error:
            log.warning("Writing a notice got no answer", extra={"path": path, "error": str(error)})
            return _backoff(tries, None)
        if answer.status in _TRY_AGAIN or answer.status >= SERVER_FAULTS:
            return _backoff(tries, answer.retry_after)
        if not answer.ok:
            _log_refusal(path, answer)
        return 0.0

    def _status(self, pod: PodRef, condition: ScheduledCondition) -> dict[str, object]:
        """Make the patch. The uid limits it to exactly that pod; conditions are merged by their type."""
        return {
            "metadata": {"uid": pod.uid},
            "status": {
                "conditions": [
                    {
                        "type": names.CONDITION_POD_SCHEDULED,
                        "status": condition.status,
                        "reason": condition.reason,
                        "message": condition.message,
                        "lastTransitionTime": condition.since or time_of(self._wall()),
                    },
                ],
            },
        }

    def _event(self, pending: _PendingNotice) -> dict[str, object]:
        pod = pending.pod
        regarding = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
        return event_object(regarding, pending.notice, pending.event, pending.at, self._controller, self._instance)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _backoff(tries: int, asked: float | None) -> float:
    ceiling = min(BACKOFF_LONGEST, BACKOFF_FIRST * 2 ** min(tries, 16))
    jittered: float = ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    return max(asked or 0.0, jittered)


def _log_refusal(path: str, answer: ApiResponse) -> None:
    """Log a refused write, unless the pod or its namespace is gone meanwhile (404 or 409): this is no fault."""
    if answer.status not in {404, 409}:
        log.error(
            "The API server refused a notice",
            extra={"path": path, "status": answer.status, "error": status_message(answer)},
        )


def _status_path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}/status"
