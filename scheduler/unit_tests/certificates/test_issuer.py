"""The issuer against a fake API server: what it decides, also where others write at the same time."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from gpu_scheduler.certificates import command, issuer
from gpu_scheduler.certificates.issuer import SecretIssuer, TrustWriter, run_issuer
from gpu_scheduler.certificates.issuing import IssuingError, end_of, read_authority
from gpu_scheduler.certificates.secrets import SecretClient
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.process.lifecycle import Clocks, FatalError
from gpu_scheduler.settings import IssuerSettings
from tests.messages import text_of
from unit_tests.certificates.authorities import DAY, NOW, TERMS, Ca, secret
from unit_tests.kube.server import FakeServer, Reply, connected

SECRETS = "/api/v1/namespaces/gpu-scheduler-system/secrets"
CA_PATH, SERVING_PATH = f"{SECRETS}/gpu-scheduler-webhook-ca", f"{SECRETS}/gpu-scheduler-webhook-tls"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{GROUP}/mutatingwebhookconfigurations/gpu-scheduler-webhook"
VALIDATING = f"{GROUP}/validatingwebhookconfigurations/gpu-scheduler-webhook"
CA, OTHER = Ca(), Ca()
MISSING = Reply(404, {"message": "not found"})
CONFLICT = Reply(409, {"message": "already exists"})
DENIED = Reply(403, {"message": "forbidden"})
OF_CERT_MANAGER = {"cert-manager.io/certificate-name": "hook"}


def registration(*bundles: bytes, version: str = "3") -> Reply:
    webhooks = [
        {"name": f"hook-{number}", "clientConfig": {"caBundle": base64.b64encode(each).decode()}}
        for number, each in enumerate(bundles)
    ]
    return Reply(body={"metadata": {"resourceVersion": version}, "webhooks": webhooks})


def secret_issuer(api: ApiClient) -> SecretIssuer:
    secrets = SecretClient(api, "gpu-scheduler-system", "gpu-scheduler-issuer")
    return SecretIssuer(secrets, TERMS, 3650 * DAY, Clocks(wall=lambda: NOW))


def writes(server: FakeServer) -> list[Any]:
    """Return method, path and body of all writes. Each is under the issuer's field manager."""
    found = [each for each in server.requests if each.method != "GET"]
    assert {each.query["fieldManager"] for each in found} <= {"gpu-scheduler-issuer"}
    return [(each.method, each.path, each.body) for each in found]


def data_in(body: Any) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in body["data"].items()}


async def test_the_secrets_of_an_empty_namespace_are_created() -> None:
    """The pair is signed by the CA as it was stored, whoever stored it."""
    async with connected() as (server, api):
        server.on("GET", SERVING_PATH, MISSING)
        server.on("GET", CA_PATH, MISSING, secret(CA.secret()))
        server.on("POST", SECRETS, Reply(201))

        authority = await secret_issuer(api).issue()

        (_, _, ca), (_, _, pair) = writes(server)
        assert [each["metadata"]["name"] for each in (ca, pair)] == [
            "gpu-scheduler-webhook-ca",
            "gpu-scheduler-webhook-tls",
        ]
        assert [each["type"] for each in (ca, pair)] == ["Opaque", "kubernetes.io/tls"]
        assert end_of(data_in(ca)) == NOW + 3650 * DAY
        assert end_of(data_in(pair)) == NOW + 365 * DAY
        certificate = x509.load_pem_x509_certificate(data_in(pair)["tls.crt"])
        certificate.verify_directly_issued_by(CA.certificate)
        assert authority.certificate == CA.certificate


async def test_a_job_that_creates_at_the_same_time_wins() -> None:
    """What it has created is read, and nothing is written over it."""
    async with connected() as (server, api):
        server.on("GET", SERVING_PATH, MISSING, MISSING, secret(CA.pair(360 * DAY)))
        server.on("GET", CA_PATH, MISSING, secret(CA.secret()))
        server.on("POST", SECRETS, CONFLICT)

        authority = await secret_issuer(api).issue()

        assert [(method, path) for method, path, _ in writes(server)] == [("POST", SECRETS)] * 2
        assert authority.certificate == CA.certificate


async def test_a_pair_that_is_due_is_replaced_in_the_version_that_was_read() -> None:
    """After a conflict it is decided again."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, secret(CA.secret()))
        server.on("GET", SERVING_PATH, secret(CA.pair(10 * DAY)), secret(CA.pair(10 * DAY), "8"))
        server.on("PATCH", SERVING_PATH, CONFLICT, Reply())

        await secret_issuer(api).issue()

        assert [body["metadata"] for _, _, body in writes(server)] == [
            {"resourceVersion": "7"},
            {"resourceVersion": "8"},
        ]


async def test_conflicts_without_end_fail() -> None:
    """The next Job tries again."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, secret(CA.secret()))
        server.on("GET", SERVING_PATH, MISSING)
        server.on("POST", SECRETS, CONFLICT)

        with pytest.raises(IssuingError, match=r"^cannot write Secret gpu-scheduler-webhook-tls: "):
            await secret_issuer(api).issue()


LEFT_ALONE: dict[str, tuple[Reply, Reply]] = {
    "a pair with 200 days": (secret(CA.secret()), secret(CA.pair(200 * DAY))),
    "a pair of cert-manager, due or not": (secret(CA.secret()), secret(CA.pair(10 * DAY), annotations=OF_CERT_MANAGER)),
    "a CA that cert-manager made, as version 0.1.0 had it do": (
        secret({name: CA.secret()[name] for name in ("ca.crt", "tls.crt", "tls.key")}),
        secret(CA.pair(200 * DAY)),
    ),
}


@pytest.mark.parametrize(("ca", "serving"), LEFT_ALONE.values(), ids=LEFT_ALONE)
async def test_what_is_in_order_is_only_read(ca: Reply, serving: Reply) -> None:
    """One look at each Secret, and no write."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, ca)
        server.on("GET", SERVING_PATH, serving)

        authority = await secret_issuer(api).issue()

        assert len(server.requests) == 2
        assert authority.certificate == CA.certificate


OF_THEIRS = "cannot use a CA of our own: cert-manager issues Secret gpu-scheduler-webhook-tls (Certificate hook) with"
REFUSED: dict[str, tuple[Reply, Reply, str]] = {
    "a pair of cert-manager without our CA": (
        MISSING,
        secret(OTHER.pair(200 * DAY), annotations=OF_CERT_MANAGER),
        OF_THEIRS,
    ),
    "a pair of cert-manager that our CA did not sign": (
        secret(CA.secret()),
        secret(OTHER.pair(200 * DAY), annotations=OF_CERT_MANAGER),
        OF_THEIRS,
    ),
    "a CA that cannot be read": (
        secret({"tls.crt": b"no certificate"}),
        MISSING,
        text_of("certificates: the CA cannot be read"),
    ),
    "a CA that may not be read": (DENIED, MISSING, "cannot read Secret gpu-scheduler-webhook-ca: HTTP 403: forbidden"),
}


@pytest.mark.parametrize(("ca", "serving", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_a_ca_that_is_there_is_never_written(ca: Reply, serving: Reply, sentence: str) -> None:
    """Nor is anything that cert-manager issues."""
    async with connected() as (server, api):
        server.on("GET", CA_PATH, ca)
        server.on("GET", SERVING_PATH, serving)

        with pytest.raises(IssuingError) as refused:
            await secret_issuer(api).issue()

        assert str(refused.value).startswith(sentence)
        assert writes(server) == []


async def test_a_bundle_is_written_where_it_differs() -> None:
    """Into each webhook of the registration, with nothing else of it."""
    trusted = read_authority(CA.secret(OTHER)).trusted
    async with connected() as (server, api):
        server.on("GET", MUTATING, registration(trusted, b"old"))
        server.on("GET", VALIDATING, registration(trusted))
        server.on("PATCH", MUTATING, Reply())

        await TrustWriter(api, Clocks(), 5).trust(trusted)

        ((_, path, body),) = writes(server)
        bundle = {"caBundle": base64.b64encode(trusted).decode()}
        assert path == MUTATING
        assert body == {
            "metadata": {"resourceVersion": "3"},
            "webhooks": [{"name": f"hook-{number}", "clientConfig": bundle} for number in range(2)],
        }


async def test_a_registration_that_comes_or_changes_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the time is up."""
    monkeypatch.setattr(issuer, "POLL", 0.01)
    async with connected() as (server, api):
        server.on("GET", MUTATING, MISSING, MISSING, registration(b""), registration(b"", version="4"))
        server.on("GET", VALIDATING, registration(b"new"))
        server.on("PATCH", MUTATING, CONFLICT, Reply())

        await TrustWriter(api, Clocks(), 60).trust(b"new")

        assert [body["metadata"]["resourceVersion"] for _, _, body in writes(server)] == ["3", "4"]


async def test_the_time_for_both_registrations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Job fails with one sentence."""
    monkeypatch.setattr(issuer, "POLL", 0.01)
    times = iter(range(0, 1000, 50))
    async with connected() as (server, api):
        server.on("GET", MUTATING, MISSING)

        with pytest.raises(
            IssuingError,
            match=r"^cannot let the API server trust the CA: after 120 s there is no MutatingWebhookConfiguration gpu-",
        ):
            await TrustWriter(api, Clocks(elapsed=lambda: next(times)), 120).trust(b"new")

        assert len(server.requests) == 3


UNWRITABLE: dict[str, tuple[Reply, Reply, str]] = {
    "no right to read": (DENIED, Reply(), "cannot read MutatingWebhookConfiguration gpu-scheduler-webhook: HTTP 403"),
    "no registration": (
        Reply(body="[]"),
        Reply(),
        "cannot read MutatingWebhookConfiguration gpu-scheduler-webhook: Ex",
    ),
    "no right to write": (
        registration(b""),
        DENIED,
        "cannot write MutatingWebhookConfiguration gpu-scheduler-webhook: HTTP 403: forbidden",
    ),
}


@pytest.mark.parametrize(("found", "written", "sentence"), UNWRITABLE.values(), ids=UNWRITABLE)
async def test_a_registration_that_cannot_be_written_fails(found: Reply, written: Reply, sentence: str) -> None:
    """At once: waiting does not help."""
    async with connected() as (server, api):
        server.on("GET", MUTATING, found)
        server.on("PATCH", MUTATING, written)

        with pytest.raises(IssuingError) as failed:
            await TrustWriter(api, Clocks(), 60).trust(b"new")

        assert str(failed.value).startswith(sentence)


@pytest.mark.parametrize("secrets_only", [True, False])
async def test_the_command_uses_its_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, secrets_only: bool
) -> None:
    """Namespace, Service, days and time-out; and no key is logged."""
    settings = replace(
        IssuerSettings(kubernetes_namespace="gpu-scheduler-system", webhook_service="hook", serving_days=60),
        ca_days=400,
        registration_timeout=0.01,
    )
    caplog.set_level("DEBUG")
    async with connected() as (server, api):

        async def connect(*_: object, user_agent: str) -> ApiClient:
            assert user_agent.startswith("gpu-scheduler-issuer/")
            return api

        monkeypatch.setattr(command, "connect", connect)
        monkeypatch.setattr(issuer, "POLL", 0.02)
        server.on("GET", SERVING_PATH, MISSING)
        # Its dates are around now.
        server.on("GET", CA_PATH, MISSING, secret(Ca(left=4000 * DAY, age=4000 * DAY).secret()))
        server.on("POST", SECRETS, Reply(201))
        server.on("GET", MUTATING, MISSING)

        if secrets_only:
            await run_issuer(settings, None, None, secrets_only=True)
        else:
            with pytest.raises(FatalError, match=r"^cannot let the API server trust the CA: after 0.01 s"):
                await run_issuer(settings, None, None, secrets_only=False)

        (_, _, ca), (_, _, pair) = writes(server)
        assert bool(server.asked("GET", MUTATING)) is not secrets_only
    lived = [
        each.not_valid_after_utc - each.not_valid_before_utc
        for each in (x509.load_pem_x509_certificate(data_in(body)["tls.crt"]) for body in (ca, pair))
    ]
    assert lived == [400 * DAY + timedelta(minutes=5), 60 * DAY + timedelta(minutes=5)]
    certificate = x509.load_pem_x509_certificate(data_in(pair)["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == "hook.gpu-scheduler-system.svc"
    logged = json.dumps([vars(record) for record in caplog.records], default=repr)
    assert "Issued a certificate" in logged
    assert "PRIVATE KEY" not in logged
