"""The webhook as the API server calls it, without TLS."""

import copy
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import jsonpatch
from aiohttp import ClientSession
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from gpu_scheduler.process.http_server import Listener
from gpu_scheduler.webhook.admission import Webhook
from gpu_scheduler.webhook.metrics import WebhookMetrics
from tests import objects
from tests.objects import Object

Client = ClientSession

MAP = "0=node1:0,1\n1=node2:2\n"
ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Client, Webhook, CollectorRegistry]]:
    """Yield a client, the webhook and its metrics, without TLS."""
    registry = CollectorRegistry()
    webhook = Webhook("gpu-scheduler", WebhookMetrics(registry))
    listener = Listener(webhook.app(), address="127.0.0.1", port=0, variable="WEBHOOK_PORT", limits=WEBHOOK_LIMITS)
    async with listener, ClientSession(f"http://127.0.0.1:{listener.port}") as client:
        yield client, webhook, registry


def pod(text: str | None = MAP, name: str = "train-0", **spec: Any) -> Object:
    return objects.pod(name, text, **spec)


async def ask(client: Client, path: str, body: Object) -> Object:
    """Post a review and return the response part."""
    # As the API server writes it: characters as they are, not escaped.
    data = BytesIO(json.dumps(body, ensure_ascii=False).encode())
    async with client.post(path, data=data) as response:
        assert response.status == 200
        answer: Object = await response.json()
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "review-1"
    given: Object = answer["response"]
    return given


def patched(body: Object, response: Object) -> Object:
    if "patch" not in response:
        return body
    assert response["patchType"] == "JSONPatch"
    result: Object = jsonpatch.apply_patch(body, json.loads(b64decode(response["patch"])))
    return result


def refusal_of(response: Object) -> str:
    """Return the message of a refusal, which is one printable sentence of at most 1,000 bytes."""
    message: str = response["status"]["message"]
    assert message.isprintable()
    assert len(message.encode()) <= 1000
    return message


def reviews_counted(registry: CollectorRegistry, path: str, outcome: str) -> float | None:
    """Return how many reviews the counter has with this outcome."""
    return registry.get_sample_value("gpu_scheduler_admission_reviews_total", {"path": path, "outcome": outcome})


def with_odd_values(body: Any, odd: st.SearchStrategy[Any] = ODD) -> st.SearchStrategy[Any]:
    """Return this document with an odd value at one path."""

    def changed(at: tuple[str | int, ...], value: Any) -> Any:
        if not at:
            return value
        result = target = copy.deepcopy(body)
        for key in at[:-1]:
            target = target[key]
        target[at[-1]] = value
        return result

    return st.builds(changed, st.sampled_from(paths(body)), odd)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    if isinstance(value, list):
        inner = list(enumerate(value))
    return [at, *(found for key, each in inner for found in paths(each, (*at, key)))]
