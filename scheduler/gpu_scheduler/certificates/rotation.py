"""What the two Secrets shall hold, while a CA is replaced too. Time is an argument; only keys are random.

A new CA signs only when the API server trusts it. Until then the one before signs, and both are trusted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from cryptography import x509

from gpu_scheduler.certificates.issuing import (
    CA_KEY,
    CERTIFICATE,
    KEY,
    PREVIOUS,
    TRUSTED,
    UNREADABLE,
    CaError,
    end_of,
    is_signed_by,
    issue,
    issue_ca,
    names_in,
    read_authority,
    reason_to_renew,
    still_trusted,
)
from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from gpu_scheduler.certificates.issuing import Authority, Terms

    Data = Mapping[str, bytes]


class Force(StrEnum):
    """What is issued, due or not."""

    NONE = "none"
    SERVING = "serving"
    CA = "ca"


@immutable
class Stored:
    """The data of both Secrets, empty if there are none, and the CAs by which each registered webhook is trusted."""

    ca: Data
    pair: Data
    bundles: tuple[bytes, ...] = ()

    def trusts(self, certificate: bytes) -> bool:
        """Return whether the API server trusts this CA. Before a webhook is registered every CA counts as trusted."""
        return all(certificate.strip() in bundle for bundle in self.bundles)


@immutable
class Rotation:
    """What the Secrets shall hold now."""

    ca: Data
    pair: Data
    waits: int | None = None
    """Days left of a pair that is due, and is issued when the API server trusts the new CA; None if none is."""
    refused: bool = False
    """Whether a pair is asked for that nobody would trust."""


def rotate(
    stored: Stored, terms: Terms, ca_validity: timedelta, now: datetime, *, force: Force = Force.NONE
) -> Rotation:
    """Issue what is missing, due or forced. CaError if the stored CA cannot be used."""
    current = _adopted(stored.ca)
    ca_is_due = not current or force is Force.CA or _ends_too_soon(current, terms, now)
    newest = issue_ca(ca_validity, now, _previous(current, stored.pair, now)) if ca_is_due else current
    ca_is_trusted = not ca_is_due and stored.trusts(newest[TRUSTED])
    signer = newest[TRUSTED], newest[CA_KEY]
    if not ca_is_trusted and _is_usable(current, now):
        signer = current[CERTIFICATE], current[KEY]
    ca = {**newest, CERTIFICATE: signer[0], KEY: signer[1]}
    authority = read_authority(ca)
    is_lost = _is_lost(stored.pair, authority, terms, now)
    is_due = is_lost or force is Force.SERVING or _is_due(stored.pair, authority, terms, now)
    refused = force is Force.SERVING and not (is_lost or ca_is_trusted)
    if is_lost or (is_due and stored.trusts(signer[0])):
        return Rotation(ca, issue(authority, terms, now), None, refused)
    pair = {CERTIFICATE: stored.pair[CERTIFICATE], KEY: stored.pair[KEY], TRUSTED: authority.trusted}
    return Rotation(ca, pair, (end_of(pair) - now).days if is_due else None, refused)


def _adopted(ca: Data) -> dict[str, bytes]:
    """Return the stored CA with all keys; empty if there is none.

    A CA that cert-manager made, by an earlier version, is in CERTIFICATE and KEY alone. Another one signed with the
    newest.
    """
    names = (TRUSTED, CA_KEY) if CA_KEY in ca else (CERTIFICATE, KEY)
    certificate, key = (ca.get(name, b"") for name in names)
    if not certificate:
        return {}
    return {
        TRUSTED: certificate,
        CA_KEY: key,
        PREVIOUS: ca.get(PREVIOUS, b""),
        CERTIFICATE: ca.get(CERTIFICATE) or certificate,
        KEY: ca.get(KEY) or key,
    }


def _ends_too_soon(ca: Data, terms: Terms, now: datetime) -> bool:
    """Return whether the CA could not outlive a pair that it signs when the present one is due."""
    return _read(ca[TRUSTED]).not_valid_after_utc - now < terms.validity + terms.due


def _previous(ca: Data, pair: Data, now: datetime) -> bytes:
    """Return the CAs that stay trusted beside a new one.

    The last two, as pods take a minute or two to serve a new pair; the one that signed the stored pair; and the one
    that signs until the new one is trusted.
    """
    if not ca:
        return b""
    signer = _read(ca[CERTIFICATE])
    try:
        certificate = x509.load_pem_x509_certificate(pair[CERTIFICATE])
    except (*UNREADABLE, KeyError):
        return still_trusted(_bundle(ca), now, lambda each: each == signer)
    return still_trusted(_bundle(ca), now, lambda each: each == signer or is_signed_by(certificate, each))


def _is_usable(ca: Data, now: datetime) -> bool:
    """Return whether the CA that signed so far may go on: it is trusted and has not ended."""
    return bool(ca) and ca[CERTIFICATE].strip() in _bundle(ca) and _read(ca[CERTIFICATE]).not_valid_after_utc > now


def _bundle(ca: Data) -> bytes:
    return ca[TRUSTED] + b"\n" + ca[PREVIOUS]


def _read(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except UNREADABLE as error:
        raise CaError.unreadable(error) from error


def _is_lost(pair: Data, authority: Authority, terms: Terms, now: datetime) -> bool:
    """Return whether no API server accepts the pair. Another one, whoever signs it, cannot be worse."""
    try:
        certificate = x509.load_pem_x509_certificate(pair[CERTIFICATE])
        is_named = names_in(certificate) == set(terms.names)
    except (*UNREADABLE, KeyError):
        return True
    trusted = x509.load_pem_x509_certificates(authority.trusted)
    is_signed = any(is_signed_by(certificate, ca) for ca in trusted)
    return not (is_named and is_signed and KEY in pair and certificate.not_valid_after_utc > now)


def _is_due(pair: Data, authority: Authority, terms: Terms, now: datetime) -> bool:
    try:
        return bool(reason_to_renew(pair, authority, terms, now))
    except CaError:
        # It ends with the CA that signs now. There is a new one, which renews it once it is trusted.
        return True
