"""The webhook as the API server meets it, without TLS."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from gpu_scheduler.adapters.admission import Webhook
from gpu_scheduler.adapters.metrics import WebhookMetrics
from tests.adapters.server import Object

Client = TestClient[web.Request, web.Application]

MAP = "0=node1:0,1\n1=node2:2\n"


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Client, Webhook, CollectorRegistry]]:
    """The webhook without TLS."""
    registry = CollectorRegistry()
    webhook = Webhook("gpu-scheduler", WebhookMetrics(registry))
    async with TestClient(TestServer(webhook.app())) as client:
        yield client, webhook, registry


def pod(text: str | None = MAP, name: str = "train-0", **spec: object) -> Object:
    """A pod as its author wrote it."""
    annotations = {} if text is None else {"gpu-scheduling-map": text}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main"}], **spec},
    }


def review(body: object, **more: object) -> Object:
    """An AdmissionReview as the API server sends it."""
    request = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "object": body,
        "oldObject": None,
        "options": {"kind": "CreateOptions"},
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def ask(client: Client, path: str, body: Object) -> Object:
    """Post a review and give the response part."""
    # As the API server writes it: characters as they are, not escaped.
    data = BytesIO(json.dumps(body, ensure_ascii=False).encode())
    async with client.post(path, data=data) as response:
        assert response.status == 200
        answer: Object = await response.json()
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "review-1"
    given: Object = answer["response"]
    return given
