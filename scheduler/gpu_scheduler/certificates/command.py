"""What the two commands share: their terms, and a client whose failures end the process with one sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from gpu_scheduler.certificates.issuing import IssuingError, Terms, names_of
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import NoResponseError, connect
from gpu_scheduler.process.lifecycle import FatalError, UsageError, own_version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import RenewerSettings


def terms_of(settings: RenewerSettings) -> Terms:
    """Return the terms that the settings give."""
    return Terms(
        names_of(settings.webhook_service, settings.kubernetes_namespace),
        timedelta(days=settings.serving_days),
        timedelta(days=settings.renew_days),
    )


async def with_client(
    kubeconfig: str | None, context: str | None, agent: str, work: Callable[[ApiClient], Awaitable[None]]
) -> None:
    """Do `work` with a client named `agent`. FatalError if it fails, UsageError if there is no cluster to reach."""
    try:
        api = await connect(kubeconfig, context, user_agent=f"{agent}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await work(api)
    except (IssuingError, NoResponseError) as error:
        raise FatalError(str(error)) from error
    finally:
        await api.close()
