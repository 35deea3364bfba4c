"""Client configuration: the API server's address, the CA to trust, and the client's credentials."""

from __future__ import annotations

import math
import ssl
import time
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.config.files import some_content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds after which a token's file is read again. Who writes it renews a token long before it expires.
TOKEN_AGE = 60.0


class ClientConfigError(Exception):
    """The kubeconfig or the service account cannot be used; the text says what to do."""


def anonymous() -> None:
    """Give no Authorization header: the client has a certificate, or no credentials."""


def bearer(token: str) -> str:
    """Return the Authorization header's value; raise ValueError if the token cannot stand in a header."""
    if not token.isprintable():
        raise ValueError("the token must be one line of printable characters")
    return f"Bearer {token}"


@immutable
class ClientConfig:
    """Address and credentials of an API server."""

    host: str
    authorization: Callable[[], str | None] = field(default=anonymous, repr=False)
    """Returns the value of the Authorization header, or None. Each request calls it."""
    authorities: str | None = None
    """The CAs to trust, as PEM; None for those of the system."""
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """The client's certificate and its key, as PEM."""
    verified: bool = True
    """False if the server's certificate is not looked at."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host."""
    proxy: str | None = None
    expires: float = math.inf
    """The Unix time from which the credentials are no longer valid. They must be read again then."""


class TokenFile:
    """Authorization by the token in a file, which is read again as it ages; OSError or ValueError if it has none."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file."""
        self._file = file
        self._clock = clock
        self._token = self._read()
        self._read_at = clock()

    def __call__(self) -> str:
        """Return the header's value. While the file cannot be read, return the old one."""
        if self._clock() >= self._read_at + TOKEN_AGE:
            try:
                self._token = self._read()
            except (OSError, ValueError):
                return self._token
            self._read_at = self._clock()
        return self._token

    def _read(self) -> str:
        return bearer(some_content_of(self._file).decode().strip())


def tls_of(configuration: ClientConfig) -> ssl.SSLContext:
    """Return a TLS context with the CAs and the certificate of `configuration`; raise ClientConfigError if unusable."""
    with _reported():
        context = ssl.create_default_context(cadata=configuration.authorities)
        _identify(context, configuration)
    # Python 3.13 enabled strict checks by default. Kubernetes' own clients make none, and many clusters' CAs fail them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trust(context: ssl.SSLContext, configuration: ClientConfig) -> None:
    """Load new CAs and a new client certificate into a context that is in use. Open connections stay open."""
    with _reported():
        if configuration.authorities:
            context.load_verify_locations(cadata=configuration.authorities)
        _identify(context, configuration)


def _identify(context: ssl.SSLContext, configuration: ClientConfig) -> None:
    if configuration.certificate is None:
        return
    # The library takes files only. These exist during this call, in a folder of this user's alone.
    with TemporaryDirectory() as folder:
        files = Path(folder, "crt"), Path(folder, "key")
        for file, content in zip(files, configuration.certificate, strict=True):
            file.touch(0o600)
            file.write_bytes(content)
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(*files, password=str)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ClientConfigError(f"cannot use the certificates of the configuration: {error}") from error
