"""Checks of the webhook's certificate."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.doctor.facts import Known, UnreadFactError
from gpu_scheduler.cli.doctor.findings import CheckFinding, Result, listed
from gpu_scheduler.cli.doctor.remedies import in_namespace, install_again, renew_certificate
from gpu_scheduler.names import SERVING_SECRET, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpu_scheduler.cli.doctor.facts import Facts

SOON: Final = timedelta(days=14)
"""A certificate that ends sooner should have been renewed: the renewer does so 30 days before the end."""
RELOADED: Final = timedelta(minutes=15)
"""A certificate that is older is served by every replica: kubelet and webhook have noticed it."""
_CLOCKS: Final = timedelta(minutes=5)
"""Times of one certificate's end, computed by two clocks, differ by less."""
_SECRET: Final = f"secret/{SERVING_SECRET}"


def check_certificate(facts: Facts) -> Iterator[CheckFinding]:
    """The webhook's certificate is valid for long enough, and for the names by which the API server calls it."""
    if facts.injects_by_policy:
        return
    if not isinstance(facts.certificate, Known):
        # Without the right to read the Secret: what the replicas serve.
        replicas = facts.replicas.value if isinstance(facts.replicas, Known) else ()
        served = [each.certificate_ends for each in replicas if each.certificate_ends is not None]
        if not served:
            raise UnreadFactError(facts.certificate)
        yield from _ends(facts, min(served), renewer="")
        return
    certificate = facts.certificate.value
    if certificate is None:
        what = f"Secret {SERVING_SECRET} does not exist, or its certificate cannot be read: the webhook cannot serve it"
        yield CheckFinding(what, install_again(facts, "certificates,webhook"), _SECRET)
        return
    yield from _ends(facts, certificate.ends, certificate.renewer)
    if certificate.begins > facts.now:
        what = f"the webhook's certificate is not valid before {certificate.begins:%Y-%m-%d %H:%M} UTC"
        yield CheckFinding(what, renew_certificate(facts, certificate.renewer), _SECRET)
    if certificate.missing_names:
        what = f"the webhook's certificate is not made for {listed(certificate.missing_names)}"
        yield CheckFinding(what, renew_certificate(facts, certificate.renewer), _SECRET)


def _ends(facts: Facts, ends: datetime, renewer: str) -> Iterator[CheckFinding]:
    left, when = ends - facts.now, f"{ends:%Y-%m-%d %H:%M} UTC"
    remedy = renew_certificate(facts, renewer)
    if left <= timedelta():
        yield CheckFinding(f"the webhook's certificate expired on {when}", remedy, _SECRET)
    elif left < SOON:
        what = f"the webhook's certificate ends on {when}, and has not been renewed"
        yield CheckFinding(what, remedy, _SECRET, Result.WARNING)


def check_trust(facts: Facts) -> Iterator[CheckFinding]:
    """The API server trusts the CA that signed the certificate."""
    if facts.injects_by_policy:
        return
    if not isinstance(facts.certificate, Known) and facts.our_pod.value.injected:
        # It was called over TLS, so it was trusted.
        return
    certificate = facts.certificate.value
    if certificate is not None and certificate.distrusted_by:
        yield CheckFinding(
            f"the caBundle of {listed(certificate.distrusted_by)} has no CA that signed the certificate in "
            f"Secret {SERVING_SECRET}",
            install_again(facts, "certificates,webhook"),
            f"mutatingwebhookconfiguration/{WEBHOOK}",
        )


def check_served(facts: Facts) -> Iterator[CheckFinding]:
    """Each replica serves the certificate of the Secret."""
    if facts.injects_by_policy or not isinstance(facts.certificate, Known):
        return
    certificate = facts.certificate.value
    if certificate is None or facts.now - certificate.begins < RELOADED:
        return
    for replica in facts.replicas.value:
        ends = replica.certificate_ends
        if ends is not None and abs(ends - certificate.ends) > _CLOCKS:
            yield CheckFinding(
                f"pod {replica.pod} serves another certificate than Secret {SERVING_SECRET} has",
                in_namespace(facts, f"rollout restart deployment/{WEBHOOK}"),
                f"pod/{replica.pod}",
            )
