from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_scheduler.certificates.inspection import Inspection, inspect
from gpu_scheduler.certificates.issuing import issue, read_authority
from unit_tests.certificates.authorities import DAY, NOW, TERMS, Ca

SIGNER = Ca()
SIGNERS, OTHERS, ENDED = (ca.secret()["ca.crt"] for ca in (SIGNER, Ca(), replace(SIGNER, left=-DAY)))
NAME = TERMS.names[0]
PAIR = issue(read_authority(SIGNER.secret()), TERMS, NOW)

BUNDLES = {
    "one that has the CA": (SIGNERS, ()),
    "one that has it after another": (OTHERS + SIGNERS, ()),
    "one that has another CA": (OTHERS, ("client",)),
    "one whose CA has ended": (ENDED, ("client",)),
    "an empty one": (b"", ("client",)),
    "one that is no certificate": (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", ("client",)),
}


@pytest.mark.parametrize(("bundle", "distrusted_by"), BUNDLES.values(), ids=BUNDLES)
def test_a_client_trusts_a_certificate_of_a_ca_in_its_bundle(bundle: bytes, distrusted_by: tuple[str, ...]) -> None:
    """The CA must be valid now."""
    found = inspect(PAIR["tls.crt"], NAME, {"client": bundle}, NOW)

    assert found is not None
    assert found.distrusted_by == distrusted_by


def test_a_certificate_is_made_for_its_names() -> None:
    """And valid for as long as its terms say."""
    found = inspect(PAIR["tls.crt"], NAME, {}, NOW)

    assert found is not None
    assert found == Inspection(found.begins, NOW + 365 * DAY, has_name=True, distrusted_by=())
    other = inspect(PAIR["tls.crt"], "another.svc", {}, NOW)
    assert other is not None
    assert not other.has_name


def test_what_is_no_certificate_is_nothing() -> None:
    """A Secret may have any text."""
    assert inspect(b"no certificate", NAME, {}, NOW) is None
