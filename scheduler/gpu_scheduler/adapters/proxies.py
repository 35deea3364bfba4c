"""The way out that the environment names for everybody: HTTPS_PROXY, and NO_PROXY for who needs none."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of(host: str) -> str | None:
    """The environment's proxy for this address; to be asked once, since none changes while a process runs."""
    address = urlsplit(host)
    if proxy_bypass(address.netloc):
        return None
    return getproxies().get(address.scheme)
