"""The webhook's certificate: read from a mounted directory, and swapped into the live TLS context when it changes.

The directory is polled: a kubelet replaces a whole symlinked folder, and polling detects this on every file system.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CERTIFICATE = "tls.crt"
KEY = "tls.key"

# Tags of the few ASN.1 types on the way to a certificate's validity (X.690 8.1.2, RFC 5280 4.1).
_VERSION = 0xA0
_UTC_TIME = 0x17
_LONG_FORM = 0x80

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """The pair in the directory cannot be served; the message names the file and the remedy."""


@immutable
class Validity:
    """When a certificate is valid, in seconds since the epoch."""

    begins: float
    ends: float


class ServingCertificate:
    """A TLS context that serves the pair (certificate and key) which the directory has now."""

    def __init__(
        self, directory: Path, *, client_ca: Path | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        """Load the pair and, if given, the CA of client certificates. CertificateError if either cannot be used."""
        self._certificate = directory / CERTIFICATE
        self._key = directory / KEY
        self._wall = wall
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if client_ca is not None:
            self._require_client_certificate(client_ca)
        self._stamp: tuple[int, ...] = ()
        self.validity = Validity(0, 0)
        self.reload_if_changed()

    def _require_client_certificate(self, client_ca: Path) -> None:
        try:
            self.context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"cannot read the authority of clients from {client_ca}: {error} "
                "(it must be a file of PEM certificates, example: CLIENT_CA=/etc/gpu-scheduler/client-ca/ca.crt)",
            ) from error
        self.context.verify_mode = ssl.CERT_REQUIRED

    def reload_if_changed(self) -> bool:
        """Load the pair if its files have changed. Return True if a new pair was loaded.

        CertificateError if it cannot be loaded; the old pair is then still served.
        """
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        try:
            # First into a separate context: a half-written pair must not get into the live one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            validity = read_validity(self._certificate.read_text(encoding="ascii"))
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"cannot serve {self._certificate} with {self._key}: {error} "
                "(they must be a PEM certificate and its unencrypted key)",
            ) from error
        self._stamp, self.validity = stamp, validity
        return True

    async def keep_fresh(self, seconds: float) -> None:
        """Check for a new pair every `seconds`, until cancelled. Log a pair that cannot be loaded, and try it again."""
        while True:
            await asyncio.sleep(seconds)
            try:
                if self.reload_if_changed():
                    ends = datetime.fromtimestamp(self.validity.ends, UTC).isoformat()
                    log.info(
                        "Serving a new certificate", extra={"certificate": str(self._certificate), "valid_until": ends}
                    )
            except CertificateError as error:
                log.error("The new certificate cannot be served, the old one stays", extra={"error": str(error)})  # noqa: TRY400

    def problem(self) -> str | None:
        """Return why the certificate that is served is not valid now; None if it is valid."""
        now = self._wall()
        if now < self.validity.begins:
            return "the certificate is not valid yet"
        if now >= self.validity.ends:
            return "the certificate has expired"
        return None

    def seconds_left(self) -> float:
        """Seconds until the served certificate expires; negative afterwards."""
        return self.validity.ends - self._wall()

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            stats = [path.stat() for path in (self._certificate, self._key)]
        except OSError as error:
            raise CertificateError(
                f"cannot read the serving certificate: {error} "
                "(example: CERTIFICATE_DIR=/etc/gpu-scheduler/tls with tls.crt and tls.key)",
            ) from error
        return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_ino, stat.st_size))


def read_validity(pem: str) -> Validity:
    """Return when the first certificate of `pem` is valid. ValueError if there is none or it cannot be read.

    The standard library gives a certificate's dates only for a peer. So this parses the certificate as far as its
    dates: it enters Certificate and TBSCertificate, then skips version (optional), serial number, signature and issuer.
    """
    end = "-----END CERTIFICATE-----"
    start = pem.find("-----BEGIN CERTIFICATE-----")
    if start < 0 or end not in pem[start:]:
        raise ValueError("no certificate in PEM form")
    der = ssl.PEM_cert_to_DER_cert(pem[start : pem.index(end, start) + len(end)])
    try:
        _, position, _ = _element(der, 0)
        _, position, _ = _element(der, position)
        tag, _, after = _element(der, position)
        if tag == _VERSION:
            position = after
        for _ in ("serial number", "signature", "issuer"):
            _, _, position = _element(der, position)
        _, position, _ = _element(der, position)
        _, _, second = _element(der, position)
        return Validity(_time(der, position), _time(der, second))
    except IndexError as error:
        raise ValueError("the certificate is cut short") from error


def _element(der: bytes, position: int) -> tuple[int, int, int]:
    """Return the tag of an element, where its content begins, and where the next element begins."""
    tag, length, content = der[position], der[position + 1], position + 2
    if length & _LONG_FORM:
        octets = length & ~_LONG_FORM
        length = int.from_bytes(der[content : content + octets], "big")
        content += octets
    return tag, content, content + length


def _time(der: bytes, position: int) -> float:
    """Return a time in seconds since the epoch.

    UTCTime has two digits for the year: 50 to 99 are of the 20th century. GeneralizedTime has four digits.
    """
    tag, content, end = _element(der, position)
    text = der[content:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text  # noqa: PLR2004 - RFC 5280, 4.1.2.5.1
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
