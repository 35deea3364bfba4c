"""`gpu-scheduler doctor` on a real API server: a healthy installation, and damages made on purpose."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from gpu_scheduler.cli.doctor.examine import CHECKS
from gpu_scheduler.names import LEASE, SERVING_SECRET, WEBHOOK
from tests.integration.accounts import FLOW_SCHEMAS, RBAC, create_account
from tests.integration.command import start_scheduler
from tests.integration.complete import EVERY_ADDRESS, CompleteInstallation
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.installed import Installed
from tests.integration.link import Link
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.webhook_process import COLLECTIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.objects import Object

DAY: Final = timedelta(days=1)
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
VIEWER: Final = [
    {"apiGroups": [group], "resources": resources, "verbs": verbs}
    for group, resources, verbs in (
        ("", ["nodes", "pods"], ["list"]),
        ("", ["pods"], ["create"]),
        ("", ["pods/proxy", "configmaps"], ["get"]),
        ("apps", ["deployments", "daemonsets"], ["get", "list"]),
        ("batch", ["cronjobs"], ["get"]),
        ("coordination.k8s.io", ["leases"], ["get", "list"]),
        ("apiextensions.k8s.io", ["customresourcedefinitions"], ["get"]),
        ("admissionregistration.k8s.io", ["*"], ["get", "list"]),
        ("flowcontrol.apiserver.k8s.io", ["flowschemas"], ["list"]),
        ("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    )
]
"""The rules of the page, without that of the Secret."""
Problems = dict[str, str]
"""Check → message."""


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompleteInstallation]:
    """A complete installation, shared by the tests of the module. Each leaves it as it was."""
    complete = CompleteInstallation(tmp_path_factory.mktemp("complete"))
    yield complete
    complete.stop()


@pytest.fixture(scope="module")
def admin(complete: CompleteInstallation, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The command line, for a user with all rights."""
    return Installed(tmp_path_factory.mktemp("admin"), complete.plane, ADMIN_TOKEN, "default")


@pytest.fixture
def healthy(complete: CompleteInstallation, admin: Installed) -> CompleteInstallation:
    """The installation, in which nothing is wrong."""
    found: list[Problems] = []

    def well() -> bool:
        found[:] = [problems(admin)]
        return found == [{}]

    try:
        eventually("nothing is wrong", well, seconds=15)
    except AssertionError as error:
        error.add_note(str(found))
        raise
    return complete


def problems(admin: Installed) -> Problems:
    """Return what is found. Each finding has a remedy, and the exit code is 1 if there is one."""
    code, items = admin.answer("doctor")
    found = [item for item in items if item["result"] != "ok"]
    assert code == bool(found)
    assert all(item["remedy"] for item in found)
    return {item["check"]: item["message"] for item in found}


def found(admin: Installed, check: str, part: str) -> Problems:
    """Wait until this check reports a problem whose message contains `part`. Return all problems."""

    def ask() -> Problems | None:
        answer = problems(admin)
        return answer if part in answer.get(check, "") else None

    return eventually(f"{check}: {part}", ask, seconds=20)


@contextmanager
def gone(complete: CompleteInstallation, path: str) -> Iterator[None]:
    """Delete an object, and create it again at the end."""
    body = complete.kube.get(path)
    assert body is not None, path
    complete.kube.delete(path)
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
        body["metadata"].pop(field, None)
    body.pop("status", None)
    try:
        yield
    finally:
        complete.kube.create(path.rpartition("/")[0], body)


@contextmanager
def changed(complete: CompleteInstallation, path: str, key: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Change one field of an object, and change it back at the end."""
    body = complete.kube.get(path)
    assert body is not None, path
    complete.kube.merge(path, {key: change(body[key])})
    try:
        yield
    finally:
        complete.kube.merge(path, {key: body[key]})


def renew_time(ahead: timedelta) -> Object:
    """Return a patch of a Lease's renewTime, relative to now."""
    moment = datetime.now(UTC) + ahead
    return {"spec": {"renewTime": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"}}


@pytest.mark.promise("doctor-1")
def test_a_healthy_installation_has_no_finding(healthy: CompleteInstallation, admin: Installed) -> None:
    """A line for each check that passed; in a table, and as data."""
    assert healthy.kube
    items = admin.items("doctor")

    assert [(item["check"], item["result"]) for item in items] == [(check.name, "ok") for check in CHECKS]
    rows = admin.run("gpu-scheduler", "doctor").splitlines()
    assert [row.split()[:2] for row in rows] == [["RESULT", "CHECK"], *(["ok", check.name] for check in CHECKS)]


def test_nothing_is_written(healthy: CompleteInstallation, admin: Installed) -> None:
    """Pods are created as dry runs alone."""
    before = [each["metadata"]["name"] for each in healthy.kube.call("GET", "/api/v1/pods")[1]["items"]]

    admin.items("doctor")

    after = [each["metadata"]["name"] for each in healthy.kube.call("GET", "/api/v1/pods")[1]["items"]]
    assert after == before


@pytest.mark.promise("doctor-1")
def test_a_certificate_that_ends(healthy: CompleteInstallation, admin: Installed) -> None:
    """First soon, then at once. The remedy is the renewer's Job."""
    try:
        healthy.certified.serve_pair(5 * DAY)
        ending = [item for item in admin.items("doctor", code=1) if item["result"] != "ok"]
        healthy.certified.store(SERVING_SECRET, healthy.certified.pair(-timedelta(minutes=1)))
        expired = found(admin, "certificate", "expired on ")
    finally:
        healthy.certified.serve_pair(200 * DAY)

    assert [(item["check"], item["result"]) for item in ending] == [("certificate", "warning")]
    assert "ends on " in ending[0]["message"]
    assert ending[0]["remedy"] == (
        "kubectl create job gpu-scheduler-renewer-now --from=cronjob/gpu-scheduler-renewer -n gpu-scheduler-system"
    )
    assert expired.keys() <= {"certificate", "webhook", "readiness"}


@pytest.mark.promise("doctor-1")
def test_another_ca_than_the_registrations_trust(healthy: CompleteInstallation, admin: Installed) -> None:
    """The check compares Secret and registrations, and asks the API server, whose dry run fails too."""
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()

    def distrust(webhooks: list[Object]) -> list[Object]:
        return [{**each, "clientConfig": {**each["clientConfig"], "caBundle": other}} for each in webhooks]

    path = f"{COLLECTIONS['MutatingWebhookConfiguration']}/{WEBHOOK}"
    with changed(healthy, path, "webhooks", distrust):
        answer = found(admin, "webhook", "tls: failed to verify certificate")

    assert set(answer) == {"certificate", "webhook"}
    for webhook in ("mutate-job.gpu-scheduler.agentaflow.io", "mutate.gpu-scheduler.agentaflow.io"):
        assert f" {webhook}" in answer["certificate"]


@pytest.mark.promise("doctor-1")
def test_a_leader_that_is_stuck(healthy: CompleteInstallation, admin: Installed) -> None:
    """It is killed and has no successor. Its pod does not answer either."""
    healthy.scheduler.kill()
    healthy.kube.patch(f"{LEASES}/{LEASE}", renew_time(-timedelta(minutes=2)))
    try:
        answer = problems(admin)
    finally:
        healthy.scheduler = healthy.start_scheduler()

    assert answer.keys() == {"leader", "readiness"}
    assert ": gpu-scheduler-0_" in answer["leader"]
    assert "pod gpu-scheduler-0: " in answer["readiness"]


@pytest.mark.promise("doctor-1")
def test_a_watch_that_is_cut(healthy: CompleteInstallation, admin: Installed, tmp_path: Path) -> None:
    """A replica that does not lead is cut off from the API server. Its `/readyz` says so."""
    link = Link(healthy.plane.port)
    second = start_scheduler(
        healthy.plane, tmp_path, "gpu-scheduler-1", link.port, WATCH_IDLE_LIMIT="5s", BIND_ADDRESS=EVERY_ADDRESS
    )
    try:
        second.wait_ready()
        healthy.add_pod("scheduler", second)
        link.cut()
        answer = found(admin, "readiness", "pod gpu-scheduler-1 is not ready: watches failed: ")
        assert set(answer) == {"readiness"}
    finally:
        healthy.remove_pod("gpu-scheduler-1")
        second.process.stop()
        link.close()


@pytest.mark.promise("doctor-1")
def test_a_right_that_is_removed(healthy: CompleteInstallation, admin: Installed) -> None:
    """Of the scheduler's ClusterRole, a whole binding of the controller, and the monitors' priority."""
    path = f"{RBAC}/clusterroles/gpu-scheduler"
    with changed(
        healthy, path, "rules", lambda rules: [rule for rule in rules if rule["resources"] != ["pods/status"]]
    ):
        answer = found(admin, "rights", "may not patch pods/status")
        assert answer == {
            "rights": "service account gpu-scheduler of namespace gpu-scheduler-system may not patch pods/status"
        }
    with gone(healthy, f"{RBAC}/namespaces/{SYSTEM}/rolebindings/gpu-scheduler-controller"):
        answer = found(admin, "rights", "service account gpu-scheduler-controller")
        assert answer["rights"].endswith(
            f"may not create leases.coordination.k8s.io in namespace {SYSTEM}; "
            f'get, update leases.coordination.k8s.io "gpu-scheduler-controller" in namespace {SYSTEM}'
        )
    with gone(healthy, f"{FLOW_SCHEMAS}/gpu-scheduler-monitor"):
        assert found(admin, "priority", "FlowSchema gpu-scheduler-monitor does not exist").keys() == {"priority"}


@pytest.mark.promise("doctor-2")
def test_a_user_without_rights_gets_no_pass(healthy: CompleteInstallation, tmp_path: Path) -> None:
    """Each check says which right is missing."""
    healthy.kube.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "jane"}})
    token = healthy.plane.service_account_token("default", "jane")
    jane = Installed(tmp_path, healthy.plane, token, "default")

    items = jane.items("doctor", code=1)

    # Anybody may read the version, and every answer has a date.
    assert {item["result"] for item in items} == {"unknown"}
    assert {item["check"] for item in items} == {check.name for check in CHECKS}
    assert all(f"cannot check {item['check']}: missing right to " in item["message"] for item in items)
    assert all("kubectl auth can-i " in item["remedy"] for item in items)
    secret = next(item for item in items if item["check"] == "rights")
    assert secret["message"].endswith("missing right to create subjectaccessreviews.authorization.k8s.io")


@pytest.mark.promise("doctor-2")
def test_everything_but_secrets_is_enough_to_see_that_all_is_well(
    healthy: CompleteInstallation, tmp_path: Path
) -> None:
    """The replicas say when their certificate ends, and the API server's dry run shows that it trusts it."""
    create_account(healthy.plane, "viewer", {"metadata": {"name": "viewer"}, "rules": VIEWER})
    token = healthy.plane.service_account_token("default", "viewer")
    viewer = Installed(tmp_path, healthy.plane, token, "default")

    eventually("nothing is wrong", lambda: viewer.answer("doctor")[0] == 0, seconds=15)

    assert {item["check"] for item in viewer.items("doctor")} == {check.name for check in CHECKS}
