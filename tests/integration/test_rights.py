"""Observers and pods that keep values of their own need a right of their service account, in every shape of a pod."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.bench import MAP
from tests.objects import null_pod

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
RESOURCES: Final = {names.OBSERVER: "observers", names.KEEP_ENV: "keepenvs"}

_numbers = itertools.count(1)


class Granted:
    """A namespace in which account `trusted` may use both, and `default` neither."""

    def __init__(self, plane: ControlPlane) -> None:
        """Make it."""
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
        """Create it as an admin: the pod's account is asked about, not who creates it."""
        return self._admin.call("POST", f"/api/v1/namespaces/{namespace or self.namespace}/pods", pod)


@pytest.fixture
def granted(guarded: ControlPlane) -> Granted:
    """Where one account is trusted."""
    return Granted(guarded)


SHAPES: Final[dict[str, dict[str, Any]]] = {
    "no account": {},
    "an empty account": {"serviceAccountName": ""},
    "another account": {"serviceAccountName": "another"},
    "the default account": {"serviceAccountName": "default"},
    "the old field": {"serviceAccount": "another"},
    "an account of another namespace's name": {"serviceAccountName": "trusted.elsewhere"},
}


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("annotation", RESOURCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_who_lacks_the_right_is_refused(granted: Granted, shape: str, annotation: str) -> None:
    """However the account is written, or left out; the refusal names account, right and cure."""
    pod = objects.pod("forged", annotations={MAP: "0=node1:0", annotation: "true"}, **SHAPES[shape])
    account = SHAPES[shape].get("serviceAccountName") or SHAPES[shape].get("serviceAccount") or "default"

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
def test_who_has_the_right_is_admitted(granted: Granted, field: str, annotation: str) -> None:
    """The Role that the refusal names is enough, and what is asked for is kept."""
    status, answer = granted.create(objects.pod("trusted", annotations={annotation: "true"}, **{field: "trusted"}))

    assert status == 201, answer
    assert answer["metadata"]["annotations"] == {annotation: "true"}


@pytest.mark.promise("guard-7")
def test_a_right_ends_with_its_namespace(granted: Granted, guarded: ControlPlane) -> None:
    """An account of the same name elsewhere has nothing of it."""
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
def test_nobody_else_is_asked(granted: Granted, pod: Object) -> None:
    """Who asks for neither needs no right, and other schedulers' pods need none."""
    status, answer = granted.create(pod)

    assert status == 201, answer
