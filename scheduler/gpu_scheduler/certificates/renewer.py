"""`gpu-scheduler renew`: read the two Secrets, and write the serving one if its pair is due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.certificates.command import terms_of, with_client
from gpu_scheduler.certificates.issuing import IssuingError, end_of, issue, read_authority, reason_to_renew
from gpu_scheduler.certificates.secrets import SecretClient, busy
from gpu_scheduler.process.lifecycle import Clocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gpu_scheduler.certificates.issuing import Terms
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.secrets import Secret
    from gpu_scheduler.settings import RenewerSettings

TRIES: Final = 2
"""How often it is decided what to write, where another client writes the Secret at the same time."""

log = logging.getLogger(__name__)


class Renewer:
    """Renews the pair in the serving Secret of one namespace."""

    def __init__(self, secrets: SecretClient, terms: Terms, wall: Callable[[], datetime]) -> None:
        """`wall` returns the present time."""
        self._secrets = secrets
        self._terms = terms
        self._wall = wall

    async def renew(self) -> None:
        """Write a new pair if the present one is due. IssuingError or NoResponseError if that fails."""
        for _ in range(TRIES):
            authority = read_authority((await self._read(names.CA_SECRET)).data or {})
            serving = await self._read(names.SERVING_SECRET)
            now, pair = self._wall(), serving.data or {}
            reason = reason_to_renew(pair, authority, self._terms, now)
            if not reason:
                log.info("Nothing is due", extra={"valid_until": end_of(pair).isoformat()})
                return
            renewed = issue(authority, self._terms, now)
            if await self._secrets.replace(names.SERVING_SECRET, serving.metadata.resource_version, renewed):
                log.info("Renewed", extra={"because": reason, "valid_until": end_of(renewed).isoformat()})
                return
        raise IssuingError(busy(names.SERVING_SECRET))

    async def _read(self, name: str) -> Secret:
        secret = await self._secrets.read(name)
        if secret is None:
            raise IssuingError(
                f"cannot find Secret {name}: make it as it was installed, by `make up ARGS='--tags "
                "certificates,webhook'`, `helm upgrade`, or `kubectl apply` of what `gpu-scheduler certificates` wrote"
            )
        return secret


async def run_renewer(settings: RenewerSettings, kubeconfig: str | None, context: str | None) -> None:
    """Renew the pair if it is due. FatalError if it is due and cannot be renewed, or cannot be read."""

    async def renew(api: ApiClient) -> None:
        secrets = SecretClient(api, settings.kubernetes_namespace, names.RENEWER)
        await Renewer(secrets, terms_of(settings), Clocks().wall).renew()

    await with_client(kubeconfig, context, names.RENEWER, renew)
