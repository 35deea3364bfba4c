"""When the webhook's certificate is due, and how it and its CA are issued. Time is an argument; only keys are random.

Role certificates, the Job, the CronJob and the verb issue with it: each may go on with what another one made.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.names import CA_SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
TRUSTED: Final = "ca.crt"
"""In the CA's Secret the newest CA; in the serving Secret every CA to trust."""
CA_KEY: Final = "ca.key"
"""The newest CA's key. KEY is that of the CA that signs, which is another one during a rotation."""
PREVIOUS: Final = "previous.crt"

_CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far before now a certificate begins: the clock of an API server may be behind ours."""
_LEAST_GAIN: Final = timedelta(days=1)
"""A pair that would end less than this later than the present one is not issued."""
_MOST_PREVIOUS: Final = 2
"""How many CAs before a new one stay trusted."""
UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""What the library raises for PEM that has no certificate or key, or none that it can use."""

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class IssuingError(Exception):
    """A certificate cannot be issued; the text says why and what to do."""


class CaError(IssuingError):
    """The CA cannot sign. `problem` is the text without the remedy, which is for Secrets in a cluster."""

    def __init__(self, problem: str, *, runs: str = "") -> None:
        """`runs`: how often the play must run, if not once."""
        super().__init__(
            f"{problem}; run `make up ARGS='--tags certificates,webhook'`{runs}; where Helm installed it, delete "
            f"Secret {CA_SECRET} and run `helm upgrade`; where `gpu-scheduler certificates` made it, run that with "
            "--new-ca"
        )
        self.problem = problem

    @classmethod
    def unreadable(cls, error: Exception) -> CaError:
        """Return the error of a CA that is no certificate and key."""
        return cls(f"cannot read the CA in Secret {CA_SECRET}: {error}")


@immutable
class Terms:
    """For which names a certificate is made, how long it is valid, and when it is due."""

    names: tuple[str, ...]
    validity: timedelta
    due: timedelta


@immutable
class Authority:
    """The CA that signs, and every CA to trust, in PEM form."""

    certificate: x509.Certificate
    key: SigningKey
    trusted: bytes


def names_of(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names of a Service: API servers ask for the first, people with curl for one of the others."""
    within = f"{service}.{namespace}"
    return f"{within}.svc", within, f"{within}.svc.cluster.local"


def read_authority(data: Mapping[str, bytes]) -> Authority:
    """Return the CA of the CA's Secret. CaError if it cannot sign what the API server trusts."""
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
        key = serialization.load_pem_private_key(data[KEY], None)
        trusted = b"".join(data.get(name, b"").strip() + b"\n" for name in (TRUSTED, PREVIOUS) if data.get(name))
        is_trusted = certificate in x509.load_pem_x509_certificates(trusted)
    except (*UNREADABLE, KeyError) as error:
        raise CaError.unreadable(error) from error
    if not isinstance(key, SigningKey) or key.public_key() != certificate.public_key():
        raise CaError(f"cannot sign: {KEY} of Secret {CA_SECRET} is not the key of its {CERTIFICATE}")
    if not is_trusted:
        raise CaError(
            f"cannot sign: {CERTIFICATE} of Secret {CA_SECRET} is not among the CAs to trust, "
            f"its {TRUSTED} and {PREVIOUS}"
        )
    return Authority(certificate, key, trusted)


def reason_to_renew(pair: Mapping[str, bytes], authority: Authority, terms: Terms, now: datetime) -> str:
    """Return why the pair is due; empty if it is not. CaError if the CA ends too soon to renew it."""
    try:
        certificate = x509.load_pem_x509_certificate(pair[CERTIFICATE])
        key = serialization.load_pem_private_key(pair[KEY], None)
        names = names_in(certificate)
    except (*UNREADABLE, KeyError):
        return "it cannot be read"
    if key.public_key() != certificate.public_key():
        return "its key is another one's"
    if names != set(terms.names):
        return "its names are not those of the Service"
    if not is_signed_by(certificate, authority.certificate):
        return "another CA signed it"
    left = certificate.not_valid_after_utc - now
    if left >= terms.due:
        return ""
    if _end(authority, terms, now) - certificate.not_valid_after_utc < _LEAST_GAIN:
        raise CaError(
            "cannot renew the certificate beyond the end of its CA, "
            f"{authority.certificate.not_valid_after_utc.date()}",
            runs=" twice, for a new CA and to sign with it",
        )
    return f"{left.days} days are left" if left >= timedelta() else "it has ended"


def issue(authority: Authority, terms: Terms, now: datetime) -> dict[str, bytes]:
    """Return a new key and its certificate, as the serving Secret has them. CaError if the CA is not valid now."""
    ca = authority.certificate
    if not ca.not_valid_before_utc <= now < ca.not_valid_after_utc:
        raise CaError(
            f"cannot sign: the CA in Secret {CA_SECRET} is valid from {ca.not_valid_before_utc.date()} to "
            f"{ca.not_valid_after_utc.date()}, and now is {now.date()}"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    common_name, _, _ = terms.names[0].partition(".")
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - _CLOCK_SKEW, ca.not_valid_before_utc))
        .not_valid_after(_end(authority, terms, now))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in terms.names]), critical=False)
        .add_extension(_ONLY_SIGNATURES, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_identifier_of(authority), critical=False)
    )
    certificate = builder.sign(authority.key, hashes.SHA256())
    return {CERTIFICATE: _pem_of((certificate,)), KEY: _key_pem_of(key), TRUSTED: authority.trusted}


def issue_ca(validity: timedelta, now: datetime, previous: bytes = b"") -> dict[str, bytes]:
    """Return a new CA, as the CA's Secret has it. It signs at once; `previous` has the CAs that stay trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_ONLY_CERTIFICATES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = _pem_of((builder.sign(key, hashes.SHA256()),))
    own_key = _key_pem_of(key)
    return {TRUSTED: certificate, CA_KEY: own_key, PREVIOUS: previous, CERTIFICATE: certificate, KEY: own_key}


def still_trusted(
    bundle: bytes, now: datetime, is_needed: Callable[[x509.Certificate], bool] = lambda _: False
) -> bytes:
    """Return those CAs of the bundle, newest first, that stay trusted beside a new one: the last two, and needed ones.

    ValueError if it has none.
    """
    valid = [each for each in x509.load_pem_x509_certificates(bundle) if each.not_valid_after_utc > now]
    return _pem_of(each for number, each in enumerate(valid) if number < _MOST_PREVIOUS or is_needed(each))


def end_of(pair: Mapping[str, bytes]) -> datetime:
    """Return when the pair's certificate ends."""
    return x509.load_pem_x509_certificate(pair[CERTIFICATE]).not_valid_after_utc


def is_signed(pair: Mapping[str, bytes], authority: Authority) -> bool:
    """Return whether this CA signed the pair's certificate; False if that cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(pair[CERTIFICATE])
    except (*UNREADABLE, KeyError):
        return False
    return is_signed_by(certificate, authority.certificate)


def _key_usage(*, signatures: bool, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signatures,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


_CA_NAME: Final = "gpu-scheduler webhook CA"
_ONLY_SIGNATURES: Final = _key_usage(signatures=True, certificates=False)
_ONLY_CERTIFICATES: Final = _key_usage(signatures=False, certificates=True)


def _pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _key_pem_of(key: SigningKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _end(authority: Authority, terms: Terms, now: datetime) -> datetime:
    return min(now + terms.validity, authority.certificate.not_valid_after_utc)


def names_in(certificate: x509.Certificate) -> set[str]:
    """Return the DNS names that the certificate is made for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return set(found.value.get_values_for_type(x509.DNSName))


def is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Return whether this CA signed the certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _identifier_of(authority: Authority) -> x509.AuthorityKeyIdentifier:
    """Return the CA's own identifier of its key, which may have been computed in another way than the library's."""
    try:
        found = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)
