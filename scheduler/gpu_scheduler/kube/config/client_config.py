"""How a cluster is reached: where it is, whom to trust, and who we are to it."""

from __future__ import annotations

import ssl
from typing import Any, Protocol


class ClientConfigError(Exception):
    """Neither a kubeconfig nor a service account leads to an API server; the text says what to do."""


class ClientConfig(Protocol):
    """How a cluster is reached: the client's Configuration fits, and InClusterConfig for the pod's own cluster."""

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
        """What goes into the Authorization header, read again where it has aged."""


def tls_of(configuration: ClientConfig) -> ssl.SSLContext:
    """Make a context of what a configuration trusts and shows."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    # Python 3.13 turned on checks that Kubernetes' own clients do not make and that many clusters' CAs fail.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trust(context: ssl.SSLContext, configuration: ClientConfig) -> None:
    """Teach the live context a new CA and client certificate; connections that are open live on."""
    if configuration.ssl_ca_cert or configuration.ca_cert_data:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
