"""The webhook's certificate over the years: issued, renewed, rotated, and handed to cert-manager and back.

Nothing that the roles or the renewer do refuses a create of our pods. The plays are the roles' own.
"""

from __future__ import annotations

import base64
import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest
import trustme
import yaml
from cryptography import x509

from gpu_scheduler.certificates.folder import SECRETS_FILE, Wanted, fill
from gpu_scheduler.certificates.issuing import Terms, names_of
from gpu_scheduler.names import CA_SECRET, RENEWER, SERVING_SECRET
from tests.cluster.plays import Run, run
from tests.contracts.roles import ROOT
from tests.integration.cert_manager import ISSUED_FOR, CertManager, define
from tests.integration.certified import DAY, SECRETS, Certified
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.controller_manager import start_controller_manager
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.programs import program
from tests.integration.webhook_process import COLLECTIONS, NAME
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

# A play takes 10 seconds, on a busy machine a minute.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

CRONJOB: Final = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{RENEWER}"
REQUESTS: Final = f"/apis/cert-manager.io/v1/namespaces/{SYSTEM}"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
LABELS: Final = {"app.kubernetes.io/name": "gpu-scheduler", "app.kubernetes.io/component": "certificates"}
APPLY: Final = "application/apply-patch+yaml"
OK: Final = 200
DENIED: Final = 422
# The two roles as site.yml runs them, without the Deployment, which needs kubelets.
PLAY: Final = """\
- hosts: localhost
  module_defaults:
    group/kubernetes.core.k8s: {kubeconfig: "{{ kubeconfig }}", context: "{{ kube_context }}"}
    failure_report: {kubectl: "{{ kubectl_command }}"}
    admission_probe: {kubectl: "{{ kubectl_command }}"}
    cluster_objects: {kubectl: "{{ kubectl_command }}"}
    applied_objects:
      kubeconfig: "{{ kubeconfig }}"
      context: "{{ kube_context }}"
      kubectl: "{{ kubectl_command }}"
      namespace: "{{ system_namespace }}"
    applied_record: {kubectl: "{{ kubectl_command }}", namespace: "{{ system_namespace }}"}
  tasks:
    - import_role: {name: certificates}
    - import_role: {name: webhook}
      vars: {_webhook_manifests: [registrations.yaml.j2]}
      when: registers | default(true)
"""


class Site(Certified):
    """A cluster with cert-manager on which the roles run."""

    def __init__(self, folder: Path) -> None:
        """Start the control plane, the garbage collector and cert-manager."""
        super().__init__(folder)
        try:
            # The garbage collector knows the kinds that are there when it starts.
            define(self.kube)
            self._controllers = start_controller_manager(self.plane, folder)
        except BaseException:
            super().stop()
            raise
        self._cert_manager = CertManager(self.kube, SYSTEM)
        kubeconfig = self.plane.kubeconfig(folder / "kubeconfig", ADMIN_TOKEN)
        self._given: Object = {
            "kubeconfig": str(kubeconfig),
            "kube_context": "test",
            "kubectl_program": str(program("kubectl")),
            "certificates_wait_timeout": int(limit(30)),
        }
        self._roles = folder / "roles"
        shutil.copytree(ROOT / "roles", self._roles, symlinks=True)
        registrations = self._roles / "webhook" / "templates" / "registrations.yaml.j2"
        text = registrations.read_text(encoding="utf-8")
        registrations.write_text(text.replace("port: 443", f"port: {self.port}"), encoding="utf-8")
        self._play = folder / "play.yml"
        self._play.write_text(PLAY, encoding="utf-8")

    def stop(self) -> None:
        """End everything."""
        self._cert_manager.stop()
        self._controllers.stop()
        super().stop()

    def play(self, *options: str, **variables: object) -> Run:
        """Run both roles with these variables of the inventory."""
        given = json.dumps({**self._given, **variables})
        environment = {"ANSIBLE_ROLES_PATH": str(self._roles), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        command = ("ansible-playbook", str(self._play), "-i", "inventory/existing", "-e", given, *options)
        return run(*command, environment=environment)

    def inject(self, ca: bytes) -> None:
        """Register this CA alone, as cert-manager's cainjector does where version 0.1.0 has annotated what it applied.

        Return when the API server trusts the pair of this CA.
        """
        for kind, collection in COLLECTIONS.items():
            path = f"{collection}/{NAME}"
            found = self.kube.get(path) or {}
            applied: Object = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"annotations": {"cert-manager.io/inject-ca-from": f"{SYSTEM}/{SERVING_SECRET}"}},
                "webhooks": found["webhooks"],
            }
            for one in applied["webhooks"]:
                del one["clientConfig"]["caBundle"]
            status, found = self.kube.call(
                "PATCH", f"{path}?fieldManager=gpu-scheduler-ansible&force=true", applied, APPLY
            )
            assert status == OK, found
            for one in found["webhooks"]:
                one["clientConfig"]["caBundle"] = base64.b64encode(ca).decode()
            status, answer = self.kube.call("PUT", f"{path}?fieldManager=cainjector", found)
            assert status == OK, answer
        pair = eventually("a pair is issued", lambda: self.secret(SERVING_SECRET).get("tls.crt"), seconds=20)
        self.wait_served(pair)
        self.wait_called()

    def requests(self) -> set[str]:
        """Return the names of all Certificates and Issuers."""
        found = [self.kube.call("GET", f"{REQUESTS}/{kind}")[1]["items"] for kind in ("certificates", "issuers")]
        return {each["metadata"]["name"] for items in found for each in items}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """What the roles install with `cert_mode: managed`."""
    site = Site(tmp_path_factory.mktemp("certified"))
    try:
        site.play().succeeded()
        yield site
    finally:
        site.stop()


def test_a_second_run_changes_nothing(site: Site) -> None:
    """Of what is stored, applied and recorded, and also after a renewal by the renewer."""
    site.serve_pair(10 * DAY)
    assert site.renew().returncode == 0

    assert site.play().succeeded().changed == {}


def test_the_secrets_of_the_verb_are_kept(site: Site, tmp_path: Path) -> None:
    """A user may go from the file of `gpu-scheduler certificates` to the playbook: it registers that CA."""
    terms = Terms(names_of(NAME, SYSTEM), 365 * DAY, 30 * DAY)
    fill(tmp_path, Wanted(SYSTEM, terms, 3650 * DAY), datetime.now(UTC))
    for body in yaml.safe_load_all((tmp_path / SECRETS_FILE).read_text(encoding="utf-8")):
        path = f"{SECRETS}/{body['metadata']['name']}?fieldManager=kubectl&force=true"
        assert site.kube.call("PATCH", path, body, APPLY)[0] == OK
    before = site.versions()

    site.play().succeeded()

    assert site.versions() == before
    assert set(site.bundles()) == {(tmp_path / "ca.crt").read_bytes()}
    site.wait_served(site.secret(SERVING_SECRET)["tls.crt"])
    site.wait_called()


def test_a_new_ca_signs_only_when_it_is_trusted(site: Site) -> None:
    """A rotation keeps old and new trusted until all serve, whenever the renewer runs.

    Three runs: a new CA that nobody trusts yet, its registration, and the pair that it signs.
    """
    first = site.serve_pair(200 * DAY)
    before = site.secret(CA_SECRET)
    with site.load() as load:
        site.play(certificates_force="ca", registers=False).succeeded()
        made = site.secret(CA_SECRET)
        assert made["ca.crt"] != before["ca.crt"]
        assert (made["tls.crt"], made["previous.crt"].strip()) == (before["ca.crt"], before["ca.crt"].strip())
        # Whatever the renewer does now, the old CA signs.
        assert site.renew(RENEW_DAYS="300").returncode == 0
        second = site.secret(SERVING_SECRET)["tls.crt"]
        site.wait_served(second)

        site.play().succeeded()
        assert all(made["ca.crt"].strip() in bundle and before["ca.crt"].strip() in bundle for bundle in site.bundles())
        assert site.secret(SERVING_SECRET)["tls.crt"] == second

        site.play().succeeded()
        signed = site.secret(SERVING_SECRET)
        site.wait_served(signed["tls.crt"])

    assert load.served == {first, second, signed["tls.crt"]}
    assert site.secret(CA_SECRET)["tls.crt"] == made["ca.crt"]
    authority = x509.load_pem_x509_certificate(made["ca.crt"])
    x509.load_pem_x509_certificate(signed["tls.crt"]).verify_directly_issued_by(authority)
    assert signed["ca.crt"].count(b"BEGIN CERTIFICATE") == 2
    before_renewal = site.versions()
    assert site.renew().returncode == 0
    assert site.versions() == before_renewal


def test_cert_manager_takes_over_and_gives_back(site: Site) -> None:
    """One run each way. The CA stays ours and the same, and whoever does not issue any more is gone."""
    ca = site.secret(CA_SECRET)
    with site.load():
        site.play(cert_mode="cert-manager").succeeded()
        assert site.secret(CA_SECRET) == ca
        assert site.kube.get(CRONJOB) is None
        issued = site.kube.get(f"{SECRETS}/{SERVING_SECRET}") or {}
        assert issued["metadata"]["annotations"][ISSUED_FOR] == SERVING_SECRET
        pair = site.secret(SERVING_SECRET)
        site.wait_served(pair["tls.crt"])

        site.play().succeeded()
        kept = site.secret(SERVING_SECRET)

    assert kept == {**pair, "ca.crt": ca["ca.crt"].strip() + b"\n" + ca["previous.crt"]}
    assert site.requests() == set()
    assert site.kube.get(CRONJOB) is not None
    assert site.secret(CA_SECRET) == ca
    assert site.renew().returncode == 0


def former_objects() -> Iterator[tuple[str, Object]]:
    """Yield what version 0.1.0 applied with `cert_mode: cert-manager`."""
    root = {"kind": "Issuer", "name": "gpu-scheduler-webhook-root"}
    signer = {"kind": "Issuer", "name": "gpu-scheduler-webhook-ca"}
    names = [f"{NAME}.{SYSTEM}.svc"]
    specs: list[tuple[str, str, Object]] = [
        ("issuers", root["name"], {"selfSigned": {}}),
        ("issuers", signer["name"], {"ca": {"secretName": CA_SECRET}}),
        ("certificates", CA_SECRET, {"isCA": True, "secretName": CA_SECRET, "issuerRef": root}),
        (
            "certificates",
            SERVING_SECRET,
            {"secretName": SERVING_SECRET, "issuerRef": signer, "dnsNames": names, "duration": "8760h"},
        ),
    ]
    for plural, name, spec in specs:
        kind = plural.capitalize().removesuffix("s")
        yield (
            plural,
            {
                "apiVersion": "cert-manager.io/v1",
                "kind": kind,
                "metadata": {"name": name, "labels": LABELS},
                "spec": spec,
            },
        )


@pytest.mark.parametrize("mode", ["cert-manager", "managed"])
def test_a_ca_that_cert_manager_made_is_adopted(site: Site, mode: str) -> None:
    """Version 0.1.0 had cert-manager make the CA, and its cainjector register it."""
    made = trustme.CA()
    for kind in ("certificates", "issuers"):
        site.kube.call("DELETE", f"{REQUESTS}/{kind}")
    site.kube.delete(f"{SECRETS}/{SERVING_SECRET}")
    ca = {"tls.crt": made.cert_pem.bytes(), "tls.key": made.private_key_pem.bytes(), "ca.crt": made.cert_pem.bytes()}
    owners = []
    for plural, body in former_objects():
        created = site.kube.create(f"{REQUESTS}/{plural}", body)
        if body["metadata"]["name"] == CA_SECRET and plural == "certificates":
            reference = {key: body[key] for key in ("apiVersion", "kind")}
            owners = [{**reference, "name": CA_SECRET, "uid": created["metadata"]["uid"], "controller": True}]
    site.store(CA_SECRET, ca, type="kubernetes.io/tls")
    site.kube.patch(f"{SECRETS}/{CA_SECRET}", {"metadata": {"ownerReferences": owners}})
    site.inject(ca["ca.crt"])
    with site.load():
        site.play(cert_mode=mode).succeeded()

    adopted = site.kube.get(f"{SECRETS}/{CA_SECRET}") or {}
    data = site.secret(CA_SECRET)
    assert (adopted["type"], adopted["metadata"].get("ownerReferences")) == ("kubernetes.io/tls", None)
    assert data == {**ca, "ca.key": ca["tls.key"], "previous.crt": b""}
    for collection in COLLECTIONS.values():
        found = site.kube.get(f"{collection}/{NAME}") or {}
        assert "annotations" not in found["metadata"]
    assert site.requests() == ({SERVING_SECRET, CA_SECRET} if mode == "cert-manager" else set())


def test_the_reason_of_a_failure_is_shown(site: Site) -> None:
    """What the API server says is not hidden with the keys."""
    name = "nobody-writes-secrets"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"]}
            ]
        },
        "validations": [{"expression": "false", "message": "Secrets are frozen until Monday"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    site.kube.create(f"{POLICIES}ies", {"metadata": {"name": name}, "spec": policy})
    site.kube.create(f"{POLICIES}ybindings", {"metadata": {"name": name}, "spec": binding})
    asked = {"metadata": {"annotations": {"tests/asked": "yes"}}}
    path = f"{SECRETS}/{SERVING_SECRET}?dryRun=All"
    try:
        eventually("writes are denied", lambda: site.kube.merge(path, asked)[0] == DENIED, seconds=20)
        failed = site.play("-vvv", certificates_force="ca")
    finally:
        site.kube.delete(f"{POLICIES}ybindings/{name}")
        site.kube.delete(f"{POLICIES}ies/{name}")

    assert failed.code != 0
    assert "Secrets are frozen until Monday" in failed.output
    ca = site.kube.get(f"{SECRETS}/{CA_SECRET}") or {}
    assert ca["data"]["ca.key"] not in failed.output
    assert "PRIVATE KEY" not in failed.output


def test_check_mode_writes_nothing(site: Site) -> None:
    """Neither what is due nor a change of the mode."""
    before = site.versions()

    assert site.play("--check", certificates_force="ca", cert_mode="cert-manager").succeeded().changed
    assert site.versions() == before
    assert site.kube.get(CRONJOB) is not None
