"""Observers and pods with keep-env need a right of their service account."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.namespace import MAP
from tests.objects import null_pod

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
RESOURCES: Final = {names.OBSERVER: "observers", names.KEEP_ENV: "keepenvs"}

_numbers = itertools.count(1)


class Granted:
    """A namespace in which the account `trusted` may use observers and keepenvs, and `default` neither."""

    def __init__(self, plane: ControlPlane) -> None:
        """Create namespace, Role and RoleBinding."""
        self._admin = plane.client_as("admin")
        self.namespace = f"rights-{next(_numbers)}"
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        rules = [{"apiGroups": ["agentaflow.io"], "resources": list(RESOURCES.values()), "verbs": ["use"]}]
        of = {"kind": "ServiceAccount", "name": "trusted", "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trusted"}
        roles = f"{RBAC}/namespaces/{self.namespace}"
        plane.kube.create(f"{roles}/roles", {"metadata": {"name": "trusted"}, "rules": rules})
        body = {"metadata": {"name": "trusted"}, "roleRef": role, "subjects": [of]}
        plane.kube.create(f"{roles}/rolebindings", body)

    def create(self, pod: Object, namespace: str = "") -> tuple[int, Object]:
        """Create a pod as an admin. The policy checks the pod's service account, not the user who creates it."""
        return self._admin.call("POST", f"/api/v1/namespaces/{namespace or self.namespace}/pods", pod)


@pytest.fixture
def granted(guarded: ControlPlane) -> Granted:
    """A new namespace with the account `trusted`."""
    return Granted(guarded)


SPECS: Final[dict[str, dict[str, Any]]] = {
    "no account": {},
    "an empty account": {"serviceAccountName": ""},
    "another account": {"serviceAccountName": "another"},
    "the default account": {"serviceAccountName": "default"},
    "the deprecated field": {"serviceAccount": "another"},
    "an account with a dot in its name": {"serviceAccountName": "trusted.elsewhere"},
}


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("annotation", RESOURCES)
@pytest.mark.parametrize("spec", SPECS)
def test_an_account_without_the_right_is_refused(granted: Granted, spec: str, annotation: str) -> None:
    """The account is named by either field or left out. The message names account, right and remedy."""
    pod = objects.pod("forged", annotations={MAP: "0=node1:0", annotation: "true"}, **SPECS[spec])
    account = SPECS[spec].get("serviceAccountName") or SPECS[spec].get("serviceAccount") or "default"

    status, answer = granted.create(pod)

    resource = RESOURCES[annotation]
    assert status == 403
    assert answer["message"].endswith(
        f"denied request: RequestInvalid: cannot create a pod with annotation {annotation}: its service account"
        f" {account} may not use {resource}.agentaflow.io in namespace {granted.namespace}; leave the annotation out,"
        " or let an administrator bind that account to a Role with"
        f" {{apiGroups: [agentaflow.io], resources: [{resource}], verbs: [use]}}"
    )


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("annotation", RESOURCES)
@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_an_account_with_the_right_is_admitted(granted: Granted, field: str, annotation: str) -> None:
    """The Role that the message of a refusal names is sufficient, and the annotation is kept."""
    status, answer = granted.create(objects.pod("trusted", annotations={annotation: "true"}, **{field: "trusted"}))

    assert status == 201, answer
    assert answer["metadata"]["annotations"] == {annotation: "true"}


@pytest.mark.promise("guard-7")
def test_a_right_ends_with_its_namespace(granted: Granted, guarded: ControlPlane) -> None:
    """An account of the same name in another namespace does not have the right."""
    other = f"{granted.namespace}-other"
    guarded.kube.create("/api/v1/namespaces", {"metadata": {"name": other}})
    pod = objects.pod("elsewhere", annotations={names.OBSERVER: "true"}, serviceAccountName="trusted")

    assert granted.create(pod, other)[0] == 403


@pytest.mark.promise("guard-6", "guard-7")
@pytest.mark.parametrize(
    "pod",
    [
        objects.pod("plain"),
        objects.pod("mapped", annotations={MAP: "0=node1:0"}),
        objects.pod("says-no", annotations={names.OBSERVER: "false", names.KEEP_ENV: "false"}),
        objects.pod(
            "others", scheduler="another-scheduler", annotations={names.OBSERVER: "true", names.KEEP_ENV: "true"}
        ),
        null_pod("bare"),
    ],
    ids=lambda pod: pod["metadata"]["name"],
)
def test_other_pods_need_no_right(granted: Granted, pod: Object) -> None:
    """Pods without these annotations set to true, and pods of other schedulers, need no right."""
    status, answer = granted.create(pod)

    assert status == 201, answer
