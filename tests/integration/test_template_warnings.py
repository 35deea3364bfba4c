"""The API server warns the author of a controller whose pods could never be placed, and creates it all the same."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.pod_controllers import KINDS, THREE, Warned, collection, controller, delete_controllers
from tests.integration.webhook_process import COLLECTIONS
from tests.messages import says
from tests.objects import MAP
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane
    from tests.integration.installed import Installed
    from tests.integration.namespace import Namespace
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object

INDEXED: Object = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}


@pytest.fixture(scope="module")
def warned(plane: ControlPlane, registered: RegisteredWebhook) -> Iterator[Warned]:
    """The webhook's registration for controllers."""
    warned = Warned(plane.kube, registered)
    yield warned
    warned.remove()


@pytest.fixture
def author(calling: Namespace, warned: Warned) -> Iterator[Namespace]:
    """A namespace for controllers, whose author is warned. Nothing makes their pods."""
    yield calling
    delete_controllers(calling.kube)


# Kind, its own fields, and the reason and names in the first warning.
EXPECTED: dict[str, tuple[str, Object, tuple[str, ...]]] = {
    "StatefulSet": (
        "StatefulSet",
        {"replicas": 5, "ordinals": {"start": 1}},
        ("IndexNotInMap", "index 3", "0-2", "StatefulSet", "5 pods", "1-5", "3 pods", "3=node1:0"),
    ),
    "Deployment": (
        "Deployment",
        {"replicas": 4},
        ("NoFreeIndex", "4 pods", "3 lines", "1 pod"),
    ),
    "Deployment that is rolled out by default": (
        "Deployment",
        {"replicas": 3},
        ("NoFreeIndex", "3 pods", "Deployment", "3 lines", "strategy.rollingUpdate.maxUnavailable"),
    ),
    "ReplicaSet": ("ReplicaSet", {"replicas": 4}, ("NoFreeIndex", "4 pods")),
    "Job": ("Job", INDEXED, ("IndexNotInMap", "index 3", "0-2")),
    "CronJob": ("CronJob", INDEXED, ("IndexNotInMap", "index 3", "0-2")),
}


@pytest.mark.promise("warn-1", "warn-2")
@pytest.mark.parametrize(("kind", "spec", "said"), EXPECTED.values(), ids=EXPECTED)
def test_more_pods_than_lines_are_warned_of(author: Namespace, kind: str, spec: Object, said: tuple[str, ...]) -> None:
    """In the answer to the creation, which `kubectl` prints. The object is stored as its author wrote it."""
    (warning,) = author.kube.create_with_warnings(collection(author.name, kind), controller(kind, **spec))

    says(warning, *said)
    stored = _stored(author, kind)
    job = stored["spec"]["jobTemplate"] if kind == "CronJob" else stored
    assert job["spec"]["template"]["metadata"]["annotations"] == {MAP: THREE}
    assert "env" not in job["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.promise("warn-1")
def test_a_change_is_warned_of(author: Namespace, operator: Installed) -> None:
    """The user of kubectl sees it, and the change is stored."""
    path = collection(author.name, "StatefulSet")
    assert author.kube.create_with_warnings(path, controller("StatefulSet", replicas=3)) == []

    words = ("patch", "statefulset", "train", "-n", author.name, "--type=merge", "-p", '{"spec": {"replicas": 4}}')
    output = operator.run("bash", "-c", f"kubectl {' '.join(map(_quoted, words))} 2>&1")

    warning, done = output.splitlines()
    says(warning.removeprefix("Warning: "), "IndexNotInMap", "index 3", "0-2", "4 pods", "0-3", "1 pod")
    assert done == "statefulset.apps/train patched"
    assert _stored(author, "StatefulSet")["spec"]["replicas"] == 4


@pytest.mark.promise("warn-4")
def test_nobody_depends_on_the_warnings(author: Namespace, registered: RegisteredWebhook) -> None:
    """While the webhook does not answer, ours are created after a time-out of 2 s, and what is not ours without a call.

    Not ours are templates of other schedulers, and what another controller makes.
    """

    def failed_calls(*bodies: Object) -> int:
        before = _metric(author, "apiserver_admission_webhook_fail_open_count{")
        for body in bodies:
            assert author.kube.create_with_warnings(collection(author.name, body["kind"]), body) == []
        return _metric(author, "apiserver_admission_webhook_fail_open_count{") - before

    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "any", "uid": "u", "controller": True}
    foreign = [controller(kind, "foreign", "nonsense", None) for kind in KINDS]
    owned = [controller(kind, "owned", "nonsense") for kind in KINDS]
    for body in owned:
        body["metadata"]["ownerReferences"] = [owner]
    registered.command.process.send(signal.SIGSTOP)
    try:
        ours = failed_calls(*(controller(kind, "ours", "nonsense") for kind in ("StatefulSet", "CronJob")))
        others = failed_calls(*foreign, *owned)
    finally:
        registered.command.process.send(signal.SIGCONT)

    assert (ours, others) == (2, 0)
    assert {each["timeoutSeconds"] for each in _warning_webhooks(author)} == {2}
    # The API server counts the conditions that fail.
    assert _metric(author, "match_condition_evaluation_errors_total{") == 0


def _metric(namespace: Namespace, start: str) -> int:
    """Return the sum of these samples of the API server that are about the warnings."""
    lines = str(namespace.kube.call("GET", "/metrics")[1]["text"]).splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if start in line and "warn.gpu-scheduler" in line)


def _warning_webhooks(namespace: Namespace) -> list[Object]:
    _, found = namespace.kube.call("GET", COLLECTIONS["ValidatingWebhookConfiguration"])
    webhooks = [webhook for each in found["items"] for webhook in each["webhooks"]]
    return [webhook for webhook in webhooks if webhook["name"].startswith("warn.gpu-scheduler")]


@pytest.mark.promise("warn-5")
def test_workloads_lists_the_controllers_whose_pods_are_refused(controllers: Namespace, operator: Installed) -> None:
    """Kubernetes' own controllers made none of these pods; those that exist are listed as pods."""
    bodies = (
        controller("StatefulSet", "bad", "0=node1:x\n", replicas=5),
        controller("StatefulSet", "short", replicas=4, podManagementPolicy="Parallel"),
        controller("Deployment", "front", "0=node1:x\n", replicas=2),
        controller("ReplicaSet", "plain", "0=node1:x\n"),
        controller("Job", "once", **INDEXED),
        controller("StatefulSet", "foreign", "0=node1:x\n", None),
    )
    for body in bodies:
        controllers.kube.create(collection(controllers.name, body["kind"]), body)
    eventually("their controllers have tried", lambda: _pods(controllers) == 7, seconds=30)

    def listed() -> bool:
        return len(operator.items("workloads", "-n", controllers.name)) == 11

    eventually("each is listed", listed, seconds=20)
    shown = operator.items("workloads", "-n", controllers.name)

    assert [(each["name"], each["reason"]) for each in shown if each["objectKind"] != "Pod"] == [
        ("front", "MapInvalid"),
        ("once", "IndexNotInMap"),
        ("plain", "MapInvalid"),
        ("bad", "MapInvalid"),
        ("short", "IndexNotInMap"),
    ]
    names = operator.run("gpu-scheduler", "workloads", "-n", controllers.name, "-o", "name").split()
    assert len(operator.run("kubectl", "get", "-n", controllers.name, *names, "-o", "name").split()) == 11


def _pods(namespace: Namespace) -> int:
    return len(namespace.kube.call("GET", namespace.pods)[1]["items"])


def _stored(namespace: Namespace, kind: str) -> Object:
    stored = namespace.kube.get(f"{collection(namespace.name, kind)}/train")
    assert stored is not None
    return stored


def _quoted(word: str) -> str:
    return f"'{word}'"
