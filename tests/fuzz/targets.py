"""What is fuzzed: bytes in, and what must hold of whatever comes out.

LAW: each target is a plain function that raises only when a promise is broken; nothing here needs the fuzzer.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import jsonpatch
import msgspec
from prometheus_client import CollectorRegistry

from gpu_scheduler.controller.translation import read_gpu_node, read_seen_pod, read_workload
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.pods.placement_map import MapError, parse_placement_map
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube.http.client import ApiResponse
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.resource import ExpiredError, RefusedError
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.watches import Watches
from gpu_scheduler.settings import RunSettings
from gpu_scheduler.webhook.admission import Webhook
from gpu_scheduler.webhook.metrics import WebhookMetrics
from tests.fuzz import seeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.http.client import ApiClient

LONGEST: Final = 1000
"""Bytes of the longest text that we say."""
PIECE: Final = 50
"""Bytes that come at once."""


@dataclass(frozen=True, slots=True)
class Target:
    """`check` raises when a promise is broken; `seeds` are where the fuzzer begins."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    longest: int
    """Bytes of the longest input."""


def check_map(data: bytes) -> None:
    """A text is a map that says the same when it is written out again, or one error that can be shown anywhere."""
    text = data.decode(errors="surrogateescape")
    try:
        parsed = parse_placement_map(text)
    except MapError as error:
        check_refusal(error, text.count("\n") + 1)
        return
    lines = [f"{slot.index}={slot.node}:{slot.value}" for slot in parsed.slots]
    assert lines
    for written in ("\n".join(lines), "# again\r\n" + "\r\n".join(reversed(lines)) + "\r\n \n"):
        again = parse_placement_map(written)
        assert again == parsed
        assert again.digest == parsed.digest


def check_refusal(error: MapError, lines: int) -> None:
    """It can be shown, and points at one of the lines or at all of them."""
    check_text(str(error))
    assert error.line is None or 1 <= error.line <= lines


def check_text(text: str) -> None:
    """It is printable and short, whatever it quotes."""
    assert text
    assert text.isprintable()
    assert len(text.encode()) <= LONGEST


class _Review:
    """A request as the webhook meets it, its body and its connection."""

    def __init__(self, path: str, body: bytes) -> None:
        self.path = path
        self.content = self
        self.content_length = len(body)
        self._body = body

    def __getitem__(self, _: object) -> _Review:
        return self

    async def readany(self) -> bytes:
        return self._body

    def request_completed(self) -> None:
        """See PeerConnection."""


class _Hook:
    """The webhook without a server around it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        app = Webhook("gpu-scheduler", WebhookMetrics(CollectorRegistry())).app()
        self._handlers = {route.resource.canonical: route.handler for route in app.router.routes() if route.resource}

    def answer(self, path: str, body: bytes) -> tuple[int, str]:
        """Status and text."""
        request = cast("web.Request", _Review(path, body))
        response: Any = self._loop.run_until_complete(cast("Any", self._handlers[path])(request))
        return response.status, response.body.decode()

    def ask(self, path: str, body: bytes) -> dict[str, Any] | None:
        """The response part; None where the review could not be read."""
        status, text = self.answer(path, body)
        if status != 200:
            assert status == 400
            assert text.startswith("cannot read AdmissionReview: ")
            return None
        response: dict[str, Any] = json.loads(text)["response"]
        if not response["allowed"]:
            assert response["status"]["code"] in {400, 403}
            check_text(response["status"]["message"])
        for warning in response.get("warnings", ()):
            check_text(warning)
        return response


_HOOK: Final = _Hook()


def check_review(data: bytes) -> None:
    """Every review gets a typed answer; a patch applied twice is the patch applied once, and then it validates."""
    for path in ("/mutate", "/mutate-job", "/validate"):
        _HOOK.ask(path, data)
    try:
        given = json.loads(data)
        body = json.dumps(given).encode()
    except (ValueError, RecursionError):
        return
    for path in ("/mutate", "/mutate-job"):
        said = _HOOK.ask(path, body)
        if said is None or "patch" not in said:
            continue
        patch = json.loads(b64decode(said["patch"]))
        given["request"]["object"] = jsonpatch.apply_patch(given["request"]["object"], patch)
        body = json.dumps(given).encode()
        again = _HOOK.ask(path, body)
        assert again is not None
        assert again["allowed"]
        assert "patch" not in again
        if path == "/mutate":
            assert _HOOK.ask("/validate", body) == {"uid": given["request"]["uid"], "allowed": True}


class _Stream:
    """An API server that says these bytes to whoever watches."""

    def __init__(self) -> None:
        self.said = b""

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """See Api."""
        yield ApiResponse(200, b""), self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.said), PIECE):
            yield self.said[start : start + PIECE]


_LOOP: Final = asyncio.new_event_loop()
_SETTINGS: Final = RunSettings(pod_name="fuzzed", kubernetes_namespace="gpu-scheduler-system")
# What `Reflector.run` answers with a pause or a list.
_DECLARED: Final = (ExpiredError, RefusedError, *UNREADABLE)


def _as_the_api_server_would(
    read: Callable[[msgspec.Raw], tuple[str, Pod]],
) -> Callable[[msgspec.Raw], tuple[str, Pod]]:
    """It sends pods of our scheduler alone, and no pod ever loses or changes its node."""
    places: dict[str, str | None] = {}

    def read_possible(raw: msgspec.Raw) -> tuple[str, Pod]:
        uid, given = read(raw)
        places[uid] = places.get(uid) or given.node
        return uid, replace(given, scheduler_name="gpu-scheduler", node=places[uid])

    return read_possible


def check_watches(data: bytes) -> None:
    """Whatever the watches say: who decides knows what they know, takes it in without an error, and can decide.

    The first byte of each part says which watch it is.
    """
    # The loop does not run, so that nobody is asked for anything.
    scheduler = Scheduler(Policy(), Ports(*cast("Any", (None,) * 5)))
    server = _Stream()
    watches = Watches(cast("ApiClient", server), scheduler, _SETTINGS)
    reflectors = list(watches._all.values())
    for each in reflectors:
        # An error of our own must not hide in the log.
        each._hand_over = lambda take, value: take(value)  # type: ignore[method-assign]
    pods = reflectors[-1]
    pods._resource = replace(pods._resource, read=_as_the_api_server_would(pods._resource.read))
    for part in data.split(seeds.BETWEEN):
        if part:
            server.said = part[1:]
            with suppress(*_DECLARED):
                _LOOP.run_until_complete(reflectors[part[0] % len(reflectors)]._watch())
    check_scheduler(scheduler, set(pods._known))


def check_scheduler(scheduler: Scheduler, known: set[str]) -> None:
    """It remembers the pods that the watch knows, its ledger follows from them, and each can be decided on."""
    assert scheduler.tracked.keys() == known
    assert scheduler.ledger.differences(scheduler.world.rebuild_ledger(scheduler.tracked)) == 0
    for tracked in scheduler.tracked.values():
        decision = decide(tracked.pod, scheduler.world.cluster)
        message = "" if decision is None else decision.message
        assert len(message.encode(errors="replace")) <= 2 * LONGEST
    scheduler.ledger.conflicts()


def check_objects(data: bytes) -> None:
    """What the controller's watches show of workloads, their pods and nodes is read, or is no such thing."""
    for read in (read_workload, read_seen_pod, read_gpu_node):
        with suppress(msgspec.DecodeError):
            key, _ = read(data)
            assert isinstance(key, str)


TARGETS: Final = {
    "map": Target(check_map, seeds.MAPS, 70_000),
    "review": Target(check_review, seeds.REVIEWS, 16_000),
    "objects": Target(check_objects, seeds.OBJECTS, 16_000),
    "watches": Target(check_watches, seeds.WATCHES, 16_000),
}
