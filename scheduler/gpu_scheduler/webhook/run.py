"""Wiring of `gpu-scheduler webhook`: two listeners, and a certificate that is reloaded. It sends no API requests."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from gpu_scheduler.process.http_server import Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.metrics import new_registry, read_gauges
from gpu_scheduler.webhook.admission import Webhook
from gpu_scheduler.webhook.certificates import CertificateError, ServingCertificate
from gpu_scheduler.webhook.metrics import WebhookMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from gpu_scheduler.settings import WebhookSettings

# Seconds for requests that are still open after the drain. aiohttp waits for them twice. With the default drain period
# (3), this is less than the 5 that a stop may take.
LAST_REQUESTS = 0.9

log = logging.getLogger(__name__)


def observed(commit: str, seconds_left: Callable[[], float]) -> tuple[CollectorRegistry, WebhookMetrics]:
    """Return the registry of a webhook whose certificate is valid for `seconds_left`, and the counters in it."""
    registry = new_registry(own_version(), commit)
    metrics = WebhookMetrics(registry)
    expiry = ("Seconds until the serving certificate expires", seconds_left)
    read_gauges(registry, {names.METRIC_CERTIFICATE_EXPIRY: expiry})
    return registry, metrics


async def run_webhook(settings: WebhookSettings) -> None:
    """Serve until SIGTERM or SIGINT, then for `drain_period` more, while the endpoint is removed from the Service.

    UsageError if the certificate or a port cannot be used.
    """
    stop = stop_on_signals()
    try:
        certificate = ServingCertificate(settings.certificate_dir, client_ca=settings.client_ca)
    except CertificateError as error:
        raise UsageError(str(error)) from error
    registry, metrics = observed(settings.gpu_scheduler_commit, certificate.seconds_left)
    webhook = Webhook(settings.scheduler_name, metrics)
    health = health_app(
        alive={},
        ready={
            "certificate": certificate.problem,
            "serving": lambda: "stopping" if webhook.draining else None,
        },
        registry=registry,
    )
    address = settings.bind_address
    try:
        async with (
            Listener(
                webhook.app(),
                address=address,
                port=settings.webhook_port,
                variable="WEBHOOK_PORT",
                tls=certificate.context,
                shutdown_timeout=LAST_REQUESTS,
                limits=WEBHOOK_LIMITS,
            ),
            Listener(health, address=address, port=settings.http_port, variable="HTTP_PORT"),
        ):
            fresh = asyncio.create_task(certificate.keep_fresh(settings.certificate_poll), name="certificate")
            try:
                await until_stopped(stop, [fresh])
                log.info("Stopping")
                webhook.draining = True
                await asyncio.sleep(settings.drain_period)
            finally:
                await cancel([fresh])
    except ListenError as error:
        raise UsageError(str(error)) from error
