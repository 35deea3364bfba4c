"""Configuration of the pod's own cluster, from its service account's volume and the kubelet's variables.

It has the attributes of the Kubernetes client's Configuration, but does not import the client.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds after which the token is read again. The kubelet renews a token long before it expires.
TOKEN_AGE = 60.0


class InClusterConfig:
    """Address and credentials for the pod's API server; ValueError or OSError if variables or files are missing."""

    ca_cert_data: str | bytes | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl = True
    proxy: str | None = None
    proxy_headers: object = None
    tls_server_name: str | None = None

    def __init__(
        self,
        account: Path | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`account` is the folder with the files `token` and `ca.crt`."""
        address, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not address or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        folder = account or SERVICE_ACCOUNT
        self.host = f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"
        authority = folder / "ca.crt"
        if not authority.read_bytes().strip():
            raise ValueError(f"{authority} is empty")
        self.ssl_ca_cert: str | None = str(authority)
        self._file = folder / "token"
        self._clock = clock
        self._token = self._read()
        self._read_at = clock()

    async def get_api_key_with_prefix(self, _identifier: str, /, alias: str | None = None) -> str | None:  # noqa: ARG002 - as the client has it
        """See ClientConfig. While the file cannot be read, return the old token."""
        if self._clock() >= self._read_at + TOKEN_AGE:
            try:
                self._token = self._read()
            except (OSError, ValueError):
                return self._token
            self._read_at = self._clock()
        return self._token

    def _read(self) -> str:
        token = self._file.read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{self._file} is empty")
        return f"Bearer {token}"
