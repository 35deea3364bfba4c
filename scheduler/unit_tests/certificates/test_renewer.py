"""The renewer against a fake API server: what it reads, what it writes, and how it fails."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography import x509

from gpu_scheduler.certificates import command
from gpu_scheduler.certificates.issuing import IssuingError
from gpu_scheduler.certificates.renewer import Renewer, run_renewer
from gpu_scheduler.certificates.secrets import SecretClient
from gpu_scheduler.kube.http.client import ApiClient, NoResponseError
from gpu_scheduler.process.lifecycle import FatalError
from gpu_scheduler.settings import RenewerSettings
from tests.messages import text_of
from unit_tests.certificates.authorities import DAY, NOW, TERMS, Ca, secret
from unit_tests.kube.server import FakeServer, Reply, connected

SECRETS = "/api/v1/namespaces/gpu-scheduler-system/secrets"
CA_PATH, SERVING_PATH = f"{SECRETS}/gpu-scheduler-webhook-ca", f"{SECRETS}/gpu-scheduler-webhook-tls"
CA = Ca()
CONFLICT = Reply(409, {"message": "the object has been modified"})
PATCHED = Reply()
DENIED = Reply(403, {"message": "secrets is forbidden"})


def renewer(api: ApiClient) -> Renewer:
    return Renewer(SecretClient(api, "gpu-scheduler-system", "gpu-scheduler-renewer"), TERMS, lambda: NOW)


@asynccontextmanager
async def renewing(*pairs: Reply, patched: Reply = PATCHED) -> AsyncIterator[tuple[FakeServer, ApiClient]]:
    """Yield an API server that has the CA and a pair, which changes from one look to the next."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, secret(CA.secret()))
        server.on("GET", SERVING_PATH, *pairs)
        server.on("PATCH", SERVING_PATH, patched)
        yield server, api


def written(server: FakeServer) -> list[Any]:
    """Return the bodies of all writes. Each is a merge patch of the serving Secret under a manager of its own."""
    writes = [each for each in server.requests if each.method != "GET"]
    for each in writes:
        assert (each.method, each.path) == ("PATCH", SERVING_PATH)
        assert each.query == {"fieldManager": "gpu-scheduler-renewer"}
        assert each.headers["Content-Type"] == "application/merge-patch+json"
    return [each.body for each in writes]


async def test_a_pair_with_200_days_is_only_read() -> None:
    """One look at each Secret, and no write."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, secret(CA.secret()))
        server.on("GET", SERVING_PATH, secret(CA.pair(200 * DAY)))

        await renewer(api).renew()

        assert [each.path for each in server.requests] == [CA_PATH, SERVING_PATH]


@pytest.mark.promise("hook-6")
async def test_a_due_pair_is_replaced_in_the_version_that_was_read() -> None:
    """Three keys are written and nothing else of the Secret."""
    async with renewing(secret(CA.pair(10 * DAY))) as (server, api):
        await renewer(api).renew()

        (body,) = written(server)
        data = {name: base64.b64decode(value) for name, value in body.pop("data").items()}
        assert body == {"metadata": {"resourceVersion": "7"}}
        assert set(data) == {"tls.crt", "tls.key", "ca.crt"}
        assert x509.load_pem_x509_certificate(data["tls.crt"]).not_valid_after_utc == NOW + 365 * DAY


async def test_a_conflict_is_decided_again() -> None:
    """The Secret that another client wrote in between has a good pair, so nothing is written over it."""
    async with renewing(secret(CA.pair(10 * DAY)), secret(CA.pair(360 * DAY), "8"), patched=CONFLICT) as (server, api):
        await renewer(api).renew()

        assert len(written(server)) == 1


async def test_a_second_conflict_fails() -> None:
    """The next Job tries again."""
    async with renewing(secret(CA.pair(10 * DAY)), secret(CA.pair(10 * DAY), "8"), patched=CONFLICT) as (server, api):
        with pytest.raises(IssuingError, match="cannot write Secret gpu-scheduler-webhook-tls: "):
            await renewer(api).renew()

        assert [body["metadata"]["resourceVersion"] for body in written(server)] == ["7", "8"]


FAILURES = {
    "no CA": (Reply(404), "cannot find Secret gpu-scheduler-webhook-ca: make it as it was installed, by `make up"),
    "no right": (DENIED, "cannot read Secret gpu-scheduler-webhook-ca: HTTP 403: secrets is forbidden"),
    "no Secret": (Reply(body="[]"), "cannot read Secret gpu-scheduler-webhook-ca: Expected `object`, got `array`"),
    "no base64": (
        Reply(body={"metadata": {}, "data": {"tls.crt": "%"}}),
        "cannot read Secret gpu-scheduler-webhook-ca: Invalid base64 encoded string",
    ),
    "no data": (Reply(body={"metadata": {}}), f"{text_of('certificates: the CA cannot be read')} 'tls.crt'"),
}


@pytest.mark.parametrize(("reply", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_one_sentence(reply: Reply, sentence: str) -> None:
    """Nothing is written."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, reply)
        server.on("GET", SERVING_PATH, secret(CA.pair(10 * DAY)))

        with pytest.raises(IssuingError) as failed:
            await renewer(api).renew()

        assert str(failed.value).startswith(sentence)
        assert written(server) == []


async def test_a_refused_write_is_not_repeated() -> None:
    """Only a conflict is tried again."""
    async with renewing(secret(CA.pair(10 * DAY)), patched=DENIED) as (server, api):
        with pytest.raises(IssuingError, match="cannot write Secret gpu-scheduler-webhook-tls: HTTP 403"):
            await renewer(api).renew()

        assert len(written(server)) == 1


async def test_the_command_uses_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespace, Service and days."""
    settings = RenewerSettings(
        kubernetes_namespace="gpu-scheduler-system", webhook_service="hook", serving_days=60, renew_days=50
    )
    async with connected() as (server, api):

        async def connect(*_: object, user_agent: str) -> ApiClient:
            assert user_agent.startswith("gpu-scheduler-renewer/")
            return api

        monkeypatch.setattr(command, "connect", connect)
        server.on("GET", CA_PATH, secret(Ca(left=3650 * DAY).secret()))
        server.on("GET", SERVING_PATH, secret(CA.pair(200 * DAY)))
        server.on("PATCH", SERVING_PATH, Reply())

        await run_renewer(settings, None, None)

        (body,) = written(server)
        certificate = x509.load_pem_x509_certificate(base64.b64decode(body["data"]["tls.crt"]))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName)[0] == "hook.gpu-scheduler-system.svc"
        assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 60


FATAL = {
    # Whether a write was executed is unknown. The next run reads what is there.
    "no answer": NoResponseError("GET /api: refused"),
    "nothing that can be renewed": IssuingError("cannot find Secret"),
}


@pytest.mark.parametrize("error", FATAL.values(), ids=FATAL)
async def test_a_failure_ends_the_command(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """With its sentence, and exit code 1."""
    async with connected() as (_, api):

        async def connect(*_: object, user_agent: str) -> ApiClient:
            return api

        async def ask(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(command, "connect", connect)
        monkeypatch.setattr(api, "call", ask)

        with pytest.raises(FatalError, match=str(error)):
            await run_renewer(RenewerSettings(kubernetes_namespace="any"), None, None)


async def test_neither_log_nor_error_has_a_key(caplog: pytest.LogCaptureFixture) -> None:
    """Only dates and reasons are logged."""
    async with renewing(secret(CA.pair(10 * DAY))) as (_server, api):
        caplog.set_level("DEBUG")

        await renewer(api).renew()

        logged = json.dumps([vars(record) for record in caplog.records], default=repr)
        assert "10 days are left" in logged
        assert "PRIVATE KEY" not in logged
