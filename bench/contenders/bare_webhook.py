"""H's program: the least that answers an AdmissionReview over aiohttp; it reads the body and allows all.

Certificate and ports are given as to `gpu-scheduler webhook`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final

from aiohttp import web

_ALLOWED: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
    b'"response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}'
)


async def _allow(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=_ALLOWED, content_type="application/json")


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


async def _serve() -> None:
    """Serve until the process is ended."""
    app = web.Application()
    app.router.add_post("/mutate", _allow)
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
