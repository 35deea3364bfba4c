"""`injection: policy`: the API server injects our variables into each container of our pods, without a webhook."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.control_plane import ControlPlane
from tests.integration.environments import ALL, BOOKED, EXCESS, NOT_BOOKED, TOO_LONG
from tests.integration.namespace import MAP, Namespace, debugged
from tests.integration.policies import SCHEDULER, apply
from tests.messages import denial
from tests.objects import annotated, binding, null_pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.kube_client import KubeClient
    from tests.objects import Object

PODS: Final = "/api/v1/namespaces/injected/pods"
DEVICES: Final[Object] = {
    "name": "CUDA_VISIBLE_DEVICES",
    "valueFrom": {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}
    },
}
ORDER: Final[Object] = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
OURS: Final[list[Object]] = [DEVICES, ORDER]
MINE: Final[Object] = {"name": "MINE", "value": "yes"}
KEEP: Final = {"agentaflow.gpu/keep-env": "true"}
LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
REFUSED: Final = {**NOT_BOOKED, **TOO_LONG}
LITERAL: Final[Object] = {"name": "CUDA_VISIBLE_DEVICES", "value": "7"}


def _denied(name: str, **values: str) -> str:
    return denial("environment", name, container="stubborn", **values)


NOT_KEPT: Final = _denied("a policy refuses a variable that cannot be kept")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with all injection policies in force. A pod with a debug container is older than the policies."""
    plane = ControlPlane(tmp_path_factory.mktemp("injected"))
    try:
        kube = plane.kube
        kube.create("/api/v1/namespaces", {"metadata": {"name": "injected"}})
        kube.create(PODS, objects.pod("elder"))
        assert debugged(plane.client_as("admin"), f"{PODS}/elder", _container("before"))[0] == 200
        apply(kube, "guards", "injection", "environment")

        def in_force() -> bool:
            status, answer = kube.call("POST", f"{PODS}?dryRun=All", objects.pod("probe"))
            assert status == 201, answer
            refused = kube.call(
                "POST", f"{PODS}?dryRun=All", objects.pod("probe", containers=[_container("c", LITERAL)])
            )
            return "env" in answer["spec"]["containers"][0] and refused[0] == 403

        eventually("both policies are in force", in_force, seconds=20)
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def admin(injected: ControlPlane) -> KubeClient:
    """The client of a user with all RBAC rights."""
    return injected.client_as("admin")


def _container(name: str, *env: Object, **more: object) -> Object:
    return {"name": name, "image": "none", **({"env": list(env)} if env else {}), **more}


def _created(who: KubeClient, **pod: Any) -> Object:
    status, answer = who.call("POST", PODS, objects.pod(f"pod-{next(_numbers)}", **pod))
    assert status == 201, answer
    return answer


def _env(pod: Object, *lists: str) -> dict[str, list[Object]]:
    """Return the variables of each container by its name."""
    return {each["name"]: each.get("env", []) for key in lists or LISTS for each in pod["spec"].get(key, [])}


@pytest.mark.promise("policy-1", "env-2", "env-5")
def test_every_container_reads_its_devices(admin: KubeClient) -> None:
    """Containers, init containers and sidecars get our variables before their own, even with an invalid map."""
    pod = _created(
        admin,
        annotations={MAP: "nonsense"},
        containers=[_container("bare"), _container("own", MINE), _container("third")],
        initContainers=[_container("first", MINE, MINE), _container("sidecar", restartPolicy="Always")],
    )

    assert _env(pod) == {
        "bare": OURS,
        "own": [*OURS, MINE],
        "third": OURS,
        "first": [*OURS, MINE, MINE],
        "sidecar": OURS,
    }


@pytest.mark.promise("policy-2")
def test_existing_variables_are_unchanged(admin: KubeClient) -> None:
    """Each of the two variables is added only if it is missing. An existing one keeps its position."""
    pod = _created(
        admin,
        containers=[_container("both", MINE, *OURS), _container("devices", DEVICES), _container("order", MINE, ORDER)],
    )

    assert _env(pod) == {"both": [MINE, *OURS], "devices": [ORDER, DEVICES], "order": [DEVICES, MINE, ORDER]}


@pytest.mark.promise("policy-1", "hook-4")
def test_a_second_injection_adds_nothing(admin: KubeClient) -> None:
    """A pod is created with the containers of an injected pod, and nothing is added."""
    first = _created(admin, containers=[_container("bare"), _container("own", MINE)], initContainers=[_container("i")])
    containers = {key: first["spec"][key] for key in ("containers", "initContainers")}

    assert _env(_created(admin, **containers)) == _env(first)


@pytest.mark.promise("policy-1", "env-3")
def test_debug_containers_read_their_pods_devices(admin: KubeClient) -> None:
    """Each new ephemeral container gets both variables, and earlier ones are unchanged."""
    name = _created(admin)["metadata"]["name"]

    for number, variables in enumerate(([], [MINE], [DEVICES])):
        status, pod = debugged(admin, f"{PODS}/{name}", _container(f"debug-{number}", *variables))
        assert status == 200, pod

    assert _env(pod, "ephemeralContainers") == {
        "debug-0": OURS,
        "debug-1": [*OURS, MINE],
        "debug-2": [ORDER, DEVICES],
    }


def test_a_pod_from_before_the_policy_can_be_debugged(admin: KubeClient) -> None:
    """The existing debug container cannot be changed, so only the new one gets our variables."""
    status, pod = debugged(admin, f"{PODS}/elder", _container("after"))

    assert status == 200, pod
    assert _env(pod) == {"main": [], "before": [], "after": OURS}


@pytest.mark.promise("policy-2", "env-10")
@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize("what", ALL)
def test_another_value_is_refused(admin: KubeClient, what: str, where: str) -> None:
    """A container or init container that sets one of the variables to another value is refused by name."""
    container = _container("stubborn", MINE, ALL[what])
    pod = objects.pod("stubborn-0", **{"containers": [_container("main")], where: [container]})
    status, answer = admin.call("POST", PODS, pod)

    assert status == 403
    assert answer["message"].endswith(_denied("a policy refuses a variable that a container sets itself"))


@pytest.mark.promise("policy-2", "env-13")
@pytest.mark.parametrize("annotations", [{}, KEEP], ids=["keeping nothing", "keeping its environment"])
@pytest.mark.parametrize("what", ALL)
def test_another_value_of_a_debug_container_is_refused(
    admin: KubeClient, what: str, annotations: dict[str, str]
) -> None:
    """The pod's keep-env does not apply to ephemeral containers."""
    container = _container("stubborn", MINE, ALL[what])
    name = _created(admin, annotations=annotations)["metadata"]["name"]
    status, answer = debugged(admin, f"{PODS}/{name}", container)

    assert status == 403
    assert answer["message"].endswith(_denied("a policy refuses a variable that a debug container sets itself"))


@pytest.mark.promise("policy-2", "env-11")
@pytest.mark.parametrize("what", BOOKED)
def test_a_pod_may_keep_its_environment(admin: KubeClient, what: str) -> None:
    """With keep-env the value stays, and missing variables are added."""
    kept = BOOKED[what]
    pod = _created(admin, annotations=KEEP, containers=[_container("main", kept)], initContainers=[_container("i")])
    (order, own), init = _env(pod)["main"], _env(pod)["i"]

    assert (own["name"], own.get("value", "")) == ("CUDA_VISIBLE_DEVICES", kept["value"])
    assert (order, init) == (ORDER, OURS)


@pytest.mark.promise("policy-2", "env-12", "env-14")
@pytest.mark.parametrize("where", ["containers", "initContainers", "sidecars"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_value_that_the_ledger_cannot_hold_is_not_kept(admin: KubeClient, what: str, where: str) -> None:
    """Values that CUDA may read and the ledger cannot hold are refused in containers, init containers and sidecars."""
    container = _container("stubborn", MINE, REFUSED[what])
    lists: dict[str, list[Object]] = {"containers": [_container("main")], "initContainers": []}
    if where == "sidecars":
        lists["initContainers"] = [{**container, "restartPolicy": "Always"}]
    else:
        lists[where] = [container]
    status, answer = admin.call("POST", PODS, objects.pod("stubborn-0", annotations=KEEP, **lists))

    assert status == 403
    assert answer["message"].endswith(NOT_KEPT)


@pytest.mark.promise("policy-2", "env-12")
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_second_entry_is_checked_too(admin: KubeClient, first: bool) -> None:  # noqa: FBT001
    """The kubelet uses the last of two entries with one name. The policy checks both."""
    container = _container("stubborn", *[LITERAL, NOT_BOOKED["a plus sign"]][:: -1 if first else 1])
    status, answer = admin.call("POST", PODS, objects.pod("stubborn-0", annotations=KEEP, containers=[container]))

    assert (status, answer["message"].endswith(NOT_KEPT)) == (403, True)


@pytest.mark.promise("policy-2", "text-12", "map-7")
@pytest.mark.parametrize(("excess", "message"), EXCESS.values(), ids=EXCESS)
def test_a_pod_that_exceeds_a_bound_is_refused(admin: KubeClient, excess: Object, message: str) -> None:
    """The excess would use memory in every scheduler as long as the pod exists."""
    status, answer = admin.call("POST", PODS, objects.pod("huge-0", **excess))

    assert status == 403, answer
    assert answer["message"].endswith(f"'gpu-scheduler-environment' denied request: {message}")


def test_a_pod_at_the_bounds_is_admitted(admin: KubeClient) -> None:
    """A map of 64 KiB, an annotation of the greatest length and a thousand containers are admitted."""
    text = "0=node1:0\n#"
    annotations = {MAP: text + "x" * (65536 - len(text)), "agentaflow.gpu/type": "A" * 63}

    assert _created(admin, annotations=annotations)
    assert _created(admin, containers=[_container(f"c-{n}") for n in range(1000)])


@pytest.mark.promise("policy-2")
def test_keep_env_accepts_only_the_value_true(admin: KubeClient) -> None:
    """Another spelling, like True, keeps nothing."""
    pod = objects.pod(
        "stubborn-0", annotations={"agentaflow.gpu/keep-env": "True"}, containers=[_container("c", LITERAL)]
    )

    assert admin.call("POST", PODS, pod)[0] == 403


@pytest.mark.promise("guard-6", "hook-2")
def test_pods_of_other_schedulers_are_unchanged(injected: ControlPlane, admin: KubeClient) -> None:
    """Pods of other schedulers, with null fields or with their own value, are unchanged. kube-scheduler binds them."""
    status, bare = admin.call("POST", PODS, null_pod("foreign-0"))
    assert status == 201, bare
    status, own = admin.call(
        "POST", PODS, objects.pod("foreign-1", scheduler="other", containers=[_container("main", LITERAL)])
    )
    assert status == 201, own
    status, answer = injected.client_as("system:kube-scheduler").call(
        "POST", f"{PODS}/foreign-0/binding", binding("foreign-0")
    )
    assert status == 201, answer
    status, later = debugged(admin, f"{PODS}/foreign-1", _container("debug"))
    assert status == 200, later

    assert _env(bare) == {"main": []}
    assert _env(later) == {"main": [LITERAL], "debug": []}


def test_pods_with_null_lists_or_many_containers_get_the_variables(admin: KubeClient) -> None:
    """A pod of ours with null instead of lists and one with sixty containers get the variables."""
    bare = null_pod("bare-0")
    bare["spec"]["schedulerName"] = "gpu-scheduler"
    status, pod = admin.call("POST", PODS, bare)
    assert status == 201, pod
    own = [{"name": f"V{n}", "value": "x" * 100} for n in range(50)]
    pods = _created(admin, containers=[_container(f"c-{n}", *own) for n in range(60)])

    assert _env(pod) == {"main": OURS}
    assert all(env == [*OURS, *own] for env in _env(pods).values())


@pytest.mark.promise("env-6")
def test_only_the_binding_writes_the_annotation_that_containers_read(injected: ControlPlane, admin: KubeClient) -> None:
    """With the guard policies only the scheduler can write the annotation to which the injected variable refers."""
    name = _created(admin, annotations={MAP: "0=node1:2"})["metadata"]["name"]
    assigned = {"agentaflow.gpu/assigned-devices": "2"}

    assert admin.merge(f"{PODS}/{name}", annotated(assigned))[0] == 403
    answer = injected.client_as(SCHEDULER).call("POST", f"{PODS}/{name}/binding", binding(name, assigned))
    assert answer[0] == 201, answer


@pytest.mark.promise("policy-3")
def test_a_wrong_map_is_reported_by_the_scheduler(namespace: Namespace, scheduler: Command) -> None:
    """The map is not checked at admission. The pod waits, and its condition has the parser's message."""
    assert scheduler.process.alive()
    body = objects.pod("train-0", annotations={MAP: "0=node1:x"}, containers=[_container("main", *OURS)])
    namespace.kube.create(namespace.pods, body)

    assert "line 1" in namespace.wait_message("train-0", "MapInvalid: ")
