"""The webhook is asked once about a pod, and again only if something else than the webhook made the pod as it is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import Tenant
from tests.integration.other_webhook import registered_after_ours
from tests.integration.webhook_process import UNMUTATED
from tests.objects import literal, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.attacks.installed_cluster import InstalledCluster
    from tests.objects import Object

LINE: Final = "0=node1:0\n"
COUNT: Final = {"agentaflow.gpu/count": "1"}
PATHS: Final = ("/mutate", "/validate", "/warn")
VALIDATED: Final = 'admission webhook "validate.gpu-scheduler.agentaflow.io" denied the request: '
FOREIGN: Final = literal("1")
"""Variables of a device that the pod's line does not name."""
SIDECARS: Final = "tests/sidecars"
"""The label of a namespace for which another webhook is registered."""


def _container(name: str, env: list[Object] | None = None) -> Object:
    return {"name": name, "image": objects.IMAGE, **({} if env is None else {"env": env})}


def _pod(env: list[Object] | None = None, text: str = LINE, **more: Any) -> Object:
    return objects.pod("train-0", text, env, **more)


def _managed_by(managed: list[Object], env: list[Object] | None = None) -> Object:
    body = _pod(env)
    body["metadata"]["managedFields"] = managed
    return body


COMPLETED: Final[dict[str, Object]] = {
    "one container": _pod(),
    "with other variables": _pod([{"name": "A", "value": "B"}]),
    "with the order of the devices": _pod(literal("0")[1:]),
    "three containers": _pod(containers=[_container("a"), _container("b")], initContainers=[_container("c")]),
    "decided later": objects.pod("train-0", annotations=COUNT),
    "with a generated name": _pod(generate_name="train-", owner=("StatefulSet", "train")),
    "with managed fields that are empty": _managed_by([]),
    "with managed fields that are reset": _managed_by([{}]),
}


@pytest.mark.promise("hook-8", "warn-4")
@pytest.mark.parametrize("body", COMPLETED.values(), ids=COMPLETED)
def test_a_pod_is_reviewed_once(cluster: InstalledCluster, tenant: Tenant, body: Object) -> None:
    """By the path that completes it, and not by the one that warns the authors of controllers."""
    before = cluster.webhook.reviews()

    status, answer = tenant.call("POST", f"{tenant.pods}?dryRun=All", body)

    assert status == 201, answer
    after = cluster.webhook.reviews()
    assert [after[path] - before[path] for path in PATHS] == [1, 0, 0]


def _managed(manager: str, **more: Any) -> list[Object]:
    # What another manager has of the request's own fields, the API server takes from it, but not the list itself.
    fields: Object = {"f:spec": {"f:containers": {}}}
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return [{**entry, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields, **more}]


FORGED: Final[dict[str, Object]] = {
    "as the webhook writes them": _pod(FOREIGN),
    "in every container": _pod(
        containers=[_container("main", FOREIGN), _container("b", FOREIGN)], initContainers=[_container("c", FOREIGN)]
    ),
    "in one of two containers": _pod(containers=[_container("main", FOREIGN), _container("b")]),
    "in an init container": _pod(initContainers=[_container("c", FOREIGN)]),
    "in every container but one": _pod(containers=[_container("main", FOREIGN), _container("b", [])]),
    "twice": _pod([*FOREIGN, *FOREIGN]),
    "behind a right one": _pod([*literal("0"), FOREIGN[0]]),
    "beside a hundred others": _pod([*FOREIGN, *({"name": f"A{n}", "value": ""} for n in range(100))]),
    "in thirty containers": _pod(containers=[_container(f"c{number}", FOREIGN) for number in range(30)]),
    "with managed fields that are reset": _managed_by([{}], FOREIGN),
    "with managed fields of another manager": _managed_by(_managed("webhook"), FOREIGN),
    "with managed fields of the manager": _managed_by(_managed("tests"), FOREIGN),
    "with managed fields of the manager and no time": _managed_by(_managed("tests", time=None), FOREIGN),
    "with managed fields that were applied": _managed_by(_managed("tests", operation="Apply"), FOREIGN),
    "with managed fields of another version": _managed_by(_managed("tests", apiVersion="v2"), FOREIGN),
    "with managed fields of the status": _managed_by(_managed("tests", subresource="status"), FOREIGN),
    "with managed fields that are none": _managed_by(_managed("tests", fieldsV1={"f:spec": 1}), FOREIGN),
}


@pytest.fixture(scope="module")
def unmutated(cluster: InstalledCluster) -> Tenant:
    """A tenant about whose pods `/mutate` is not asked. The tests store none of them."""
    return Tenant(cluster, **{UNMUTATED.replace("/", "_"): ""})


@pytest.mark.promise("hook-8")
@pytest.mark.parametrize("body", FORGED.values(), ids=FORGED)
def test_variables_of_a_request_are_always_reviewed(unmutated: Tenant, body: Object) -> None:
    """Nothing that a request brings looks as if the webhook had written it."""
    status, answer = unmutated.call("POST", f"{unmutated.pods}?dryRun=All&fieldManager=tests", body)

    assert status in {400, 403}, answer
    assert answer["message"].startswith((VALIDATED + "EnvConflict: ", VALIDATED + "EnvNotInjected: ")), answer


@pytest.mark.promise("hook-8")
@pytest.mark.parametrize("force", ["true", "false"])
def test_variables_of_an_applied_pod_are_reviewed_too(unmutated: Tenant, force: str) -> None:
    """Server-side apply creates a pod that does not exist."""
    body = {"apiVersion": "v1", "kind": "Pod", **_pod(FOREIGN)}
    path = f"{unmutated.pods}/train-0?dryRun=All&fieldManager=tests&force={force}"

    status, answer = unmutated.call("PATCH", path, body, "apply-patch+yaml")

    assert (status, answer["message"].startswith(VALIDATED + "EnvConflict")) == (403, True), answer


@pytest.mark.promise("hook-8")
def test_right_variables_of_a_request_are_admitted(cluster: InstalledCluster, unmutated: Tenant) -> None:
    """The webhook finds that they are what it would have written."""
    later = objects.pod("train-0", None, reading(), annotations=COUNT)
    for body in (_pod(literal("0")), later):
        before = cluster.webhook.reviews()
        status, answer = unmutated.call("POST", f"{unmutated.pods}?dryRun=All", body)
        assert (status, cluster.webhook.reviews()["/validate"] - before["/validate"]) == (201, 1), answer


LATE: Final[dict[str, tuple[list[Object], str]]] = {
    "a container without variables": (
        [{"op": "add", "path": "/spec/containers/-", "value": _container("late")}],
        VALIDATED + "EnvNotInjected: ",
    ),
    "a container with other variables": (
        [{"op": "add", "path": "/spec/containers/-", "value": _container("late", FOREIGN)}],
        VALIDATED + "EnvConflict: ",
    ),
    "an init container without variables": (
        [{"op": "add", "path": "/spec/initContainers", "value": [_container("late")]}],
        VALIDATED + "EnvNotInjected: ",
    ),
    "a second value": (
        [{"op": "add", "path": "/spec/containers/0/env/-", "value": FOREIGN[0]}],
        VALIDATED + "EnvConflict: ",
    ),
    "no variables": (
        [{"op": "replace", "path": "/spec/containers/0/env", "value": []}],
        VALIDATED + "EnvNotInjected: ",
    ),
    "no order": ([{"op": "remove", "path": "/spec/containers/0/env/1"}], VALIDATED + "EnvNotInjected: "),
}


@contextmanager
def _patched(cluster: InstalledCluster, folder: Path, patch: Callable[[Object], list[Object]]) -> Iterator[Tenant]:
    """Yield a tenant whose pods another webhook patches, after ours."""
    selector = {"matchExpressions": [{"key": SIDECARS, "operator": "Exists"}]}
    with registered_after_ours(cluster.plane, folder, patch, selector):
        yield Tenant(cluster, **{SIDECARS.replace("/", "_"): ""})


@pytest.mark.promise("hook-8")
@pytest.mark.parametrize(("changes", "refused"), LATE.values(), ids=LATE)
def test_what_comes_after_the_last_mutation_is_reviewed(
    cluster: InstalledCluster, tmp_path: Path, changes: list[Object], refused: str
) -> None:
    """Another webhook adds a container, ours completes it, and the other one then makes these changes."""

    def patch(pod: Object) -> list[Object]:
        if "early" not in {each["name"] for each in pod["spec"]["containers"]}:
            return [{"op": "add", "path": "/spec/containers/-", "value": _container("early")}]
        return changes

    with _patched(cluster, tmp_path, patch) as tenant:

        def message() -> str:
            status, answer = tenant.call("POST", f"{tenant.pods}?dryRun=All", _pod())
            return str(answer.get("message", status))

        eventually("the change is refused", lambda: message().startswith(refused), seconds=20)


@pytest.mark.promise("hook-8")
def test_another_map_is_seen_when_the_pod_is_completed_again(cluster: InstalledCluster, tmp_path: Path) -> None:
    """The variables are those of the map that our webhook saw first."""
    change = [{"op": "add", "path": "/metadata/annotations/gpu-scheduling-map", "value": "0=node1:1\n"}]
    with _patched(cluster, tmp_path, lambda _: change) as tenant:

        def answered() -> tuple[int, bool]:
            status, answer = tenant.call("POST", f"{tenant.pods}?dryRun=All", _pod())
            return status, "mutate.gpu-scheduler.agentaflow.io" in str(answer.get("message"))

        eventually("the change is refused", lambda: answered() == (403, True), seconds=20)
