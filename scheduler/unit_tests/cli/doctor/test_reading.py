from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpu_scheduler.cli.doctor.facts import Known, UnreadFact
from gpu_scheduler.cli.doctor.reading import fact, read_server
from gpu_scheduler.kube.http.client import NoResponseError
from unit_tests.kube.server import Reply, connected

DATES = {"the same": (0.0, 0.0), "an hour behind": (3600.0, -3600.0), "an hour ahead": (-3600.0, 3600.0)}


@pytest.mark.parametrize(("server_ahead", "expected"), DATES.values(), ids=DATES)
async def test_the_clock_of_the_api_server(server_ahead: float, expected: float) -> None:
    """By the Date of an answer; all ages are measured by it."""
    began = datetime.now(UTC)
    date = began + timedelta(seconds=server_ahead)
    reply = Reply(body={"major": "1", "minor": "30"}, headers={"Date": f"{date:%a, %d %b %Y %H:%M:%S} GMT"})
    async with connected() as (server, api):
        server.on("GET", "/version", reply)
        clock, ahead, version = await read_server(api)

    ages = [clock.age(date.isoformat()), clock.age(f"{date:%Y-%m-%dT%H:%M:%S}")]
    # The Date has whole seconds, and the test takes a while.
    near = 1 + (datetime.now(UTC) - began).total_seconds()
    assert ahead.value == pytest.approx(expected, abs=near)
    assert ages == pytest.approx([0, 0], abs=near)
    assert clock.age("yesterday") == clock.age(None) == float("inf")
    assert version == Known((1, 30))


async def test_an_answer_without_a_date_or_a_version() -> None:
    """Then this machine's clock counts, and nobody knows whether it is right."""
    began = datetime.now(UTC)
    async with connected() as (server, api):
        server.on("GET", "/version", Reply(body={"major": "one", "minor": "30"}, headers={"Date": "today"}))
        clock, ahead, version = await read_server(api)

    assert isinstance(ahead, UnreadFact)
    assert isinstance(version, UnreadFact)
    assert began < clock.now() < datetime.now(UTC) + timedelta(seconds=1)


async def fails(error: Exception) -> None:
    raise error


ERRORS = {
    "no answer": (NoResponseError("GET /: TimeoutError"), "no answer from the API server: GET /: TimeoutError"),
    "an answer that is no JSON": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "the API server's answer cannot"),
}


@pytest.mark.parametrize(("error", "why"), ERRORS.values(), ids=ERRORS)
async def test_a_fact_that_cannot_be_read_says_why(error: Exception, why: str) -> None:
    """And how to look at the API server itself."""
    found = await fact("list pods", fails(error))

    assert isinstance(found, UnreadFact)
    assert found.why.startswith(why)
    assert found.remedy == "kubectl get --raw '/readyz?verbose'"
