"""The reflectors that all commands with watches share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpu_scheduler.kube.resource import ReflectorTimings, Resource
from gpu_scheduler.process import reflectors
from gpu_scheduler.process.reflectors import Reflectors
from unit_tests.kube.server import Reply, Watch, connected, until
from unit_tests.kube.test_reflector import RecordingHandler, named, read

if TYPE_CHECKING:
    import pytest

PATH = "/api/v1/things"


async def test_the_first_list_waits_for_the_lease_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lease that cannot be read must not keep a replica from becoming a warm standby."""
    monkeypatch.setattr(reflectors, "FIRST_LIST_WAIT", 0.2)
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(200, {"metadata": {"resourceVersion": "7"}, "items": []}))
        server.on("WATCH", PATH, Watch())
        watches = Reflectors(api, ReflectorTimings(idle_limit=5))
        watches.watch(Resource("things", PATH, None, read, named), RecordingHandler())
        (part,) = watches.parts(after=asyncio.Event()).values()
        running = asyncio.create_task(part)
        try:
            await asyncio.sleep(0.1)
            assert not server.asked("GET")
            assert watches.unlisted() == "not listed yet: things"

            await until(lambda: watches.unlisted() is None)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
