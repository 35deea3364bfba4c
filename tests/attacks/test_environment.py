"""A tenant tries to see devices that its pod does not hold, by the environment of its containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import TENANT, Tenant, refusal
from tests.attacks.oversized_objects import UNKNOWN
from tests.integration.accounts import allow, rights
from tests.integration.environments import ALL, LIMITED, NOT_BOOKED, TOO_LARGE, too_long, visible
from tests.integration.namespace import debugged
from tests.integration.webhook_process import UNREVIEWED
from tests.messages import quotes, says, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster
    from tests.objects import Object

KEEP: Final = {"agentaflow.gpu/keep-env": "true"}
NO_GPU: Final = "0=node2:"
"""A map whose line names no device: the pod tries to see devices by its environment only."""
ORDER: Final = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
WHERE: Final = ("containers", "initContainers", "sidecars")


@pytest.fixture(scope="module")
def trusted(cluster: InstalledCluster, lasting_tenant: Tenant) -> Tenant:
    """The module's tenant: its pods may keep their environment, and it may debug them."""
    return _favoured(cluster, lasting_tenant)


@pytest.fixture
def keeper(trusted: Tenant, tenant: Tenant) -> Tenant:
    """The module's tenant, with these rights. Its pods are deleted after each test."""
    return tenant


@pytest.fixture(scope="module")
def unreviewed(cluster: InstalledCluster) -> Tenant:
    """A tenant with the same rights in a namespace whose pods the webhook does not review: the bind gate does."""
    return _favoured(cluster, Tenant(cluster, **{UNREVIEWED.replace("/", "_"): ""}))


@pytest.fixture
def slipping(unreviewed: Tenant) -> Iterator[Tenant]:
    """That tenant. Its pods are deleted after each test."""
    yield unreviewed
    unreviewed.leave()


def _favoured(cluster: InstalledCluster, tenant: Tenant) -> Tenant:
    """Give the tenant rights that ClusterRole `admin` lacks, as an operator does for a trusted namespace."""
    cluster.allow(tenant.namespace.name, "keepenvs")
    debug = rights("pods/ephemeralcontainers", "patch", "update", group="")
    allow(cluster.kube, tenant.namespace.name, TENANT, "debug", debug)
    return tenant


def _stubborn(*env: Object) -> Object:
    return {"name": "stubborn", "image": "registry.invalid/none", "env": list(env)}


def _with(where: str, *env: Object, beside: list[Object], keep: bool = True) -> Object:
    """Return a pod without a GPU in its line. One container has `env`, the others have `beside`."""
    pod = objects.pod("thief-0", NO_GPU, beside, annotations=KEEP if keep else None)
    if where == "containers":
        pod["spec"]["containers"].append(_stubborn(*env))
    else:
        always = {"restartPolicy": "Always"} if where == "sidecars" else {}
        pod["spec"]["initContainers"] = [{**_stubborn(*env), **always}]
    return pod


def _whole(entry: Object) -> list[Object]:
    """Return both variables, with `entry` for one of them: without the webhook, a pod must have both."""
    return [entry, ORDER] if entry["name"] == "CUDA_VISIBLE_DEVICES" else [visible(""), entry]


def _debug(tenant: Tenant, name: str, *env: Object) -> tuple[int, Object]:
    """Add a debug container as `kubectl debug` does; return status and answer."""
    return debugged(tenant.kube, f"{tenant.pods}/{name}", _stubborn(*env))


@pytest.mark.promise("env-12", "env-14")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("what", NOT_BOOKED)
def test_a_value_that_cannot_be_booked_is_refused(keeper: Tenant, what: str, where: str) -> None:
    """Every spelling that CUDA might read is refused in every kind of container, even with keep-env."""
    refused = refusal(keeper.call("POST", keeper.pods, _with(where, NOT_BOOKED[what], beside=[])))

    quotes(refused, "EnvConflict", '"stubborn"')


@pytest.mark.promise("env-12", "env-14", "gate-3")
@pytest.mark.parametrize("what", NOT_BOOKED)
def test_a_pod_with_a_value_that_cannot_be_booked_is_never_bound(slipping: Tenant, what: str) -> None:
    """The bind gate refuses these values in a pod that the webhook did not review."""
    pod = _with("initContainers", *_whole(NOT_BOOKED[what]), beside=objects.literal(""))
    assert slipping.call("POST", slipping.pods, pod)[0] == 201

    slipping.namespace.wait_message("thief-0", "EnvConflict: ", parts=("CUDA_", '"stubborn"'))
    assert slipping.namespace.node_of("thief-0") == ""


TAKEN: Final = {
    "a GPU that another pod holds": ("1", "GPU 1"),
    "a held GPU by its UUID": (objects.gpu(1), f"GPU {objects.gpu(1)}"),
    "a held GPU among free ones": ("3,0", "GPU 0"),
}


@pytest.mark.promise("env-15")
@pytest.mark.parametrize(("value", "held"), TAKEN.values(), ids=TAKEN)
def test_a_kept_device_waits_for_its_holder(keeper: Tenant, value: str, held: str) -> None:
    """A kept device counts as a device of the line: the pod waits for its holder, and then holds it."""
    assert keeper.call("POST", keeper.pods, objects.pod("holder-0", "0=node2:0,1"))[0] == 201
    assert keeper.namespace.placed("holder-0").devices == "0,1"
    assert keeper.call("POST", keeper.pods, _with("containers", visible(value), beside=[]))[0] == 201

    says(keeper.namespace.wait_message("thief-0", "GpuHeld: "), "GpuHeld", held, "node2", "holder-0")
    keeper.namespace.delete("holder-0")
    assert keeper.namespace.placed("thief-0").node == "node2"
    assert keeper.call("POST", keeper.pods, objects.pod("next-0", "0=node2:0,1"))[0] == 201
    assert keeper.namespace.wait_message("next-0", "GpuHeld: ")


@pytest.mark.promise("env-13")
@pytest.mark.parametrize("what", ALL)
def test_keep_env_does_not_apply_for_a_debug_container(keeper: Tenant, what: str) -> None:
    """A debug container is added after the bind, so a value of its own would show devices that are not held."""
    pod = objects.pod("kept-0", NO_GPU, [visible("1")], annotations=KEEP)
    assert keeper.call("POST", keeper.pods, pod)[0] == 201

    quotes(refusal(_debug(keeper, "kept-0", ALL[what])), "EnvConflict")


@pytest.mark.promise("env-3", "env-13")
def test_a_debug_container_sees_what_its_kept_pod_sees(keeper: Tenant) -> None:
    """A debug container without the variable gets the value of its pod."""
    pod = objects.pod("kept-0", NO_GPU, [visible("1")], annotations=KEEP)
    assert keeper.call("POST", keeper.pods, pod)[0] == 201

    status, answer = _debug(keeper, "kept-0")

    assert status == 200, answer
    assert answer["spec"]["ephemeralContainers"][0]["env"] == objects.literal("1")


@pytest.mark.promise("env-13", "gate-3")
def test_a_pod_with_an_unreviewed_debug_container_is_not_bound(slipping: Tenant) -> None:
    """A debug container can be added before the bind. The pod then waits."""
    pod = objects.pod("thief-0", NO_GPU, objects.literal(""), annotations=KEEP, schedulingGates=[{"name": "any/gate"}])
    assert slipping.call("POST", slipping.pods, pod)[0] == 201
    assert _debug(slipping, "thief-0", visible("1"), ORDER)[0] == 200
    assert (
        slipping.call("PATCH", f"{slipping.pods}/thief-0", {"spec": {"schedulingGates": []}}, "merge-patch+json")[0]
        == 200
    )

    says(slipping.namespace.wait_message("thief-0", "EnvConflict: "), "EnvConflict", '"stubborn"', '"1"')
    assert slipping.namespace.node_of("thief-0") == ""


@pytest.mark.promise("env-1")
def test_env_from_does_not_override_our_variables(keeper: Tenant, slipping: Tenant) -> None:
    """A kubelet lets `env` override `envFrom`: the webhook writes an entry of `env`, and the bind gate requires it."""
    devices = {"metadata": {"name": "devices"}, "data": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}}
    for tenant in (keeper, slipping):
        assert tenant.call("POST", f"/api/v1/namespaces/{tenant.namespace.name}/configmaps", devices)[0] == 201
        pod = objects.pod("thief-0", NO_GPU, annotations=KEEP)
        pod["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "devices"}}]
        assert tenant.call("POST", tenant.pods, pod)[0] == 201

    assert keeper.namespace.read("thief-0")["spec"]["containers"][0]["env"] == [
        {"name": "CUDA_VISIBLE_DEVICES"},
        ORDER,
    ]
    assert slipping.namespace.wait_message("thief-0", "EnvNotInjected: ")


EXCESS: Final[dict[str, tuple[Object, str]]] = {
    **{
        f"annotation {key}": (
            objects.pod("huge-0", "0=node2:3", objects.literal("3"), annotations={f"agentaflow.gpu/{key}": "1" * 64}),
            too_long(key, 64),
        )
        for key in LIMITED
    },
    "an annotation of 200 kB": (
        objects.pod("huge-0", "0=node2:3", objects.literal("3"), annotations={"agentaflow.gpu/count": "1" * 200_000}),
        too_long("count", 200_000),
    ),
    "a map of more than 64 KiB": (
        objects.pod("huge-0", "0=node2:3\n#" + "x" * 65_536, objects.literal("3")),
        text_of("a map is too large"),
    ),
    "a thousand and one containers": (
        objects.pod(
            "huge-0",
            "0=node2:3",
            objects.literal("3"),
            initContainers=[{"name": f"c-{number}", "image": "registry.invalid/none"} for number in range(1000)],
        ),
        text_of(TOO_LARGE, reason="RequestInvalid", what="the pod", size="1001 containers", most=1000),
    ),
    "an entry of ours four thousand times": (
        objects.pod("huge-0", "0=node2:3", [*objects.literal("3"), *[visible("3")] * 3999]),
        text_of(
            TOO_LARGE,
            reason="RequestInvalid",
            what="the pod",
            size="4001 entries of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER",
            most=4000,
        ),
    ),
}


@pytest.mark.promise("text-13")
def test_a_thousand_unknown_annotations_get_a_short_answer(tenant: Tenant) -> None:
    """The webhook admits the pod with three warnings, and the scheduler names three keys."""
    warnings = tenant.kube.create_with_warnings(tenant.pods, objects.pod("huge-0", annotations=UNKNOWN))

    message = tenant.namespace.wait_message("huge-0", "NothingRequested: ")

    assert len(warnings) == 3
    assert all(len(each) < 200 and each in message for each in warnings)
    assert message.count('"agentaflow.gpu/') == 3
    assert len(message.encode()) <= 1000


@pytest.mark.promise("text-12")
@pytest.mark.parametrize(("pod", "message"), EXCESS.values(), ids=EXCESS)
def test_a_pod_with_excessive_fields_is_refused(tenant: Tenant, slipping: Tenant, pod: Object, message: str) -> None:
    """The webhook refuses it, and the scheduler does not bind a pod that the webhook did not review."""
    status, answer = tenant.call("POST", tenant.pods, pod)
    slipped = slipping.call("POST", slipping.pods, pod)

    assert (status, slipped[0]) == (400, 201), answer["message"][:300]
    assert answer["message"].endswith(message)
    assert slipping.namespace.wait_message("huge-0", message)
    assert slipping.namespace.node_of("huge-0") == ""
