"""When a pair is due, and what a new one is, at chosen dates."""

import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.certificates.issuing import (
    Authority,
    CaError,
    end_of,
    is_signed,
    issue,
    issue_ca,
    names_of,
    read_authority,
    reason_to_renew,
    still_trusted,
)
from tests.messages import text_of
from unit_tests.certificates.authorities import DAY, NOW, OPEN, PEM, PKCS8, TERMS, Ca, pem_of, rsa_ca

CA = Ca()
OTHER = Ca()
# Such keys take long to make.
RSA, OTHER_RSA = rsa_ca(), rsa_ca()
SECOND = timedelta(seconds=1)
FOREIGN = replace(TERMS, names=names_of("gpu-scheduler-webhook", "elsewhere"))


def authority(ca: Ca = CA, *previous: Ca) -> Authority:
    return read_authority(ca.secret(*previous))


DUE: dict[str, tuple[dict[str, bytes], str]] = {
    "a pair with 200 days is not due": (CA.pair(200 * DAY), ""),
    "a pair with 30 days is not due": (CA.pair(30 * DAY), ""),
    "a pair with a second less is due": (CA.pair(30 * DAY - SECOND), "29 days are left"),
    "a pair with 10 days is due": (CA.pair(10 * DAY), "10 days are left"),
    "a pair that has ended is due": (CA.pair(-DAY), "it has ended"),
    "a pair for other names is due": (CA.pair(200 * DAY, FOREIGN), text_of("certificates: other names")),
    "a pair of another CA is due": (OTHER.pair(200 * DAY), "another CA signed it"),
    "a pair of a CA of the same name with another key is due": (
        replace(CA, key=OTHER.key).pair(200 * DAY),
        "another CA signed it",
    ),
    "a pair with the key of another is due": (
        {**CA.pair(200 * DAY), "tls.key": pem_of(OTHER.key)},
        "its key is another one's",
    ),
    "a Secret without a pair is due": ({}, text_of("certificates: unreadable")),
    "a certificate that is cut short is due": (
        {**CA.pair(200 * DAY), "tls.crt": CA.pair(DAY)["tls.crt"][:200]},
        text_of("certificates: unreadable"),
    ),
    "a CA without names is due": (
        {"tls.crt": CA.certificate.public_bytes(PEM), "tls.key": pem_of(CA.key)},
        text_of("certificates: other names"),
    ),
}


@pytest.mark.promise("hook-6")
@pytest.mark.parametrize(("pair", "reason"), DUE.values(), ids=DUE)
def test_a_pair_is_due(pair: dict[str, bytes], reason: str) -> None:
    """Or not: then the reason is empty."""
    assert reason_to_renew(pair, authority(), TERMS, NOW) == reason


def test_the_order_of_names_does_not_matter() -> None:
    """cert-manager may write them in an order of its own."""
    pair = CA.pair(200 * DAY, replace(TERMS, names=TERMS.names[::-1]))

    assert reason_to_renew(pair, authority(), TERMS, NOW) == ""


@pytest.mark.parametrize("ca", [CA, RSA, Ca(identified=False)], ids=["ECDSA", "RSA", "without an identifier"])
def test_a_new_pair_is_what_the_role_makes(ca: Ca) -> None:
    """A P-256 key, the role's names and extensions, 365 days, and a beginning for clocks that are behind."""
    pair = issue(authority(ca), TERMS, NOW)

    certificate = x509.load_pem_x509_certificate(pair["tls.crt"])
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    served_for = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    key: Any = certificate.public_key()
    assert common_name.value == "gpu-scheduler-webhook"
    assert names.get_values_for_type(x509.DNSName) == [
        "gpu-scheduler-webhook.gpu-scheduler-system.svc",
        "gpu-scheduler-webhook.gpu-scheduler-system",
        "gpu-scheduler-webhook.gpu-scheduler-system.svc.cluster.local",
    ]
    assert isinstance(key.curve, ec.SECP256R1)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)
    assert list(served_for) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + 365 * DAY == end_of(pair)
    assert reason_to_renew(pair, authority(ca), TERMS, NOW) == ""


def test_a_server_loads_the_pair_and_its_clients_verify_it(tmp_path: Path) -> None:
    """Whoever trusts the CA verifies the pair for the Service's name."""
    pair = issue(authority(), TERMS, NOW)
    for name, content in pair.items():
        (tmp_path / name).write_bytes(content)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    store = Store(x509.load_pem_x509_certificates(pair["ca.crt"]))
    verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName(TERMS.names[0]))

    assert len(verifier.verify(x509.load_pem_x509_certificate(pair["tls.crt"]), [])) == 2


def test_each_new_pair_has_a_key_of_its_own() -> None:
    """A key that leaked ends with its certificate."""
    first, second = (issue(authority(), TERMS, NOW) for _ in range(2))

    assert first["tls.key"] != second["tls.key"]


def test_a_new_pair_carries_every_ca_to_trust() -> None:
    """The present CA and those before it, one after the other."""
    trusted = x509.load_pem_x509_certificates(issue(authority(CA, OTHER), TERMS, NOW)["ca.crt"])

    assert [each.public_key() for each in trusted] == [CA.key.public_key(), OTHER.key.public_key()]


@given(ca_left=st.integers(1, 5000), pair_left=st.integers(-300, 400), validity=st.integers(31, 3650))
def test_a_pair_is_renewed_once_and_never_outlives_its_ca(ca_left: int, pair_left: int, validity: int) -> None:
    """Whatever the dates: a new pair is valid now, ends with the CA at the latest, and is not due at once again."""
    ca, terms = replace(CA, left=ca_left * DAY), replace(TERMS, validity=validity * DAY)
    trusted, pair = authority(ca), CA.pair(pair_left * DAY)
    try:
        due = reason_to_renew(pair, trusted, terms, NOW)
    except CaError:
        assert ca_left <= pair_left < 30
        return
    assert bool(due) is (pair_left < 30)
    if due:
        renewed = issue(trusted, terms, NOW)
        assert NOW + min(ca_left, validity) * DAY == end_of(renewed) > NOW
        if ca_left >= 30:
            assert reason_to_renew(renewed, trusted, terms, NOW) == ""
        else:
            with pytest.raises(CaError, match="beyond the end of its CA"):
                reason_to_renew(renewed, trusted, terms, NOW)


def without(name: str) -> dict[str, bytes]:
    return {key: value for key, value in CA.secret().items() if key != name}


ANOTHER_KEY = "cannot sign: tls.key of Secret gpu-scheduler-webhook-ca is not the key of its tls.crt"
REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "an empty Secret": ({}, f"{text_of('certificates: the CA cannot be read')} 'tls.crt'; run `make up"),
    "no key": (without("tls.key"), f"{text_of('certificates: the CA cannot be read')} 'tls.key'; run `make up"),
    "no CA to trust": (without("ca.crt"), text_of("certificates: the CA cannot be read")),
    "a key in words": ({**CA.secret(), "tls.key": b"secret"}, text_of("certificates: the CA cannot be read")),
    "the key of another": (
        {**CA.secret(), "tls.key": pem_of(OTHER.key)},
        f"{ANOTHER_KEY}; run `make up",
    ),
    "a kind of key that signs no certificate of ours": (
        {**CA.secret(), "tls.key": ed25519.Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, OPEN)},
        ANOTHER_KEY,
    ),
    "a CA that is not to be trusted": (
        {**CA.secret(), "ca.crt": OTHER.secret()["ca.crt"]},
        "cannot sign: tls.crt of Secret gpu-scheduler-webhook-ca is not among the CAs to trust, its ca.crt and",
    ),
}


@pytest.mark.parametrize(("data", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_ca_that_cannot_sign_is_refused(data: dict[str, bytes], sentence: str) -> None:
    """With one sentence that says what to do."""
    with pytest.raises(CaError) as refused:
        read_authority(data)

    assert str(refused.value).startswith(sentence)
    assert "certificates,webhook" in str(refused.value)


def test_a_new_ca_signs_only_once_it_is_the_signing_one() -> None:
    """During a rotation ca.crt is newer than tls.crt: the API server may not trust it yet."""
    data = {**CA.secret(), "ca.crt": OTHER.secret()["ca.crt"], "previous.crt": CA.secret()["ca.crt"]}

    assert reason_to_renew(CA.pair(200 * DAY), read_authority(data), TERMS, NOW) == ""
    assert reason_to_renew(issue(read_authority(data), TERMS, NOW), authority(), TERMS, NOW) == ""


@pytest.mark.parametrize(
    ("ca", "dates"),
    [(Ca(left=-DAY), "from 2026-08-17 to 2026-11-24"), (Ca(age=-DAY, left=90 * DAY), "from 2026-11-26 to 2027-02-23")],
    ids=["ended", "not begun"],
)
def test_a_ca_that_is_not_valid_now_signs_nothing(ca: Ca, dates: str) -> None:
    """The clock of the node may be wrong, so the sentence names the present date too."""
    with pytest.raises(CaError, match=f"is valid {dates}, and now is 2026-11-25; run `make up"):
        issue(authority(ca), TERMS, NOW)


@pytest.mark.parametrize("ca", [OTHER_RSA, CA], ids=["RSA", "ECDSA"])
def test_a_pair_of_another_kind_of_key_is_due(ca: Ca) -> None:
    """A pair that a CA of another algorithm signed does not stop the renewer."""
    assert reason_to_renew(RSA.pair(200 * DAY), authority(ca), TERMS, NOW) == "another CA signed it"


def test_a_new_ca_is_what_the_role_makes() -> None:
    """A P-256 key, the role's name and extensions, 3650 days, and the five keys of the Secret."""
    data = issue_ca(3650 * DAY, NOW)

    certificate = x509.load_pem_x509_certificate(data["ca.crt"])
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    key: Any = certificate.public_key()
    assert set(data) == set(CA.secret())
    assert (data["tls.crt"], data["tls.key"], data["previous.crt"]) == (data["ca.crt"], data["ca.key"], b"")
    assert certificate.subject == certificate.issuer == CA.certificate.subject
    assert isinstance(key.curve, ec.SECP256R1)
    assert (constraints.critical, constraints.value) == (True, x509.BasicConstraints(ca=True, path_length=0))
    assert usage == CA.certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + 3650 * DAY


def test_a_new_ca_signs_what_clients_verify() -> None:
    """Beside a CA of the same name that is trusted too."""
    ca = read_authority(issue_ca(3650 * DAY, NOW, OTHER.secret()["ca.crt"]))
    pair = issue(ca, TERMS, NOW)

    store = Store(x509.load_pem_x509_certificates(ca.trusted))
    verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName(TERMS.names[0]))
    assert len(verifier.verify(x509.load_pem_x509_certificate(pair["tls.crt"]), [])) == 2
    assert [is_signed(pair, each) for each in (ca, authority(OTHER))] == [True, False]
    assert reason_to_renew(pair, ca, TERMS, NOW) == ""


PREVIOUS: dict[str, tuple[tuple[Ca, ...], tuple[Ca, ...]]] = {
    "one": ((CA,), (CA,)),
    "two of three, the newest first": ((CA, OTHER, Ca()), (CA, OTHER)),
    "none that has ended": ((Ca(left=-DAY), OTHER, Ca(left=timedelta())), (OTHER,)),
}


@pytest.mark.parametrize(("before", "kept"), PREVIOUS.values(), ids=PREVIOUS)
def test_cas_stay_trusted_beside_a_new_one(before: tuple[Ca, ...], kept: tuple[Ca, ...]) -> None:
    """Pods serve what they signed until the kubelets have brought the new pair."""
    first, *others = before

    assert still_trusted(authority(first, *others).trusted, NOW) == b"".join(
        each.certificate.public_bytes(PEM) for each in kept
    )


@pytest.mark.parametrize("pair", [{}, {"tls.crt": b""}, {"tls.crt": b"-----BEGIN CERTIFICATE-----"}])
def test_what_cannot_be_read_is_not_signed(pair: dict[str, bytes]) -> None:
    """A Secret that is still empty, or broken."""
    assert not is_signed(pair, authority())
