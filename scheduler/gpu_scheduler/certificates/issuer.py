"""`gpu-scheduler issue`: make what is missing of the two Secrets, and let the API server trust the CA.

A Job of an installer runs it. It goes on from whatever is there, and changes nothing that is in order.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.certificates.command import terms_of, with_client
from gpu_scheduler.certificates.issuing import (
    IssuingError,
    end_of,
    is_signed,
    issue,
    issue_ca,
    read_authority,
    reason_to_renew,
)
from gpu_scheduler.certificates.secrets import CONFLICT, NOT_FOUND, SecretClient, busy
from gpu_scheduler.kube.http.client import STRATEGIC_MERGE
from gpu_scheduler.kube.objects.registrations import read_registration
from gpu_scheduler.kube.resource import RefusedError
from gpu_scheduler.process.lifecycle import Clocks

if TYPE_CHECKING:
    from gpu_scheduler.certificates.issuing import Authority, Terms
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.secrets import Secret
    from gpu_scheduler.settings import IssuerSettings

KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
TRIES: Final = 5
"""How often it is decided what to write. Another client may write in between; each Secret made is one more."""
POLL: Final = 1.0
"""Seconds between two looks for a registration."""
CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
"""The annotation by which cert-manager marks the Secrets that it issues."""

log = logging.getLogger(__name__)


class SecretIssuer:
    """Makes the CA and the serving pair of one namespace where they are missing or due."""

    def __init__(self, secrets: SecretClient, terms: Terms, ca_validity: timedelta, clocks: Clocks) -> None:
        """`ca_validity`: how long a new CA is valid."""
        self._secrets = secrets
        self._terms = terms
        self._ca_validity = ca_validity
        self._clocks = clocks

    async def issue(self) -> Authority:
        """Write what is missing or due; return the CA. IssuingError or NoResponseError if that fails."""
        for _ in range(TRIES):
            serving = await self._secrets.read(names.SERVING_SECRET)
            ca = await self._secrets.read(names.CA_SECRET)
            certificate = _certificate_name(serving)
            if ca is None:
                if certificate:
                    raise _foreign_ca(certificate)
                await self._issue_ca()
                continue
            authority = read_authority(ca.data or {})
            if certificate and not is_signed(_pair_of(serving), authority):
                raise _foreign_ca(certificate)
            if certificate:
                log.info("cert-manager issues the certificate", extra={"certificate": certificate})
                return authority
            if await self._issue_pair(serving, authority):
                return authority
        raise IssuingError(busy(names.SERVING_SECRET))

    async def _issue_ca(self) -> None:
        """Create the CA's Secret. If another client has created it since, leave it: the next try reads it."""
        now = self._clocks.wall()
        data = issue_ca(self._ca_validity, now)
        if await self._secrets.create(names.CA_SECRET, data):
            log.info("Issued a CA", extra={"valid_until": end_of(data).isoformat()})

    async def _issue_pair(self, serving: Secret | None, authority: Authority) -> bool:
        """Write a new pair if the present one is due; return False if another client has written in between."""
        now, pair = self._clocks.wall(), _pair_of(serving)
        reason = "there is none" if serving is None else reason_to_renew(pair, authority, self._terms, now)
        if not reason:
            log.info("Nothing is due", extra={"valid_until": end_of(pair).isoformat()})
            return True
        issued = issue(authority, self._terms, now)
        if serving is None:
            is_written = await self._secrets.create(names.SERVING_SECRET, issued)
        else:
            version = serving.metadata.resource_version
            is_written = await self._secrets.replace(names.SERVING_SECRET, version, issued)
        if is_written:
            log.info("Issued a certificate", extra={"because": reason, "valid_until": end_of(issued).isoformat()})
        return is_written


class TrustWriter:
    """Writes the CAs to trust into the webhook's two registrations."""

    def __init__(self, api: ApiClient, clocks: Clocks, timeout: float) -> None:
        """`timeout`: seconds to wait for the registrations, both together."""
        self._api = api
        self._clocks = clocks
        self._timeout = timeout

    async def trust(self, bundle: bytes) -> None:
        """Write the bundle where it differs. IssuingError if a registration does not appear or cannot be written."""
        deadline = self._clocks.elapsed() + self._timeout
        for kind in KINDS:
            while not await self._write(kind, bundle):
                if self._clocks.elapsed() >= deadline:
                    raise IssuingError(
                        f"cannot let the API server trust the CA: after {self._timeout:g} s there is no {kind} "
                        f"{names.WEBHOOK}; install it (example: helm upgrade --set webhook.enabled=true)"
                    )
                log.info("Waiting for a registration", extra={"kind": kind})
                await asyncio.sleep(POLL)

    async def _write(self, kind: str, bundle: bytes) -> bool:
        """Write the bundle into this registration; return False if there is none, or another client has written it."""
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{names.WEBHOOK}"
        answer = await self._api.call("GET", path)
        if answer.status == NOT_FOUND:
            return False
        if not answer.ok:
            raise IssuingError(f"cannot read {kind} {names.WEBHOOK}: {RefusedError(answer)}")
        try:
            found = read_registration(answer.body)
        except msgspec.DecodeError as error:
            raise IssuingError(f"cannot read {kind} {names.WEBHOOK}: {error}") from error
        if found.trusts_only(bundle):
            log.info("The CA is trusted", extra={"kind": kind})
            return True
        answer = await self._api.call(
            "PATCH",
            path,
            query={"fieldManager": names.ISSUER},
            body=found.patch_bundle(bundle),
            content_type=STRATEGIC_MERGE,
        )
        if answer.ok:
            log.info("Wrote the CA into a registration", extra={"kind": kind})
        elif answer.status != CONFLICT:
            raise IssuingError(f"cannot write {kind} {names.WEBHOOK}: {RefusedError(answer)}")
        return answer.ok


def _pair_of(serving: Secret | None) -> dict[str, bytes]:
    return {} if serving is None else serving.data or {}


def _certificate_name(serving: Secret | None) -> str:
    """Return the Certificate for which cert-manager issues the Secret; empty if it does not."""
    return "" if serving is None else (serving.metadata.annotations or {}).get(CERTIFICATE_NAME, "")


def _foreign_ca(certificate: str) -> IssuingError:
    return IssuingError(
        f"cannot use a CA of our own: cert-manager issues Secret {names.SERVING_SECRET} (Certificate {certificate}) "
        f"with another CA; set webhook.caBundle to that one, or delete the Certificate and the Secret"
    )


async def run_issuer(
    settings: IssuerSettings, kubeconfig: str | None, context: str | None, *, secrets_only: bool
) -> None:
    """Issue what is missing or due, then let the API server trust the CA. FatalError if that fails."""

    async def work(api: ApiClient) -> None:
        clocks = Clocks()
        secrets = SecretClient(api, settings.kubernetes_namespace, names.ISSUER)
        validity = timedelta(days=settings.ca_days)
        authority = await SecretIssuer(secrets, terms_of(settings), validity, clocks).issue()
        if not secrets_only:
            await TrustWriter(api, clocks, settings.registration_timeout).trust(authority.trusted)

    await with_client(kubeconfig, context, names.ISSUER, work)
