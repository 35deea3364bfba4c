"""`gpu-scheduler issue` with a real token that has exactly its rights, and the file of `gpu-scheduler certificates`."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from gpu_scheduler.certificates.issuing import Terms, issue, names_of, read_authority, reason_to_renew
from gpu_scheduler.names import CA_SECRET, ISSUER, SERVING_SECRET
from tests.integration.accounts import allow, allow_everywhere
from tests.integration.command import SCHEDULER
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.programs import program
from tests.integration.role_manifests import rendered, values_of
from tests.integration.webhook_process import COLLECTIONS, NAME
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "admissionregistration.k8s.io"
APPLY: Final = "application/apply-patch+yaml"
DAY: Final = timedelta(days=1)
TERMS: Final = Terms(names_of(NAME, SYSTEM), 365 * DAY, 30 * DAY)


@dataclass(frozen=True)
class Right:
    """One verb on one resource."""

    verb: str
    resource: str
    name: str = ""

    @property
    def rule(self) -> Object:
        """The rule of RBAC that grants it."""
        group = "" if self.resource == "secrets" else ADMISSION
        named = {"resourceNames": [self.name]} if self.name else {}
        return {"apiGroups": [group], "resources": [self.resource], "verbs": [self.verb], **named}

    def review(self, user: str) -> Object:
        """The question whether a user has it."""
        attributes = {"verb": self.verb, "resource": self.resource, "name": self.name}
        where = {"namespace": SYSTEM} if self.resource == "secrets" else {"group": ADMISSION}
        return {"spec": {"user": user, "resourceAttributes": {**attributes, **where}}}


RIGHTS: Final = (
    Right("create", "secrets"),
    Right("get", "secrets", CA_SECRET),
    Right("get", "secrets", SERVING_SECRET),
    Right("patch", "secrets", SERVING_SECRET),
    *(
        Right(verb, f"{kind.lower()}s", NAME)
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for verb in ("get", "patch")
    ),
)


class Site:
    """A control plane, and Jobs that run here with the token of an account."""

    def __init__(self, folder: Path) -> None:
        """Start it, with an account that has all of RIGHTS."""
        self._folder = folder
        self.plane = ControlPlane(folder)
        self.kube = self.plane.kube
        self.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
        self._kubeconfigs = {"admin": self.plane.kubeconfig(folder / "admin.kubeconfig", ADMIN_TOKEN)}
        self.add_account("issuer", RIGHTS)

    def add_account(self, name: str, rights: tuple[Right, ...]) -> None:
        """Create an account with these rights, and return when the API server grants them."""
        for grant, namespaced in ((allow, True), (allow_everywhere, False)):
            rules = (each.rule for each in rights if (each.resource == "secrets") is namespaced)
            grant(self.kube, SYSTEM, name, name, *rules)
        token = self.plane.service_account_token(SYSTEM, name)
        self._kubeconfigs[name] = self.plane.kubeconfig(self._folder / f"{name}.kubeconfig", token)
        eventually("the rights are granted", partial(self._has, f"system:serviceaccount:{SYSTEM}:{name}", rights))

    def _has(self, user: str, rights: tuple[Right, ...]) -> bool:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return all(self.kube.create(path, each.review(user))["status"]["allowed"] for each in rights)

    def command(self, *words: str, account: str = "issuer", **env: str) -> subprocess.Popen[str]:
        """Start `gpu-scheduler` as this account."""
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_scheduler", *words, "--kubeconfig", str(self._kubeconfigs[account])],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SCHEDULER), "KUBERNETES_NAMESPACE": SYSTEM, **env},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, account: str = "issuer", **env: str) -> Done:
        """Run `gpu-scheduler` as this account until it ends."""
        return ended(self.command(*words, account=account, **env))

    def kubectl(self, *words: str) -> str:
        """Run kubectl as an administrator."""
        command = [str(program("kubectl")), "--kubeconfig", str(self._kubeconfigs["admin"]), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit(30), check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        found = self.kube.get(f"{SECRETS}/{name}") or {}
        return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}

    def store(self, name: str, data: dict[str, bytes]) -> None:
        """Create a Secret."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.kube.create(SECRETS, {"metadata": {"name": name}, "data": encoded})

    def apply_registrations(self, *, most: int = 2) -> None:
        """Apply the role's registrations without a bundle, as an installer does, with at most so many webhooks each."""
        for body in rendered("webhook", "registrations", {**values_of("webhook"), "_webhook_ca_bundle": ""}):
            del body["webhooks"][most:]
            for one in body["webhooks"]:
                one["clientConfig"].pop("caBundle", None)
            path = f"{COLLECTIONS[body['kind']]}/{NAME}?fieldManager=helm&force=true"
            status, answer = self.kube.call("PATCH", path, body, APPLY)
            assert status in {200, 201}, answer

    def registrations(self) -> list[Object]:
        """Return both registrations."""
        return [found for each in COLLECTIONS.values() if (found := self.kube.get(f"{each}/{NAME}"))]

    def bundles(self) -> list[bytes]:
        """Return the CAs that the API server trusts, of each registered webhook."""
        found = [one["clientConfig"] for each in self.registrations() for one in each["webhooks"]]
        return [base64.b64decode(each.get("caBundle") or "") for each in found]

    def objects(self) -> list[Object | None]:
        """Return all that a Job may write."""
        return [self.kube.get(f"{SECRETS}/{name}") for name in (CA_SECRET, SERVING_SECRET)] + self.registrations()

    def clear(self) -> None:
        """Delete all of that."""
        for name in (CA_SECRET, SERVING_SECRET):
            self.kube.delete(f"{SECRETS}/{name}")
        for each in COLLECTIONS.values():
            self.kube.delete(f"{each}/{NAME}")


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit code and its log lines."""

    code: int
    lines: list[Object]

    @property
    def events(self) -> list[str]:
        """The events between the first line, which names the version, and the last."""
        return [each["event"] for each in self.lines[1:-1]]

    @property
    def why(self) -> str:
        """The sentence of a failure; empty after success."""
        return str(self.lines[-1].get("why", ""))


def ended(process: subprocess.Popen[str]) -> Done:
    """Wait until the command has ended."""
    try:
        _, log = process.communicate(timeout=limit(60))
    finally:
        process.kill()
    assert "Traceback" not in log
    assert "PRIVATE KEY" not in log
    return Done(process.returncode, [json.loads(line) for line in log.splitlines()])


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("issuer"))
    try:
        yield site
    finally:
        site.plane.stop()


@pytest.fixture
def site(control_plane: Site) -> Iterator[Site]:
    """Nothing that a Job writes is there."""
    yield control_plane
    control_plane.clear()


def role_ca() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the CA's Secret as role certificates makes it, and as it is where a newer CA does not sign yet."""
    made, newer = trustme.CA(), trustme.CA()
    pem, key = made.cert_pem.bytes(), made.private_key_pem.bytes()
    present = {"ca.crt": pem, "ca.key": key, "previous.crt": b"", "tls.crt": pem, "tls.key": key}
    new = {"ca.crt": newer.cert_pem.bytes(), "ca.key": newer.private_key_pem.bytes(), "previous.crt": pem}
    return present, {**present, **new}


def pair_of(ca: dict[str, bytes], left: timedelta = 200 * DAY) -> dict[str, bytes]:
    """Return a serving pair with so much time left."""
    return issue(read_authority(ca), Terms(TERMS.names, left, timedelta()), datetime.now(UTC))


@pytest.mark.promise("hook-7")
def test_an_empty_cluster_gets_both_secrets_and_trusts_the_ca(site: Site) -> None:
    """One line for each thing done; a second run changes nothing."""
    site.apply_registrations()
    before = site.registrations()

    first = site.run("issue")
    after = site.objects()
    second = site.run("issue")

    assert (first.code, first.events) == (
        0,
        ["Issued a CA", "Issued a certificate", *["Wrote the CA into a registration"] * 2],
    )
    ca, pair = site.secret(CA_SECRET), site.secret(SERVING_SECRET)
    assert reason_to_renew(pair, read_authority(ca), TERMS, datetime.now(UTC)) == ""
    assert site.bundles() == [ca["ca.crt"]] * 4
    assert [each["type"] for each in after[:2] if each] == ["Opaque", "kubernetes.io/tls"]
    assert (second.code, second.events) == (0, ["Nothing is due", *["The CA is trusted"] * 2])
    assert site.objects() == after
    for old, new in zip(before, site.registrations(), strict=True):
        for one in new["webhooks"]:
            del one["clientConfig"]["caBundle"]
        assert new["webhooks"] == old["webhooks"]
        managers = {each["manager"]: each["operation"] for each in new["metadata"]["managedFields"]}
        assert managers == {"helm": "Apply", ISSUER: "Update"}


def test_an_installer_that_applies_again_keeps_the_bundle(site: Site) -> None:
    """It has never written that field."""
    site.apply_registrations()
    assert site.run("issue").code == 0
    trusted = site.bundles()

    site.apply_registrations()

    assert site.bundles() == trusted != [b""] * 4


def test_an_installer_may_remove_a_webhook_later(site: Site) -> None:
    """The Job owns no more than the bundle: a rest of the webhook would be refused."""
    site.apply_registrations()
    assert site.run("issue").code == 0
    trusted = site.bundles()

    site.apply_registrations(most=1)

    assert site.bundles() == trusted[:2]


def test_the_first_half_alone_needs_no_registrations(site: Site) -> None:
    """A hook before the installation runs it. What comes after it adds the rest."""
    done = site.run("issue", "--secrets-only")

    assert (done.code, done.events) == (0, ["Issued a CA", "Issued a certificate"])
    assert site.run("issue", "--secrets-only").events == ["Nothing is due"]
    assert site.run("renew", account="admin").events == ["Nothing is due"]


def test_a_new_ca_and_the_one_that_still_signs_are_both_trusted(site: Site) -> None:
    """As role certificates leaves them between the two runs of a rotation."""
    present, rotating = role_ca()
    site.store(CA_SECRET, rotating)
    site.store(SERVING_SECRET, pair_of(present))
    site.apply_registrations()
    stored = site.objects()[:2]

    done = site.run("issue")

    assert (done.code, done.events[0]) == (0, "Nothing is due")
    assert site.objects()[:2] == stored
    assert site.bundles() == [rotating["ca.crt"] + present["ca.crt"]] * 4


@pytest.mark.promise("hook-7")
def test_jobs_at_the_same_time_agree(site: Site) -> None:
    """Each takes what another has created."""
    site.apply_registrations()
    jobs = [site.command("issue") for _ in range(4)]

    done = [ended(job) for job in jobs]

    assert [each.why for each in done] == [""] * 4
    assert [each.code for each in done] == [0] * 4
    ca, pair = site.secret(CA_SECRET), site.secret(SERVING_SECRET)
    assert reason_to_renew(pair, read_authority(ca), TERMS, datetime.now(UTC)) == ""
    assert site.bundles() == [ca["ca.crt"]] * 4
    assert sum("Issued a CA" in each.events for each in done) == 1
    assert sum("Issued a certificate" in each.events for each in done) == 1


@pytest.mark.parametrize("missing", RIGHTS, ids=lambda right: f"{right.verb} {right.resource} {right.name}")
def test_a_missing_right_is_named(site: Site, missing: Right) -> None:
    """In one sentence, with the object."""
    account = f"lacks-{RIGHTS.index(missing)}"
    site.add_account(account, tuple(each for each in RIGHTS if each != missing))
    site.apply_registrations()
    if missing.verb == "patch":
        ca, _ = role_ca()
        site.store(CA_SECRET, ca)
        site.store(SERVING_SECRET, pair_of(ca, 10 * DAY))

    done = site.run("issue", account=account)

    assert done.code == 1
    verb = {"get": "read", "patch": "write", "create": "create"}[missing.verb]
    assert done.why.startswith(f"cannot {verb} ")
    assert f'cannot {missing.verb} resource "{missing.resource}" in API group' in done.why
    assert missing.name in done.why


def test_the_file_of_the_verb_is_what_renewer_and_issuer_go_on_with(site: Site, tmp_path: Path) -> None:
    """Applied by kubectl: `renew` finds nothing due, and `issue` only lets the API server trust the CA."""
    folder = tmp_path / "certs"
    made = subprocess.run(
        [sys.executable, "-m", "gpu_scheduler", "certificates", "--out", str(folder)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SCHEDULER)},
        capture_output=True,
        text=True,
        timeout=limit(30),
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert f"  kubectl apply -f {folder}/webhook-tls-secret.yaml\n" in made.stdout

    site.kubectl("apply", "-f", f"{folder}/webhook-tls-secret.yaml")
    again = site.kubectl("apply", "-f", f"{folder}/webhook-tls-secret.yaml")
    stored = site.objects()
    renewed = site.run("renew", account="admin")
    site.apply_registrations()
    issued = site.run("issue")

    assert again.count("unchanged") == 2
    assert (renewed.code, renewed.events) == (0, ["Nothing is due"])
    assert (issued.code, issued.events[0]) == (0, "Nothing is due")
    assert site.objects()[:2] == stored
    assert site.bundles() == [(folder / "ca.crt").read_bytes()] * 4
