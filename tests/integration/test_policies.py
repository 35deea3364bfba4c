"""The policies protect assignments and inputs of pods against every user and every kind of request."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.namespace import MAP, debugged
from tests.integration.policies import MONITOR, OUTSIDE, SCHEDULER
from tests.messages import denial
from tests.objects import annotated, binding, null_pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.control_plane import ControlPlane
    from tests.integration.policies import Answer
    from tests.kube_client import KubeClient
    from tests.objects import Object

    Way = Callable[[KubeClient, str], Answer]

POD_LABELS = (names.POD_INDEX, names.COMPLETION_INDEX, names.POD_TEMPLATE_HASH, names.REPLICA_TYPE)
PODS: Final = "/api/v1/namespaces/guarded/pods"
BINDINGS: Final = "/api/v1/namespaces/guarded/bindings"
KUBE_SCHEDULER: Final = "system:kube-scheduler"
FOREIGN_ACCOUNTS: Final = ("admin", "system:serviceaccount:guarded:gpu-scheduler", KUBE_SCHEDULER)
KEY: Final = names.ASSIGNED_DEVICES

_numbers = itertools.count(1)


def _made(by: KubeClient, **pod: object) -> str:
    """Create a pod. Return its name."""
    name = f"pod-{next(_numbers)}"
    status, answer = by.call("POST", PODS, objects.pod(name, **pod))
    assert status == 201, answer
    return name


def _read(by: KubeClient, name: str) -> Object:
    return by.call("GET", f"{PODS}/{name}")[1]


def _patched(path: str, value: str | None) -> Way:
    return lambda who, name: who.merge(f"{PODS}/{name}{path}", annotated({KEY: value}))


UNKNOWN: Final = "adds an unknown assignment annotation"
ANYTHING: Final = "agentaflow.gpu/assigned-anything"
FORGERIES: Final[dict[str, Way]] = {
    "adds it": _patched("", "7"),
    "adds it through the status": _patched("/status", "7"),
    UNKNOWN: lambda who, name: who.merge(f"{PODS}/{name}", annotated({ANYTHING: ""})),
    "binds with it": lambda who, name: who.call("POST", f"{PODS}/{name}/binding", binding(name, {KEY: "7"})),
    "binds with it through the old path": lambda who, name: who.call("POST", BINDINGS, binding(name, {KEY: "7"})),
}
TAMPERINGS: Final[dict[str, Way]] = {
    "changes it": _patched("", "7"),
    "removes it": _patched("", None),
    "changes it through the status": _patched("/status", "7"),
    "removes it through the status": _patched("/status", None),
}


def _refused_as_forged(answer: Answer, who: str, key: str = KEY) -> None:
    status, output = answer
    assert status == 403, output
    said = denial("assignments", "an account that is no scheduler writes an assignment", key=key, user=who)
    assert output["message"].endswith(said)


@pytest.mark.promise("guard-1")
@pytest.mark.parametrize("scheduler", [names.SCHEDULER_NAME, "default-scheduler"])
@pytest.mark.parametrize("who", FOREIGN_ACCOUNTS)
def test_no_other_account_creates_a_pod_with_an_assignment(guarded: ControlPlane, who: str, scheduler: str) -> None:
    """Neither an admin nor another account may do it, for pods of any scheduler."""
    for word in ("devices", "uuids", "reason", "together"):
        key = f"agentaflow.gpu/assigned-{word}"
        pod = objects.pod("forged", scheduler=scheduler, annotations={key: "7"})
        _refused_as_forged(guarded.client_as(who).call("POST", PODS, pod), who, key)
    assert guarded.kube.get(f"{PODS}/forged") is None


@pytest.mark.promise("guard-1", "guard-2", "guard-3")
@pytest.mark.parametrize("way", FORGERIES)
@pytest.mark.parametrize("who", FOREIGN_ACCOUNTS)
def test_no_other_account_gives_a_pod_an_assignment(
    guarded: ControlPlane, admin: KubeClient, who: str, way: str
) -> None:
    """Writes to the pod, to its status and both forms of a Binding are refused, and the pod is unchanged."""
    name = _made(admin)
    before = _read(admin, name)

    _refused_as_forged(FORGERIES[way](guarded.client_as(who), name), who, ANYTHING if way == UNKNOWN else KEY)

    assert _read(admin, name) == before


@pytest.mark.promise("guard-1", "guard-2")
@pytest.mark.parametrize("way", TAMPERINGS)
@pytest.mark.parametrize("who", FOREIGN_ACCOUNTS)
def test_only_the_scheduler_may_write_an_assignment(
    guarded: ControlPlane, admin: KubeClient, who: str, way: str
) -> None:
    """An assignment of the scheduler can be neither changed nor removed, through the pod or its status."""
    name = _made(admin)
    answer = guarded.client_as(SCHEDULER).call("POST", f"{PODS}/{name}/binding", binding(name, {KEY: "0,1"}))
    assert answer[0] == 201, answer

    _refused_as_forged(TAMPERINGS[way](guarded.client_as(who), name), who)

    assert _read(admin, name)["metadata"]["annotations"] == {KEY: "0,1"}


@pytest.mark.promise("guard-1", "guard-3", "env-6")
@pytest.mark.parametrize("who", [SCHEDULER, OUTSIDE])
def test_the_scheduler_binds_and_assigns(guarded: ControlPlane, admin: KubeClient, who: str) -> None:
    """The scheduler's Binding writes node and devices, also from outside the cluster with a listed user name."""
    name = _made(admin, annotations={MAP: "0=node1:0,1"})
    assigned = {KEY: "0,1", names.ASSIGNED_INDEX: "0", names.ASSIGNED_NODE: "node1"}

    answer = guarded.client_as(who).call("POST", f"{PODS}/{name}/binding", binding(name, assigned))

    assert answer[0] == 201, answer
    pod = _read(admin, name)
    assert pod["spec"]["nodeName"] == "node1"
    assert pod["metadata"]["annotations"] == {MAP: "0=node1:0,1", **assigned}


@pytest.mark.promise("guard-4")
@pytest.mark.parametrize("who", ["admin", SCHEDULER])
def test_no_account_presets_the_node_of_our_pods(guarded: ControlPlane, who: str) -> None:
    """A pod with our schedulerName is created without a node. Only the scheduler chooses one."""
    status, answer = guarded.client_as(who).call("POST", PODS, objects.pod("preset", nodeName="node1"))

    assert status == 403
    assert answer["message"].endswith(denial("node-name", "a pod is created on a node", node="node1"))


INPUTS: Final = [
    *(("annotations", key) for key in sorted(names.POD_ANNOTATIONS) if not key.startswith("agentaflow.gpu/assigned-")),
    *(("annotations", f"agentaflow.gpu/{key}") for key in ("scheduling-strategy", "priority", "memory", "exclusive")),
    *(("labels", key) for key in sorted(POD_LABELS)),
]


@pytest.mark.promise("fixed-1")
@pytest.mark.parametrize(
    ("path", "bound"),
    [("", False), ("/status", False), ("", True)],
    ids=["of a waiting pod", "through its status", "of a bound pod"],
)
@pytest.mark.parametrize(("kind", "key"), INPUTS)
def test_the_inputs_of_a_decision_are_immutable(  # noqa: PLR0913 - a row
    guarded: ControlPlane,
    admin: KubeClient,
    kind: str,
    key: str,
    path: str,
    *,
    bound: bool,
) -> None:
    """Input annotations and index labels of our pods cannot be changed, removed or added."""
    having, without_key = _made(admin, **{kind: {key: "0"}}), _made(admin)
    for name in (having, without_key) if bound else ():
        guarded.client_as(SCHEDULER).create(f"{PODS}/{name}/binding", binding(name))
    changes = [(having, "1"), (having, ""), (having, None), (without_key, "0")]

    for name, value in changes:
        status, answer = admin.merge(f"{PODS}/{name}{path}", {"metadata": {kind: {key: value}}})
        assert status == 422, (value, answer)
        said = denial("inputs", "an input of a decision is changed", kind=kind[:-1], key=key)
        assert answer["message"].endswith(said), (value, answer)

    assert _read(admin, having)["metadata"][kind] == {key: "0"}
    assert kind not in _read(admin, without_key)["metadata"]


@pytest.mark.promise("fixed-1")
def test_an_ephemeral_container_cannot_change_annotations(admin: KubeClient) -> None:
    """A PUT of ephemeralcontainers with other annotations does not change the annotations."""
    name = _made(admin, annotations={MAP: "0=node1:0"})
    pod = _read(admin, name)
    pod["metadata"]["annotations"][MAP] = "0=node2:0"
    pod["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "none"}]
    status, answer = admin.call("PUT", f"{PODS}/{name}/ephemeralcontainers", pod)

    assert status in {200, 422}, answer
    assert _read(admin, name)["metadata"]["annotations"][MAP] == "0=node1:0"


def test_other_metadata_of_our_pods_can_be_changed(admin: KubeClient) -> None:
    """Other annotations and labels are changed and removed, through pod and status, beside 8,000 annotations."""
    name = _made(admin, annotations={MAP: "0=node1:0", **{f"example.com/a-{n}": "x" * 10 for n in range(8_000)}})

    for path in ("", "/status"):
        for value in ("1", "2", None):
            body = {"metadata": {"annotations": {"example.com/mine": value}, "labels": {"app": value}}}
            status, answer = admin.merge(f"{PODS}/{name}{path}", body)
            assert status == 200, answer


@pytest.mark.promise("guard-6")
@pytest.mark.parametrize("path", ["pods/{}/binding", "bindings"])
@pytest.mark.parametrize("annotations", [None, {}, {"a": "b"}], ids=["bare", "empty", "its own"])
def test_kube_scheduler_may_bind(
    guarded: ControlPlane, admin: KubeClient, annotations: Object | None, path: str
) -> None:
    """A pod of the default scheduler with null fields is bound by kube-scheduler through both forms of a Binding."""
    name = f"foreign-{next(_numbers)}"
    assert admin.call("POST", PODS, null_pod(name))[0] == 201

    path = f"/api/v1/namespaces/guarded/{path.format(name)}"
    status, answer = guarded.client_as(KUBE_SCHEDULER).call("POST", path, binding(name, annotations))

    assert status == 201, answer
    assert _read(admin, name)["spec"]["nodeName"] == "node1"


FOREIGN: Final[dict[str, Way]] = {
    "a label of ours is changed": lambda who, name: who.merge(
        f"{PODS}/{name}", {"metadata": {"labels": dict.fromkeys(POD_LABELS, "1")}}
    ),
    "an input of ours is added": lambda who, name: who.merge(f"{PODS}/{name}", annotated({MAP: "0=node1:0"})),
    "its status is written": lambda who, name: who.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running"}}),
    "its metadata is emptied": lambda who, name: who.merge(f"{PODS}/{name}", annotated({"a": None})),
    "it is debugged": lambda who, name: debugged(who, f"{PODS}/{name}"),
    "it is written as it was read": lambda who, name: who.call("PUT", f"{PODS}/{name}", _read(who, name)),
    "it is deleted": lambda who, name: who.call("DELETE", f"{PODS}/{name}"),
}


@pytest.mark.promise("guard-6")
@pytest.mark.parametrize("what", FOREIGN)
def test_pods_of_other_schedulers_are_not_restricted(admin: KubeClient, what: str) -> None:
    """A pod of another scheduler with null fields and a preset node is created and changed without restriction."""
    name = f"foreign-{next(_numbers)}"
    bare = null_pod(name)
    bare["spec"]["nodeName"] = "node1"
    assert admin.call("POST", PODS, bare)[0] == 201

    status, answer = FOREIGN[what](admin, name)

    assert status == 200, answer


@pytest.mark.promise("guard-5")
@pytest.mark.parametrize("path", ["", "/status"])
@pytest.mark.parametrize(("its", "named"), [("node2", "node node2"), ("", "no node")])
def test_a_monitor_writes_no_other_node(guarded: ControlPlane, its: str, named: str, path: str) -> None:
    """A monitor patches only the node that its token names. With a token without a node it patches none."""
    status, answer = guarded.client_as(MONITOR, its).merge(f"/api/v1/nodes/node1{path}", annotated({"a": "b"}))

    assert status == 403
    said = denial("monitor", "a monitor writes another node", what="node node1", its=named)
    assert answer["message"].endswith(said)


@pytest.mark.promise("guard-5")
@pytest.mark.parametrize("path", ["", "/status"])
@pytest.mark.parametrize(("who", "its"), [(MONITOR, "node1"), ("admin", ""), ("system:node:node2", "")])
def test_a_monitor_writes_its_own_node(guarded: ControlPlane, who: str, its: str, path: str) -> None:
    """The monitor may patch its own node. Accounts that are no monitor are not restricted."""
    devices = annotated({names.DEVICES: f"[] {next(_numbers)}"})
    status, answer = guarded.client_as(who, its).merge(f"/api/v1/nodes/node1{path}", devices)

    assert status == 200, answer
