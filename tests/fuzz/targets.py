"""The fuzz targets: each takes bytes and checks properties of the result.

LAW: each target is a plain function that raises only when a property is broken; nothing here needs the fuzzer.
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

from gpu_scheduler.controller.translation import read_gpu_node, read_watched_pod, read_workload
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.pods.placement_map import MapError, parse_placement_map
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube.http.client import ApiResponse
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.resource import ExpiredError, RefusedError
from gpu_scheduler.scheduler.claim_allocator import DeviceClasses
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
"""Bytes of the longest text that we write."""
PIECE: Final = 50
"""Bytes of each chunk of a stream."""


@dataclass(frozen=True, slots=True)
class Target:
    """`check` raises when a property is broken; `seeds` are the fuzzer's first inputs."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    longest: int
    """Bytes of the longest input."""


def check_map(data: bytes) -> None:
    """A text is either a map that stays the same when it is written and read again, or a printable MapError."""
    text = data.decode(errors="surrogateescape")
    try:
        parsed = parse_placement_map(text)
    except MapError as error:
        check_refusal(error, text.count("\n") + 1)
        return
    lines = [str(slot) for slot in parsed.slots]
    assert lines
    for written in ("\n".join(lines), "# again\r\n" + "\r\n".join(reversed(lines)) + "\r\n \n"):
        again = parse_placement_map(written)
        assert again == parsed
        assert again.digest == parsed.digest


def check_refusal(error: MapError, lines: int) -> None:
    """The message can be printed, and its line is one of the text's lines or none."""
    check_text(str(error))
    assert error.line is None or 1 <= error.line <= lines


def check_text(text: str) -> None:
    """The text is printable and short, whatever it quotes."""
    assert text
    assert text.isprintable()
    assert len(text.encode()) <= LONGEST


class _Review:
    """A fake request for the webhook, with body and connection."""

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
    """The webhook without a server."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        app = Webhook("gpu-scheduler", WebhookMetrics(CollectorRegistry())).app()
        self._handlers = {route.resource.canonical: route.handler for route in app.router.routes() if route.resource}

    def answer(self, path: str, body: bytes) -> tuple[int, str]:
        """Return status and text."""
        request = cast("web.Request", _Review(path, body))
        response: Any = self._loop.run_until_complete(cast("Any", self._handlers[path])(request))
        return response.status, response.body.decode()

    def ask(self, path: str, body: bytes) -> dict[str, Any] | None:
        """Return the response part of the review; None if the webhook could not read the review."""
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
    """Every review gets a typed answer. A patch applied twice equals one applied once, and the result is valid."""
    for path in ("/mutate", "/mutate-dra", "/mutate-job", "/validate", "/validate-dra", "/warn"):
        answered = _HOOK.ask(path, data)
        assert path != "/warn" or answered is None or (answered["allowed"] and "patch" not in answered)
    try:
        given = json.loads(data)
        body = json.dumps(given).encode()
    except (ValueError, RecursionError):
        return
    for path, valid in (("/mutate", "/validate"), ("/mutate-dra", "/validate-dra"), ("/mutate-job", "")):
        output = _HOOK.ask(path, body)
        if output is None or "patch" not in output:
            continue
        patch = json.loads(b64decode(output["patch"]))
        patched = jsonpatch.apply_patch(given["request"]["object"], patch)
        complete = json.dumps({**given, "request": {**given["request"], "object": patched}}).encode()
        again = _HOOK.ask(path, complete)
        assert again is not None
        assert again["allowed"]
        assert "patch" not in again
        if valid:
            assert _HOOK.ask(valid, complete) == {"uid": given["request"]["uid"], "allowed": True}


class _Stream:
    """A fake API server whose watches return these bytes."""

    def __init__(self) -> None:
        self.output = b""

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """See Api."""
        yield ApiResponse(200, b""), self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.output), PIECE):
            yield self.output[start : start + PIECE]


_LOOP: Final = asyncio.new_event_loop()
_SETTINGS: Final = RunSettings(pod_name="fuzzed", kubernetes_namespace="gpu-scheduler-system")
# Errors that `Reflector.run` handles by a pause or a list.
_DECLARED: Final = (ExpiredError, RefusedError, *UNREADABLE)


def _as_the_api_server_would(
    read: Callable[[msgspec.Raw], tuple[str, Pod]],
) -> Callable[[msgspec.Raw], tuple[str, Pod]]:
    """Make events possible: each pod is of our scheduler, and a bound pod keeps its node."""
    places: dict[str, str | None] = {}

    def read_possible(raw: msgspec.Raw) -> tuple[str, Pod]:
        uid, given = read(raw)
        places[uid] = places.get(uid) or given.node
        return uid, replace(given, scheduler_name="gpu-scheduler", node=places[uid])

    return read_possible


def check_watches(data: bytes) -> None:
    """For any watch events the scheduler knows the watches' objects, applies them without an error, and can decide.

    The first byte of each part selects the watch.
    """
    # The loop does not run, so no port is called.
    scheduler = Scheduler(Policy(), Ports(*cast("Any", (None,) * 7)))
    server = _Stream()
    watches = Watches(cast("ApiClient", server), scheduler, _SETTINGS, device_classes=DeviceClasses())
    reflectors = list(watches._all.values())
    for each in reflectors:
        # An error of our own must not be only logged.
        each._deliver = lambda key, take, value: take(value)  # type: ignore[method-assign]  # noqa: ARG005 - named as there
    pods = reflectors[-1]
    pods._resource = replace(pods._resource, read=_as_the_api_server_would(pods._resource.read))
    for part in data.split(seeds.BETWEEN):
        if part:
            server.output = part[1:]
            with suppress(*_DECLARED):
                _LOOP.run_until_complete(reflectors[part[0] % len(reflectors)]._watch())
    check_scheduler(scheduler, set(pods._known))


def check_scheduler(scheduler: Scheduler, known: set[str]) -> None:
    """The scheduler has the pods of the watch, its ledger is derived from them, and it can decide on each."""
    assert scheduler.pod_states.keys() == known
    assert scheduler.ledger.differences(scheduler.cache.rebuild_ledger(scheduler.pod_states)) == 0
    for state in scheduler.pod_states.values():
        decision = decide(state.pod, scheduler.cache.cluster)
        message = "" if decision is None else decision.message
        assert len(message.encode(errors="replace")) <= 2 * LONGEST
    scheduler.ledger.conflicts()


def check_objects(data: bytes) -> None:
    """The controller's watches either read any workload, pod or node, or reject it as malformed."""
    for read in (read_workload, read_watched_pod, read_gpu_node):
        with suppress(msgspec.DecodeError):
            key, _ = read(data)
            assert isinstance(key, str)


TARGETS: Final = {
    "map": Target(check_map, seeds.MAPS, 70_000),
    "review": Target(check_review, seeds.REVIEWS, 16_000),
    "objects": Target(check_objects, seeds.OBJECTS, 16_000),
    "watches": Target(check_watches, seeds.WATCHES, 16_000),
}
