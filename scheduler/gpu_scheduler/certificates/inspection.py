"""What a client of the webhook finds in its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from gpu_scheduler.certificates.issuing import is_signed_by, names_in
from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@immutable
class Inspection:
    """When a certificate is valid, whether it is made for the name that clients ask for, and who distrusts it."""

    begins: datetime
    ends: datetime
    has_name: bool
    distrusted_by: tuple[str, ...]


def inspect(pem: bytes, name: str, bundles: Mapping[str, bytes], now: datetime) -> Inspection | None:
    """Return what is in the first certificate of `pem`; None if there is none that can be read.

    `bundles` are the CAs that each client trusts. A client trusts only a CA that is valid now.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = names_in(certificate)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    distrusted_by = [client for client, bundle in bundles.items() if not _trusts(bundle, certificate, now)]
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Inspection(begins, ends, name in names, tuple(distrusted_by))


def _trusts(bundle: bytes, certificate: x509.Certificate, now: datetime) -> bool:
    try:
        authorities = x509.load_pem_x509_certificates(bundle)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return any(ca.not_valid_after_utc > now and is_signed_by(certificate, ca) for ca in authorities)
