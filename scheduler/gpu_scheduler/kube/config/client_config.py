"""Client configuration: the API server's address, the CA to trust, and the client's credentials."""

from __future__ import annotations

import ssl
from typing import Any, Protocol


class ClientConfigError(Exception):
    """The kubeconfig or the service account cannot be used; the text says what to do."""


class ClientConfig(Protocol):
    """Address and credentials of an API server.

    The Kubernetes client's Configuration has this shape; so has InClusterConfig, for the pod's own cluster.
    """

    host: str
    ssl_ca_cert: str | None
    ca_cert_data: str | bytes | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    proxy: str | None
    proxy_headers: Any
    tls_server_name: str | None

    async def get_api_key_with_prefix(self, _identifier: str, /, alias: str | None = None) -> str | None:
        """Return the value of the Authorization header, or None. Read the token again when it is old."""


def tls_of(configuration: ClientConfig) -> ssl.SSLContext:
    """Return a TLS context with the CA and the client certificate of `configuration`."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    # Python 3.13 enabled strict checks by default. Kubernetes' own clients make none, and many clusters' CAs fail them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trust(context: ssl.SSLContext, configuration: ClientConfig) -> None:
    """Load a new CA and client certificate into a context that is in use. Open connections stay open."""
    if configuration.ssl_ca_cert or configuration.ca_cert_data:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
