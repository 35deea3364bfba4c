"""A container engine's API on a Unix socket: it has some images, may pull, and pushes to a registry that may refuse."""

from __future__ import annotations

import json
import re
import socketserver
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

DIGEST = f"sha256:{'d' * 64}"
VERSION = re.compile(r"^/v[0-9.]+")


@dataclass(slots=True)
class Engine:
    """What the engine has, what its registry answers, and what was asked of it."""

    images: set[str] = field(default_factory=set)
    pull_error: str = ""
    push_error: str = ""
    pulled: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)

    def image(self, name: str) -> Json:
        """Return an image as the engine describes it; one that was pushed has its digest."""
        repository = name.rpartition(":")[0]
        digests = [f"{repository}@{DIGEST}"] if name in self.pushed else []
        return {"Id": f"sha256:{name}", "RepoTags": [name], "RepoDigests": digests, "Architecture": "amd64", "Size": 1}

    def answer(self, method: str, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return the status and the body."""
        # Each client says another version.
        match method, unquote(VERSION.sub("", path)).removeprefix("/images"):
            case _, "/version":
                return 200, {"ApiVersion": "1.41", "Version": "20.10.24", "MinAPIVersion": "1.12"}
            case _, "/info":
                return 200, {"ServerVersion": "20.10.24", "IndexServerAddress": "https://index.docker.io/v1/"}
            case "GET", "/json":
                return 200, [self.image(name) for name in sorted(self.images)]
            case "POST", "/create":
                return self.pull(f"{query['fromImage'][0]}:{query['tag'][0]}")
            case "POST", rest:
                return 200, self.push(f"{rest[1:].removesuffix('/push')}:{query['tag'][0]}")
            case _, rest:
                name = rest[1:].removesuffix("/json")
                found = [each for each in self.images if name in (each, f"sha256:{each}")]
        return (200, self.image(found[0])) if found else (404, {"message": "no such image"})

    def pull(self, name: str) -> tuple[int, Json]:
        """Have the image from now on, unless the registry refuses."""
        self.pulled.append(name)
        if self.pull_error:
            return 500, {"message": self.pull_error}
        self.images.add(name)
        return 200, {"status": f"Status: Downloaded newer image for {name}"}

    def push(self, name: str) -> Json:
        """Return the last line of the engine's answer."""
        if self.push_error:
            return {"errorDetail": {"message": self.push_error}, "error": self.push_error}
        self.pushed.append(name)
        return {"status": "Pushed"}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def serving(engine: Engine, socket: Path) -> Iterator[None]:
    """Serve the engine's API on this socket."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            address = urlsplit(self.path)
            status, body = engine.answer(self.command, address.path, parse_qs(address.query))
            content = json.dumps(body).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = handle_any  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Print nothing."""

        def address_string(self) -> str:
            return "socket"

    with _Server(str(socket), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
