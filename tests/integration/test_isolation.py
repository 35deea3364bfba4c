"""`isolation: dra` beside kube-scheduler and kube-controller-manager: claims, allocations, Bindings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.isolated import (
    CONFIG,
    DRIVER,
    GPUS,
    NODES,
    RESOURCES,
    IsolatedCluster,
    create_others,
    devices_of,
    others_claim,
    replicas,
    running,
    uuid,
    with_claim,
)
from tests.integration.request_counts import requests
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.namespace import Namespace

MERGE: Final = "application/merge-patch+json"
SETS: Final = "/apis/apps/v1/namespaces/{}/statefulsets"
TASK: Final = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
LINES: Final = {
    0: ("node1", (0, 1)),
    1: ("node2", (2,)),
    2: ("node3", (0, 1, 2)),
    3: ("node4", (3,)),
    4: ("node4", (3,)),
}


EITHER_WAY: Final = pytest.mark.parametrize("extended", [False, True], ids=["with claims", "with extended resources"])
"""How pods of kube-scheduler ask for GPUs."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    """The cluster without our scheduler."""
    yield from running(tmp_path_factory.mktemp("isolated"))


@pytest.fixture(scope="module")
def scheduler(cluster: IsolatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Our scheduler, for all tests that need only one."""
    with cluster.start_scheduler(tmp_path_factory.mktemp("scheduler")).serving() as command:
        yield command


@pytest.fixture
def namespace(cluster: IsolatedCluster) -> Iterator[Namespace]:
    """A namespace. No device is allocated before the test and after it."""
    namespace = cluster.namespace()
    yield namespace
    cluster.clear(namespace)
    assert cluster.allocated() == {}


def bound(namespace: Namespace, name: str) -> Any:
    """Return the pod when it is bound."""
    eventually(f"{name} exists", partial(namespace.kube.get, f"{namespace.pods}/{name}"), seconds=20)
    eventually(f"{name} is bound", lambda: namespace.node_of(name), seconds=20)
    return namespace.read(name)


@pytest.mark.promise("isolate-2")
@pytest.mark.usefixtures("scheduler")
def test_each_replica_is_allocated_exactly_the_devices_of_its_line(
    cluster: IsolatedCluster, namespace: Namespace
) -> None:
    """The five replicas of the task. Pods 3 and 4 share one claim, which is reserved for both."""
    cluster.kube.create(SETS.format(namespace.name), replicas(TASK, 5))

    for index, (node, devices) in LINES.items():
        pod = bound(namespace, f"train-{index}")
        assert pod["spec"]["nodeName"] == node
        assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == ",".join(
            uuid(node, device) for device in devices
        )
        (entry,) = pod["spec"]["resourceClaims"]
        claim = cluster.claims(namespace.name)[entry["resourceClaimName"]]
        assert devices_of(claim) == [f"{node}/gpu-{device}" for device in devices]
        assert pod["metadata"]["uid"] in [each["uid"] for each in claim["status"]["reservedFor"]]
        config = claim["status"]["allocation"]["devices"]["config"]
        assert config == [{"source": "FromClass", "requests": ["gpus-0"], **CONFIG}]
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("StatefulSet", "train")
    assert len(cluster.claims(namespace.name)) == 4


@pytest.mark.usefixtures("scheduler")
def test_a_replica_that_is_made_anew_uses_the_claim_of_its_line(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """Whether or not the controller has cleared the allocation before."""
    cluster.kube.create(SETS.format(namespace.name), replicas("0=node1:0\n", 1))
    before = bound(namespace, "train-0")
    (name,) = cluster.claims(namespace.name)

    for number in range(4):
        if number % 2:
            cluster.scale(namespace, 0)
            eventually("its allocation is cleared", lambda: cluster.allocated() == {}, seconds=20)
            cluster.scale(namespace, 1)
        else:
            namespace.delete("train-0")
        uid = before["metadata"]["uid"]
        eventually("another pod is bound", partial(_other, namespace, "train-0", uid), seconds=30)
        before = namespace.read("train-0")
        (claim,) = cluster.claims(namespace.name).values()
        assert claim["metadata"]["name"] == name
        assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]
        assert before["metadata"]["uid"] in [each["uid"] for each in claim["status"]["reservedFor"]]


def _other(namespace: Namespace, name: str, uid: str) -> bool:
    pod = namespace.kube.get(f"{namespace.pods}/{name}")
    return pod is not None and pod["metadata"]["uid"] != uid and bool(pod["spec"].get("nodeName"))


@EITHER_WAY
@pytest.mark.promise("isolate-5")
@pytest.mark.usefixtures("scheduler")
def test_what_kube_scheduler_allocated_is_held_until_it_is_cleared(
    cluster: IsolatedCluster, namespace: Namespace, *, extended: bool
) -> None:
    """Our pod names the claim, and is bound when the other pod is gone."""
    create_others(namespace, "theirs", extended=extended)
    bound(namespace, "theirs")
    (device,) = cluster.allocated()
    node, _, gpu = device.partition("/")

    index = gpu.removeprefix("gpu-")
    cluster.kube.create(SETS.format(namespace.name), replicas(f"0={node}:{index}\n", 1))
    eventually("train-0 exists", partial(cluster.kube.get, f"{namespace.pods}/train-0"), seconds=20)
    message = namespace.wait_message("train-0", "GpuHeld: ")
    ((held, claim),) = cluster.allocated().items()
    assert (held, claim.startswith(f"{namespace.name}/theirs")) == (device, True)
    assert f"is held by ResourceClaim {claim}" in message

    namespace.delete("theirs")
    bound(namespace, "train-0")


@EITHER_WAY
@pytest.mark.promise("isolate-5")
@pytest.mark.usefixtures("scheduler")
def test_kube_scheduler_leaves_our_devices_alone(
    cluster: IsolatedCluster, namespace: Namespace, *, extended: bool
) -> None:
    """Its pod waits while ours hold all GPUs, and gets the first that is free."""
    lines = "".join(f"{index}={NODES[index // GPUS]}:{index % GPUS}\n" for index in range(GPUS * len(NODES)))
    cluster.kube.create(SETS.format(namespace.name), replicas(lines, GPUS * len(NODES)))
    for index in range(GPUS * len(NODES)):
        bound(namespace, f"train-{index}")

    create_others(namespace, "theirs", extended=extended)
    namespace.wait_message("theirs", "0/4 nodes are available")
    cluster.scale(namespace, 15)

    assert bound(namespace, "theirs")["spec"]["nodeName"] == "node4"
    assert cluster.allocated()["node4/gpu-3"].startswith(f"{namespace.name}/theirs")


@pytest.mark.usefixtures("scheduler")
def test_a_pod_with_a_claim_costs_two_writes_more(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """One creates the claim, one allocates it. What the controllers write and read of it is left out."""
    before = requests(cluster.kube)
    lines = "".join(f"{index}=node1:{index}\n" for index in range(GPUS))
    cluster.kube.create(SETS.format(namespace.name), replicas(lines, GPUS))
    for index in range(GPUS):
        bound(namespace, f"train-{index}")

    made = requests(cluster.kube) - before
    written = {each: count for each, count in made.items() if each.startswith(("POST", "PATCH"))}
    assert {each: count for each, count in written.items() if "resourceclaims" in each or "binding" in each} == {
        "POST resourceclaims": GPUS,
        "PATCH resourceclaims/status": GPUS,
        "POST pods/binding": GPUS,
    }


@pytest.mark.usefixtures("scheduler")
def test_a_strategy_allocates_a_claim_of_the_pod_alone(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """It goes with the pod."""
    body = objects.pod("", None, generate_name="infer-", annotations={"agentaflow.gpu/count": "2"})
    del body["metadata"]["name"]
    name = cluster.kube.create(namespace.pods, body)["metadata"]["name"]

    pod = bound(namespace, name)
    given = pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"].split(",")
    (claim,) = cluster.claims(namespace.name).values()
    assert len(given) == len(set(given)) == len(devices_of(claim)) == 2
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]

    namespace.delete(name)
    eventually("its claim is gone", lambda: not cluster.claims(namespace.name), seconds=20)


@EITHER_WAY
@pytest.mark.promise("isolate-4")
@pytest.mark.usefixtures("scheduler")
def test_under_load_ours_takes_no_device_that_is_allocated(
    cluster: IsolatedCluster, namespace: Namespace, *, extended: bool
) -> None:
    """Eight pods of each scheduler ask for sixteen devices at once, again and again.

    Where kube-scheduler writes later than the time that it is given, it may take a device of ours: the driver prepares
    that for the first alone. Never is it the other way round.
    """
    for wave in range(3):
        names = []
        for number in range(8):
            theirs = f"theirs-{wave}-{number}"
            create_others(namespace, theirs, extended=extended)
            ours = f"ours-{wave}-{number}"
            cluster.kube.create(namespace.pods, objects.pod(ours, None, annotations={"agentaflow.gpu/count": "1"}))
            names += [theirs, ours]
        for name in names:
            bound(namespace, name)
        holders = cluster.holders()
        assert sum(map(len, holders.values())) == 16
        assert [
            names for names in holders.values() if any(name.startswith(f"{namespace.name}/ours-") for name in names[1:])
        ] == []
        for name in names:
            namespace.delete(name)
        eventually("all allocations are cleared", lambda: cluster.holders() == {}, seconds=30)


@pytest.mark.promise("isolate-3")
@pytest.mark.usefixtures("scheduler")
def test_a_claim_that_somebody_else_made_is_not_used(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """It may be older than the policy that lets only the scheduler make it. The pod says what to do."""
    cluster.kube.create(SETS.format(namespace.name), replicas("0=node1:0\n", 1))
    bound(namespace, "train-0")
    (name,) = cluster.claims(namespace.name)
    cluster.scale(namespace, 0)
    eventually("its allocation is cleared", lambda: cluster.allocated() == {}, seconds=20)
    cluster.kube.delete(f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims/{name}")
    unguarded = cluster.plane.client_as("system:kube-controller-manager")
    unguarded.create(f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims", others_claim(name, gpus=2))

    cluster.scale(namespace, 1)
    eventually("train-0 exists", partial(cluster.kube.get, f"{namespace.pods}/train-0"), seconds=20)
    message = namespace.wait_message("train-0", "BindFailed: ")
    assert message == text_of("a ResourceClaim cannot be used", claim=name)
    assert cluster.allocated() == {}

    cluster.kube.delete(f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims/{name}")
    bound(namespace, "train-0")


@pytest.mark.promise("guard-14")
@pytest.mark.usefixtures("scheduler")
def test_others_write_only_the_state_of_the_devices_of_a_claim(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """As a driver does. kube-scheduler reserves no claim of ours for a pod of its own."""
    cluster.kube.create(SETS.format(namespace.name), replicas("0=node1:0\n", 1))
    bound(namespace, "train-0")
    ((name, claim),) = cluster.claims(namespace.name).items()
    path = f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims/{name}/status"
    state = {"driver": DRIVER, "pool": "node1", "device": "gpu-0", "data": {"ready": True}}
    pods = [*claim["status"]["reservedFor"], {"resource": "pods", "name": "spy", "uid": "spy"}]

    for user in ("a driver", "system:kube-scheduler"):
        others = cluster.plane.client_as(user)
        status, answer = others.call("PATCH", path, {"status": {"devices": [state]}}, MERGE)
        assert status == 200, answer
        status, answer = others.call("PATCH", path, {"status": {"reservedFor": pods}}, MERGE)
        assert status == 403
        assert "gpu-scheduler-claims" in answer["message"]


@pytest.mark.promise("guard-6")
def test_kube_scheduler_allocates_claims_whose_names_begin_like_ours(
    cluster: IsolatedCluster, namespace: Namespace
) -> None:
    """The policies know the whole form of our names."""
    name = "gpu-scheduler-test-0-gpus-abcde"
    create_others(namespace, name)

    bound(namespace, name)


@pytest.mark.usefixtures("scheduler")
def test_a_quota_of_claims_makes_the_pod_wait(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """It is bound when the quota allows its claim."""
    quotas = f"/api/v1/namespaces/{namespace.name}/resourcequotas"
    counted = "count/resourceclaims.resource.k8s.io"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {counted: "0"}}}
    cluster.kube.create(quotas, quota)
    cluster.kube.patch(f"{quotas}/none/status", {"status": {"hard": {counted: "0"}, "used": {counted: "0"}}})
    cluster.kube.create(SETS.format(namespace.name), replicas("0=node1:0\n", 1))
    eventually("train-0 exists", partial(cluster.kube.get, f"{namespace.pods}/train-0"), seconds=20)

    message = namespace.wait_message("train-0", "QuotaExceeded: ")
    assert "exceeded quota: none" in message

    cluster.kube.delete(f"{quotas}/none")
    bound(namespace, "train-0")


def attribute(name: str, value: str) -> str:
    """Return the selector of a claim."""
    return f'device.attributes["{DRIVER}"].{name} == {value}'


def quoted(text: str) -> str:
    return f'"{text}"'


SELECTED: Final = {
    "a uuid": ((1, attribute("uuid", quoted(uuid("node3", 2)))), ["node3/gpu-2"]),
    "a model": ((2, attribute("productName", '"NVIDIA H100"')), ["node4/gpu-0", "node4/gpu-1"]),
    "driver, model and uuid": (
        (
            1,
            f'device.driver == "{DRIVER}" && ' + attribute("productName", "'NVIDIA A100'"),
            attribute("uuid", quoted(uuid("node2", 3))),
        ),
        ["node2/gpu-3"],
    ),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(("claim", "devices"), SELECTED.values(), ids=SELECTED)
def test_a_pod_gets_exactly_what_its_own_claim_selects(
    cluster: IsolatedCluster, namespace: Namespace, claim: tuple[Any, ...], devices: list[str]
) -> None:
    """Of the claim only its allocation is written, and it is free again when the pod is gone."""
    claims = f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims"
    made = cluster.kube.create(claims, others_claim("mine", *claim))
    cluster.kube.create(namespace.pods, with_claim("train", {"resourceClaimName": "mine"}))

    pod = bound(namespace, "train")
    node = devices[0].partition("/")[0]
    given = ",".join(uuid(node, int(each[-1])) for each in devices)
    assert pod["spec"]["nodeName"] == node
    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == given
    main, helper = pod["spec"]["containers"]
    assert main["env"] == objects.reading()
    assert "env" not in helper
    found = cluster.claims(namespace.name)["mine"]
    assert (found["spec"], devices_of(found)) == (made["spec"], devices)
    assert [each["uid"] for each in found["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    config = found["status"]["allocation"]["devices"]["config"]
    assert config == [{"source": "FromClass", "requests": ["gpus"], **CONFIG}]
    assert "ownerReferences" not in found["metadata"]

    namespace.delete("train")
    eventually("its GPUs are free", lambda: cluster.allocated() == {}, seconds=20)
    assert list(cluster.claims(namespace.name)) == ["mine"]


@pytest.mark.promise("isolate-15")
@pytest.mark.usefixtures("scheduler")
def test_each_pod_of_a_template_gets_a_claim_of_its_own(cluster: IsolatedCluster, namespace: Namespace) -> None:
    """kube-controller-manager makes it, and deletes it with the pod."""
    template = {"metadata": {"name": "h100"}, "spec": others_claim("", 1, attribute("productName", '"NVIDIA H100"'))}
    del template["spec"]["metadata"]
    cluster.kube.create(f"{RESOURCES}/namespaces/{namespace.name}/resourceclaimtemplates", template)
    for name in ("a", "b"):
        cluster.kube.create(namespace.pods, with_claim(name, {"resourceClaimTemplateName": "h100"}))

    nodes = [bound(namespace, name)["spec"]["nodeName"] for name in ("a", "b")]
    assert nodes == ["node4", "node4"]
    assert len(cluster.claims(namespace.name)) == len(cluster.allocated()) == 2

    for name in ("a", "b"):
        namespace.delete(name)
    eventually("its claims are gone", lambda: not cluster.claims(namespace.name), seconds=20)


@pytest.fixture
def alone(scheduler: Command, tmp_path: Path) -> Path:
    """Return the folder of a test that starts its own schedulers. It ends the shared one, so it comes last."""
    scheduler.process.stop()
    return tmp_path


@pytest.mark.promise("isolate-7")
@pytest.mark.parametrize("step", ["created", "allocated", "bound"])
@pytest.mark.parametrize("cordoned", [False, True], ids=["and the node takes pods", "and the node is cordoned"])
def test_a_scheduler_killed_between_two_writes_leaves_nothing_behind(
    cluster: IsolatedCluster,
    namespace: Namespace,
    alone: Path,
    step: str,
    cordoned: bool,  # noqa: FBT001 - a row
) -> None:
    """The next leader finishes what was begun. If the pod cannot be bound any more, its devices are free."""
    killed = cluster.start_scheduler(alone, module="tests.integration.scheduler_killed_at", DIES_AT=step)
    killed.wait_ready()
    cluster.kube.create(SETS.format(namespace.name), replicas("0=node1:0,1\n", 1))
    eventually("it is dead", lambda: not killed.process.alive(), seconds=30)
    cluster.kube.patch("/api/v1/nodes/node1", {"spec": {"unschedulable": cordoned}})
    next_leader = cluster.start_scheduler(alone)
    try:
        next_leader.wait_ready()
        if cordoned and step != "bound":
            namespace.wait_message("train-0", "NodeUnschedulable: ")
            eventually("nothing is allocated", lambda: cluster.allocated() == {}, seconds=20)
            cluster.kube.patch("/api/v1/nodes/node1", {"spec": {"unschedulable": False}})
        pod = bound(namespace, "train-0")

        (claim,) = cluster.claims(namespace.name).values()
        assert devices_of(claim) == ["node1/gpu-0", "node1/gpu-1"]
        assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    finally:
        cluster.kube.patch("/api/v1/nodes/node1", {"spec": {"unschedulable": False}})
        next_leader.process.stop()
