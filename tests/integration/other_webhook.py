"""Another webhook than ours, which patches pods."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from tests.integration.webhook_process import CONFIGURATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

NAME: Final = "zz-sidecars"
"""The API server calls webhooks in the order of their configurations' names, so this one is called after ours."""


@contextmanager
def registered_after_ours(
    plane: ControlPlane, folder: Path, patch: Callable[[Object], list[Object]], selector: Object | None = None
) -> Iterator[None]:
    """Call a webhook for new pods in these namespaces, after ours and again after each change of another webhook.

    `patch` returns its JSON patch for a pod. `selector` is a namespaceSelector; without it, pods of all namespaces.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            encoded = base64.b64encode(json.dumps(patch(review["request"]["object"])).encode()).decode("ascii")
            answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
            data = json.dumps({**review, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = plane.serving_context(folder / "sidecars").wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = {
        "name": "sidecars.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(plane.ca.read_bytes()).decode("ascii"),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": selector or {},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "IfNeeded",
    }
    path = f"{CONFIGURATIONS}/mutatingwebhookconfigurations"
    plane.kube.create(path, {"metadata": {"name": NAME}, "webhooks": [webhook]})
    try:
        yield
    finally:
        plane.kube.delete(f"{path}/{NAME}")
        server.shutdown()
        server.server_close()
