"""How a cluster is reached: where it is, whom to trust, and who we are to it, by a kubeconfig or the pod's own account.

Inside a cluster the client is not even imported: it costs 14 MB in each process, and a monitor runs on every GPU node.
"""

from __future__ import annotations

import ssl
from typing import Any, Protocol

from gpu_scheduler.adapters.in_cluster import InCluster


class AccessError(Exception):
    """Neither a kubeconfig nor a service account leads to an API server; the text says what to do."""


class Access(Protocol):
    """How a cluster is reached, as the client's Configuration says it, and InCluster for the pod's own cluster."""

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


def tls_of(configuration: Access) -> ssl.SSLContext:
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


def trust(context: ssl.SSLContext, configuration: Access) -> None:
    """Teach the live context a new CA and client certificate; connections that are open live on."""
    if configuration.ssl_ca_cert or configuration.ca_cert_data:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)


class Reload:
    """How this process finds its cluster: a kubeconfig when one is named, else the pod's service account."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """`kubeconfig` None means: inside the cluster."""
        self._kubeconfig = kubeconfig
        self.context = context or ""
        self.namespace = ""

    async def __call__(self) -> Access:
        """A fresh configuration; AccessError says what is missing."""
        try:
            if self._kubeconfig is None:
                return InCluster()
            # Here, because the client costs 14 MB that no pod needs.
            from gpu_scheduler.adapters.kubeconfig import read_kubeconfig  # noqa: PLC0415

            found = await read_kubeconfig(self._kubeconfig, self.context or None)
        except (OSError, TypeError, ValueError) as error:
            where = "a service account" if self._kubeconfig is None else f"kubeconfig {self._kubeconfig}"
            raise AccessError(
                f"cannot reach a cluster through {where}: {error} "
                "(example: --kubeconfig ~/.kube/config --context kind-gpu-scheduler)",
            ) from error
        self.context, self.namespace = found.context, found.namespace
        return found.access
