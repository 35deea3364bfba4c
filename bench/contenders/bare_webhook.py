"""The program of contender H: a minimal aiohttp webhook that reads each AdmissionReview and gives each pod GPU 0.

It takes certificate and ports from the environment as `gpu-scheduler webhook` does. /metrics counts reviews by path.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from asyncio.sslproto import SSLProtocol
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.objects import literal

DEVICES: Final = "0"
"""What every pod sees: the program reads no map."""
_ADDED: Final = {"op": "add", "path": "/spec/containers/0/env", "value": literal(DEVICES)}
_PATCH: Final = b64encode(json.dumps([_ADDED]).encode())
_PATCHED: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"',
    b'","allowed":true,"patchType":"JSONPatch","patch":"' + _PATCH + b'"}}',
)
_UID: Final = b'"uid":"'
"""The API server writes the review's own uid before any other uid."""

_asked: Counter[str] = Counter()


async def _patch(request: web.Request) -> web.Response:
    uid = (await request.read()).split(_UID, 1)[1].split(b'"', 1)[0]
    _asked[request.path] += 1
    return web.Response(body=uid.join(_PATCHED), content_type="application/json")


async def _metrics(_: web.Request) -> web.Response:
    lines = (f'admission_reviews_total{{path="{path}"}} {times}\n' for path, times in _asked.items())
    return web.Response(text="".join(lines))


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


async def _serve() -> None:
    """Serve until the process is ended."""
    # As ours. With our image's threshold of malloc, buffers of 256 KiB would be mapped anew: half as much CPU again.
    SSLProtocol.max_size = 32 * 1024
    app = web.Application()
    app.router.add_post("/mutate", _patch)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/readyz", _ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    pair = Path(os.environ["CERTIFICATE_DIR"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    address = os.environ["BIND_ADDRESS"]
    await web.TCPSite(runner, address, int(os.environ["WEBHOOK_PORT"]), ssl_context=tls).start()
    await web.TCPSite(runner, address, int(os.environ["HTTP_PORT"])).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
