"""`gpu-scheduler renew`: read the two Secrets, and write the serving one if its pair is due."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import MERGE, NoResponseError, connect, segment
from gpu_scheduler.kube.objects.secrets import patch_secret, read_secret
from gpu_scheduler.kube.resource import RefusedError
from gpu_scheduler.process.lifecycle import Clocks, FatalError, UsageError, own_version
from gpu_scheduler.renewer.issuing import (
    REMEDY,
    RenewalError,
    Terms,
    end_of,
    issue,
    names_of,
    read_authority,
    reason_to_renew,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.secrets import Secret
    from gpu_scheduler.settings import RenewerSettings

NOT_FOUND = 404
CONFLICT = 409

log = logging.getLogger(__name__)


class Renewer:
    """Renews the pair in the serving Secret of one namespace."""

    def __init__(self, api: ApiClient, namespace: str, terms: Terms, wall: Callable[[], datetime]) -> None:
        """`wall` returns the present time."""
        self._api = api
        self._secrets = f"/api/v1/namespaces/{segment(namespace)}/secrets"
        self._terms = terms
        self._wall = wall

    async def renew(self) -> None:
        """Write a new pair if the present one is due. RenewalError or NoResponseError if that fails."""
        for last in (False, True):
            authority = read_authority((await self._read(names.CA_SECRET)).data or {})
            serving = await self._read(names.SERVING_SECRET)
            now, pair = self._wall(), serving.data or {}
            reason = reason_to_renew(pair, authority, self._terms, now)
            if not reason:
                log.info("Nothing is due", extra={"valid_until": end_of(pair).isoformat()})
                return
            renewed = issue(authority, self._terms, now)
            refused = await self._write(serving, renewed)
            if refused is None:
                log.info("Renewed", extra={"because": reason, "valid_until": end_of(renewed).isoformat()})
                return
            # Another client may have written the Secret after it was read: decide again, once.
            if refused.status != CONFLICT or last:
                raise RenewalError(f"cannot write Secret {names.SERVING_SECRET}: {refused}") from refused

    async def _read(self, name: str) -> Secret:
        answer = await self._api.call("GET", f"{self._secrets}/{name}")
        if answer.status == NOT_FOUND:
            raise RenewalError(f"cannot find Secret {name}: {REMEDY}, which makes it")
        if not answer.ok:
            raise RenewalError(f"cannot read Secret {name}: {RefusedError(answer)}")
        try:
            return read_secret(answer.body)
        except msgspec.DecodeError as error:
            raise RenewalError(f"cannot read Secret {name}: {error}") from error

    async def _write(self, serving: Secret, renewed: Mapping[str, bytes]) -> RefusedError | None:
        body = patch_secret(serving.metadata.resource_version, renewed)
        path = f"{self._secrets}/{names.SERVING_SECRET}"
        query = {"fieldManager": names.RENEWER}
        answer = await self._api.call("PATCH", path, query=query, body=body, content_type=MERGE)
        return None if answer.ok else RefusedError(answer)


async def run_renewer(settings: RenewerSettings, kubeconfig: str | None, context: str | None) -> None:
    """Renew the pair if it is due. FatalError if it is due and cannot be renewed, or cannot be read."""
    terms = Terms(
        names_of(settings.webhook_service, settings.kubernetes_namespace),
        timedelta(days=settings.serving_days),
        timedelta(days=settings.renew_days),
    )
    try:
        api = await connect(kubeconfig, context, user_agent=f"{names.RENEWER}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await Renewer(api, settings.kubernetes_namespace, terms, Clocks().wall).renew()
    except (RenewalError, NoResponseError) as error:
        raise FatalError(str(error)) from error
    finally:
        await api.close()
