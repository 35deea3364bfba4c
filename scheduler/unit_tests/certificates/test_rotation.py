"""What the two Secrets shall hold, for what is stored and whom the API server trusts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from gpu_scheduler.certificates.issuing import CaError, is_signed_by, read_authority
from gpu_scheduler.certificates.rotation import Force, Rotation, Stored, rotate
from unit_tests.certificates.authorities import DAY, NOW, TERMS, Ca

if TYPE_CHECKING:
    from collections.abc import Mapping

VALIDITY = 3650 * DAY
CA, BEFORE, ELDER, OTHER = Ca(), Ca(), Ca(), Ca()
ENDED, SOON, LATE = Ca(left=-DAY), Ca(left=10 * DAY), Ca(left=394 * DAY)
NEW, KEPT = "a new one", "the stored one"


def bundle(*trusted: Ca) -> bytes:
    return b"".join(each.secret()["ca.crt"] for each in trusted)


def rotating(signer: Ca, newest: Ca, *previous: Ca) -> dict[str, bytes]:
    """Return the CA's Secret during a rotation: `signer` signs, `newest` is not trusted yet."""
    own = signer.secret()
    return {**newest.secret(signer, *previous), "tls.crt": own["tls.crt"], "tls.key": own["tls.key"]}


def by_cert_manager(ca: Ca) -> dict[str, bytes]:
    """Return the Secret of a CA that cert-manager made, by an earlier version."""
    own = ca.secret()
    return {name: own[name] for name in ("tls.crt", "tls.key", "ca.crt")}


@dataclass(frozen=True)
class Case:
    """What is there, and what shall be: whether CA and pair are new, who signs, and which CAs are trusted."""

    ca: Mapping[str, bytes]
    pair: Mapping[str, bytes]
    expected: tuple[str, Ca | None, str, list[Ca | None]]
    """The newest CA; the CA that signs, None for a new one; the pair; the CAs to trust, None for a new one."""
    bundles: tuple[bytes, ...] = ()
    force: Force = Force.NONE
    waits: int | None = None
    refused: bool = False


GOOD = CA.pair(200 * DAY)
CASES = {
    "nothing is stored: both are made": Case({}, {}, (NEW, None, NEW, [None])),
    "all is in order: nothing changes": Case(CA.secret(), GOOD, (KEPT, CA, KEPT, [CA]), (bundle(CA),)),
    "no pair is stored": Case(CA.secret(), {}, (KEPT, CA, NEW, [CA]), (bundle(CA),)),
    "a pair that is due": Case(CA.secret(), CA.pair(29 * DAY), (KEPT, CA, NEW, [CA]), (bundle(CA),)),
    "a pair that is due before a webhook is registered": Case(CA.secret(), CA.pair(29 * DAY), (KEPT, CA, NEW, [CA])),
    "a pair of a CA that nobody trusts": Case(CA.secret(), OTHER.pair(200 * DAY), (KEPT, CA, NEW, [CA])),
    "a pair that has ended": Case(CA.secret(), CA.pair(-DAY), (KEPT, CA, NEW, [CA]), (bundle(OTHER),)),
    "a pair without its key": Case(CA.secret(), {"tls.crt": GOOD["tls.crt"]}, (KEPT, CA, NEW, [CA])),
    "a pair is asked for": Case(CA.secret(), GOOD, (KEPT, CA, NEW, [CA]), (bundle(CA),), Force.SERVING),
    "a pair is asked for that one of two webhooks would not trust": Case(
        CA.secret(), GOOD, (KEPT, CA, KEPT, [CA]), (bundle(CA), bundle(OTHER)), Force.SERVING, waits=200, refused=True
    ),
    "a pair is asked for while nothing could be worse": Case(
        CA.secret(), {}, (KEPT, CA, NEW, [CA]), (bundle(OTHER),), Force.SERVING
    ),
    "a CA that ends before the next pair": Case(
        LATE.secret(), LATE.pair(200 * DAY), (NEW, LATE, KEPT, [None, LATE]), (bundle(LATE),)
    ),
    "a CA is asked for: the one before signs on": Case(
        CA.secret(), GOOD, (NEW, CA, KEPT, [None, CA]), (bundle(CA),), Force.CA
    ),
    "a CA is asked for before a webhook is registered": Case(
        CA.secret(), GOOD, (NEW, CA, KEPT, [None, CA]), (), Force.CA
    ),
    "a CA that has ended signs no more": Case(
        ENDED.secret(), ENDED.pair(-DAY), (NEW, None, NEW, [None]), (bundle(ENDED),)
    ),
    "of the CAs before, the last two stay": Case(
        CA.secret(BEFORE, ELDER), GOOD, (NEW, CA, KEPT, [None, CA, BEFORE]), (bundle(CA),), Force.CA
    ),
    "the CA that signed the pair stays": Case(
        CA.secret(BEFORE, ELDER), ELDER.pair(200 * DAY), (NEW, CA, NEW, [None, CA, BEFORE, ELDER]), (), Force.CA
    ),
    "the CA that signs stays": Case(
        rotating(ELDER, CA, BEFORE),
        ELDER.pair(200 * DAY),
        (NEW, ELDER, KEPT, [None, CA, ELDER]),
        (bundle(ELDER),),
        Force.CA,
    ),
    "a CA without a readable pair": Case(CA.secret(), {}, (NEW, CA, NEW, [None, CA]), (), Force.CA),
    "a new CA that is not trusted yet": Case(
        rotating(BEFORE, CA), BEFORE.pair(200 * DAY), (KEPT, BEFORE, KEPT, [CA, BEFORE]), (bundle(BEFORE),)
    ),
    "a new CA that one of two webhooks trusts": Case(
        rotating(BEFORE, CA),
        BEFORE.pair(200 * DAY),
        (KEPT, BEFORE, KEPT, [CA, BEFORE]),
        (bundle(CA, BEFORE), bundle(BEFORE)),
    ),
    "a new CA that is trusted signs": Case(
        rotating(BEFORE, CA), BEFORE.pair(200 * DAY), (KEPT, CA, NEW, [CA, BEFORE]), (bundle(CA, BEFORE),)
    ),
    "the CA that signs so far ends with its pair": Case(
        rotating(SOON, CA), SOON.pair(10 * DAY), (KEPT, SOON, NEW, [CA, SOON]), (bundle(SOON),)
    ),
    "a pair that nobody would trust waits": Case(
        rotating(BEFORE, CA), BEFORE.pair(5 * DAY), (KEPT, BEFORE, KEPT, [CA, BEFORE]), (bundle(OTHER),), waits=5
    ),
    "a CA that cert-manager made is adopted": Case(by_cert_manager(CA), {}, (KEPT, CA, NEW, [CA]), (bundle(CA),)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_secrets_shall_hold(case: Case) -> None:
    """No pair is served that an API server does not trust, unless the one before was no better."""
    found = rotate(Stored(case.ca, case.pair, case.bundles), TERMS, VALIDITY, NOW, force=case.force)

    stored = {each.secret()["ca.crt"].strip(): each for each in (CA, BEFORE, ELDER, ENDED, LATE, SOON)}
    newest = found.ca["ca.crt"].strip()
    signer = stored.get(found.ca["tls.crt"].strip())
    trusted = [stored.get(each) for each in _split(found.pair["ca.crt"])]
    kept = found.pair["tls.crt"] == case.pair.get("tls.crt")
    assert (KEPT if newest in stored else NEW, signer, KEPT if kept else NEW, trusted) == case.expected
    assert (found.waits, found.refused) == (case.waits, case.refused)
    _assert_serves(found)


def test_what_is_in_order_is_not_written_again() -> None:
    """Byte for byte: the play reports no change."""
    first = rotate(Stored({}, {}), TERMS, VALIDITY, NOW)
    again = rotate(Stored(first.ca, first.pair, (first.pair["ca.crt"],)), TERMS, VALIDITY, NOW)

    assert (again.ca, again.pair) == (first.ca, first.pair)


@pytest.mark.parametrize("name", ["ca.crt", "tls.key"])
def test_a_ca_that_cannot_be_read_is_not_replaced(name: str) -> None:
    """It may be the one that all webhooks are trusted by."""
    with pytest.raises(CaError, match="cannot read the CA in Secret gpu-scheduler-webhook-ca"):
        rotate(Stored(rotating(BEFORE, CA) | {name: b"nonsense"}, {}, (bundle(BEFORE),)), TERMS, VALIDITY, NOW)


def _split(trusted: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----"
    return [each.strip() + b"\n" + end for each in trusted.split(end)[:-1]]


def _assert_serves(found: Rotation) -> None:
    """The CA's Secret can sign, and one of the CAs to trust has signed the pair."""
    assert read_authority(found.ca).trusted == found.pair["ca.crt"]
    certificate = x509.load_pem_x509_certificate(found.pair["tls.crt"])
    trusted = x509.load_pem_x509_certificates(found.pair["ca.crt"])
    assert [is_signed_by(certificate, each) for each in trusted].count(True) == 1
