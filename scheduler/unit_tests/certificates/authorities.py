"""The CA's Secret and the serving Secret at chosen dates, as role certificates makes them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from gpu_scheduler.certificates.issuing import Terms, issue, names_of, read_authority
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from gpu_scheduler.certificates.issuing import SigningKey

NOW: Final = datetime(2026, 11, 25, 3, 37, tzinfo=UTC)
DAY: Final = timedelta(days=1)
TERMS: Final = Terms(names_of("gpu-scheduler-webhook", "gpu-scheduler-system"), 365 * DAY, 30 * DAY)
PEM: Final = serialization.Encoding.PEM
PKCS8: Final = serialization.PrivateFormat.PKCS8
OPEN: Final = serialization.NoEncryption()

_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Ca:
    """A CA that began `age` before NOW and ends `left` after it."""

    left: timedelta = 3000 * DAY
    age: timedelta = 100 * DAY
    key: SigningKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    identified: bool = True
    name: str = "gpu-scheduler webhook CA"

    @cached_property
    def certificate(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder(name, name, self.key.public_key(), x509.random_serial_number())
            .not_valid_before(NOW - self.age)
            .not_valid_after(NOW + self.left)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
        )
        if self.identified:
            # Not what the library computes from the key, as a CA of another tool may have it.
            builder = builder.add_extension(x509.SubjectKeyIdentifier(b"made elsewhere"), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def secret(self, *previous: Ca) -> dict[str, bytes]:
        """Return the data of the CA's Secret, with the CAs before this one."""
        certificate = self.certificate.public_bytes(PEM)
        key = self.key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, OPEN)
        return {
            "ca.crt": certificate,
            "ca.key": key,
            "previous.crt": b"".join(each.certificate.public_bytes(PEM) for each in previous),
            "tls.crt": certificate,
            "tls.key": key,
        }

    def pair(self, left: timedelta, terms: Terms = TERMS) -> dict[str, bytes]:
        """Return the data of a serving Secret that ends `left` after NOW."""
        begun = NOW - 335 * DAY
        long_ago = replace(self, age=400 * DAY, left=4000 * DAY)
        return issue(read_authority(long_ago.secret()), replace(terms, validity=left + NOW - begun), begun)


def secret(data: dict[str, bytes], version: str = "7", annotations: dict[str, str] | None = None) -> Reply:
    """Return a Secret as the API server sends it."""
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return Reply(body={"metadata": {"resourceVersion": version, "annotations": annotations}, "data": encoded})


def rsa_ca() -> Ca:
    return Ca(key=rsa.generate_private_key(65537, 2048))


def pem_of(key: SigningKey) -> bytes:
    return key.private_bytes(PEM, PKCS8, OPEN)
