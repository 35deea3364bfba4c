from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.constraints import (
    ANYWHERE,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
)
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, Environment, EnvVar
from gpu_scheduler.core.pods.placement import Assignment
from gpu_scheduler.core.pods.placement_map import Slot, parse_placement_map
from gpu_scheduler.core.pods.pod import (
    EVERY_PORT,
    NOTHING,
    ForeignPod,
    HostPort,
    Pod,
    ResourceRequest,
    ScheduledCondition,
)
from gpu_scheduler.core.pods.request import LineRequest, PlacementRequest
from gpu_scheduler.core.refs import Owner, PodRef, WorkloadKey
from gpu_scheduler.kube.objects import meta, storage
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import read_foreign_pod, read_pod, text_of
from gpu_scheduler.webhook.admission import AdmissionKind

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> bytes:
    """Return a real object, as `kubectl get -o yaml` printed it, in the API's JSON."""
    return msgspec.json.encode(yaml.safe_load((FIXTURES / name).read_text(encoding="utf-8")))


@pytest.mark.promise("hold-10")
@pytest.mark.parametrize("number", [1, 1000])
def test_what_the_gpus_were_when_the_pod_was_bound_is_read(number: int) -> None:
    """However many they are."""
    uuids = [f"GPU-00000000-0000-4000-8000-{each:012}" for each in range(number)]
    written = {"devices": ",".join(map(str, range(number))), "node": "node1", "uuids": ",".join(uuids)}
    pod = yaml.safe_load(fixture("pod_statefulset_bound.yaml"))
    pod["metadata"]["annotations"] |= {f"agentaflow.gpu/assigned-{key}": text for key, text in written.items()}

    assert read_pod(msgspec.json.encode(pod))[1].assignment.uuids == tuple(uuids)


@pytest.mark.parametrize(("written", "priority"), [({}, 0), ({"priority": None}, 0), ({"priority": -7}, -7)])
def test_the_priority_of_a_pod_is_read(written: dict[str, int | None], priority: int) -> None:
    """The API server writes it from the pod's PriorityClass."""
    given = yaml.safe_load(fixture("pod_statefulset_bound.yaml"))
    given["spec"] |= written

    assert read_pod(msgspec.json.encode(given))[1].priority == priority


def test_a_pod_of_a_stateful_set_is_read() -> None:
    """Only what a decision needs is kept: line, annotations of the Binding, controller, the two variables."""
    key, pod = read_pod(fixture("pod_statefulset_bound.yaml"))

    literal = (EnvVar("CUDA_VISIBLE_DEVICES", "0,1"), EnvVar("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
    digest = parse_placement_map("0=node1:0,1\n1=node2:2\n").digest
    workload = WorkloadKey("default", "StatefulSet", "gpu-scheduler-check", digest)
    assert key == "5f0c1f9e-61b5-4c43-9d6e-5d1a4e3c8b10"
    assert pod == Pod(
        ref=PodRef("default", "gpu-scheduler-check-0", key),
        created="2026-11-20T08:31:01Z",
        scheduler_name="gpu-scheduler",
        node="node1",
        phase="Running",
        generate_name="gpu-scheduler-check-",
        owner=Owner("StatefulSet", "gpu-scheduler-check", "7b8a1de2-7df2-45f5-8e8b-6a1a3f6a9d10", "apps/v1"),
        request=PlacementRequest(LineRequest(workload, 0, Slot(0, "node1", ("0", "1"))), observer=True),
        assignment=Assignment(("0", "1"), "node1", (), "2026-11-20T08:31:02.123456Z"),
        environment=Environment(
            (
                Container(ContainerKind.CONTAINER, 0, "check", literal),
                Container(ContainerKind.INIT, 0, "prepare", literal),
            ),
            own_devices=("0", "1"),
        ),
        constraints=SchedulingConstraints(
            tolerations=(Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),)
        ),
    )
    assert pod.scheduled_condition == ScheduledCondition("True", "", "")


def test_a_waiting_pod_that_terminates_is_read() -> None:
    """Gates, deletion, other sources of a variable, and the condition with its message."""
    _, pod = read_pod(fixture("pod_waiting.yaml"))

    assert (pod.node, pod.phase, pod.gated) == (None, "Pending", True)
    assert pod.deleting_since == "2026-11-20T09:00:00Z"
    assert pod.owner is None
    assert pod.scheduled_condition == ScheduledCondition("False", "Unschedulable", "GpuHeld: GPU 3 of node4 is held")
    by_name = {container.name: container.env for container in pod.environment.containers}
    field_path = "metadata.annotations['agentaflow.gpu/assigned-devices']"
    assert by_name == {
        "reads-annotation": (EnvVar("CUDA_VISIBLE_DEVICES", None, field_path),),
        "reads-secret": (EnvVar("CUDA_VISIBLE_DEVICES", None, None),),
        "says-nothing": (EnvVar("CUDA_VISIBLE_DEVICES", ""),),
        "has-others": (),
        "has-none": None,
        "debugger": None,
    }
    assert pod.environment.containers[-1].kind is ContainerKind.EPHEMERAL


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param({"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu", id="rejected"),
        pytest.param({"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": []}, "OutOfcpu", id="empty list"),
        pytest.param({"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": None}, "OutOfcpu", id="null"),
        pytest.param({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{}]}, "", id="had containers"),
        pytest.param({"phase": "Failed"}, "", id="no reason"),
        pytest.param({"phase": "Pending", "reason": "OutOfcpu"}, "", id="has not failed"),
    ],
)
def test_a_rejection_by_the_kubelet_is_read(status: Mapping[str, Any], why: str) -> None:
    """The kubelet then gives a reason and no container. A pod that ends after its admission keeps its containers."""
    raw = msgspec.json.encode({"metadata": {}, "spec": {}, "status": status})

    assert read_pod(raw)[1].rejected == why


def test_null_fields_are_absent() -> None:
    """Kubernetes writes null for a missing value: it is never an error."""
    raw = b"""{"metadata": {"name": "a", "uid": "u", "creationTimestamp": null, "labels": null, "annotations": null,
      "ownerReferences": null, "deletionTimestamp": null},
      "spec": {"nodeName": null, "schedulingGates": null, "containers": null},
      "status": {"conditions": [{"type": "Ready", "status": "False"},
        {"type": "PodScheduled", "status": "False", "reason": null, "lastProbeTime": null}]}}"""

    key, pod = read_pod(raw)

    assert key == "u"
    assert pod.request.fault is not None
    assert pod == Pod(ref=PodRef("", "a", "u"), request=pod.request, scheduler_name="")
    assert pod.scheduled_condition == ScheduledCondition("False", "", "")


STRUCTS: list[type[msgspec.Struct]] = [
    each
    for module in (meta, storage)
    for each in vars(module).values()
    # The API server always sends its kind.
    if isinstance(each, type) and each.__module__ == module.__name__ and each is not AdmissionKind
]


def least(kind: Any) -> Any:
    """Return the smallest valid object of this type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: least(field.type) for field in msgspec.structs.fields(kind) if field.required}
    return "a" if kind is str else {}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_optional_fields_may_be_null(struct: type[msgspec.Struct]) -> None:
    """Go writes null for an empty list, map or time. If a field did not allow it, the whole object would be lost."""
    optional = [field for field in msgspec.structs.fields(struct) if not field.required]
    body = {**least(struct), **{field.encode_name: None for field in optional}}

    read = msgspec.json.decode(msgspec.json.encode(body), type=struct)

    assert all(getattr(read, field.name) in [None, msgspec.Raw(b"null")] for field in optional)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_pod, b'{"metadata": {"name": 5}, "spec": {}}'),
        (read_foreign_pod, b'{"metadata": {}, "spec": {"nodeName": 5}}'),
    ],
)
def test_an_invalid_pod_is_an_error(read: Callable[[bytes], object], text: bytes) -> None:
    """The reflector logs it and continues."""
    with pytest.raises(msgspec.ValidationError):
        read(text)


@pytest.mark.parametrize("read", [read_pod, read_node, read_foreign_pod])
def test_an_object_of_a_hostile_depth_is_an_error(read: Callable[[bytes], object]) -> None:
    """Fields that are not read may nest as deep as a client likes."""
    deep = b"[" * 100_000 + b"]" * 100_000

    with pytest.raises(msgspec.ValidationError):
        read(b'{"metadata": {"name": "a", "managedFields": ' + deep + b'}, "spec": {}}')


@pytest.mark.parametrize("read", [read_pod, read_node, read_foreign_pod])
def test_an_object_with_text_that_is_no_utf_8_is_an_error(read: Callable[[bytes], object]) -> None:
    """It is the same error as for any other invalid object."""
    with pytest.raises(msgspec.ValidationError, match=r"not UTF-8"):
        read(b'{"metadata": {"name": "\xff"}, "spec": {}}')


NODES = {
    "a ready one": (
        fixture("node_ready.yaml"),
        Node(
            "node1",
            alias="gpu-a",
            labels={"gpu-node-name": "gpu-a", "kubernetes.io/hostname": "node1"},
            allocatable={"cpu": 2000, "memory": 24567648 * 1024, "pods": 110},
        ),
    ),
    "a cordoned one whose state is unknown": (
        fixture("node_cordoned.yaml"),
        Node(
            "node2",
            ready=False,
            unschedulable=True,
            labels={"gpu-node-name": "", "kubernetes.io/hostname": "node2"},
            taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),),
        ),
    ),
    "one without conditions, whose kubelet may never have started": (
        b'{"metadata": {"name": "new"}}',
        Node("new", ready=False),
    ),
}


@pytest.mark.parametrize(("raw", "node"), NODES.values(), ids=NODES)
def test_nodes_are_read(raw: bytes, node: Node) -> None:
    """Ready is the last report of the kubelet. Unknown is not Ready."""
    assert read_node(raw) == (node.name, node)


@pytest.mark.parametrize(
    "part",
    ["owner", "environment", "resource_request", "constraints", "scheduled_condition", "request.line.workload"],
)
def test_pods_share_equal_parts(part: str) -> None:
    """Ten thousand pods of one template hold one copy of each part, and none of them holds its map."""
    one, other = (attrgetter(part)(read_pod(fixture("pod_statefulset_bound.yaml"))[1]) for _ in range(2))

    assert one is other is not None


@pytest.mark.parametrize("part", ["owner", "environment"])
def test_long_parts_are_read_and_not_shared(part: str) -> None:
    """One hostile pod must not fill the memory permanently."""
    long = "x" * {"owner": 253, "environment": 4096}[part]
    variable = {"name": "CUDA_VISIBLE_DEVICES", "value": long}
    body = {
        "metadata": {
            "name": "train-0",
            "uid": "u",
            "ownerReferences": [{"kind": "ReplicaSet", "name": long, "uid": "r", "controller": True}],
        },
        "spec": {"containers": [{"name": "main", "env": [variable]}]},
    }
    one, other = (read_pod(msgspec.json.encode(body))[1] for _ in range(2))

    assert long in str(getattr(one, part))
    assert getattr(one, part) == getattr(other, part)
    assert part == "owner" or getattr(one, part) is not getattr(other, part)


def test_equal_nodes_share_inventory_and_resources() -> None:
    """Thousands of nodes that advertise the same number of devices share one inventory."""
    status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"}}
    one, other = (
        read_node(msgspec.json.encode({"metadata": {"name": name}, "status": status}))[1] for name in ("a", "b")
    )

    assert one.inventory is other.inventory
    assert one.allocatable is other.allocatable


def pod_of(spec: Mapping[str, Any]) -> Pod:
    return read_pod(msgspec.json.encode({"metadata": {"name": "train-0", "uid": "u"}, "spec": spec}))[1]


def asks(name: str = "main", *, sidecar: bool = False, **requests: object) -> dict[str, object]:
    return {"name": name, "resources": {"requests": requests}, **({"restartPolicy": "Always"} if sidecar else {})}


REQUESTS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, int]]] = {
    "containers run together": (
        {"containers": [asks(cpu="500m", memory="1Gi"), asks(cpu="1", memory="1Mi")]},
        {"cpu": 1500, "memory": 2**30 + 2**20},
    ),
    "other resources are counted in whole units": (
        {
            "containers": [
                {"name": "a", "resources": {"requests": {"nvidia.com/gpu": "2", "ephemeral-storage": "1G"}}},
                {"name": "b", "resources": {"requests": {"hugepages-2Mi": "4Mi"}}},
            ]
        },
        {"nvidia.com/gpu": 2, "hugepages-2Mi": 2**22, "ephemeral-storage": 10**9},
    ),
    "overhead comes on top": (
        {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m", "memory": "64"}},
        {"cpu": 1250, "memory": 64},
    ),
    "the pod's own requests replace those that they name, before overhead": (
        {
            "containers": [asks(cpu="1", memory="7")],
            "resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "6"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": 6000, "memory": 7},
    ),
    "ephemeral containers ask for nothing": ({"ephemeralContainers": [asks(cpu="1")]}, {}),
    "zeroes are left out": ({"containers": [asks(cpu="0", memory="0Gi")]}, {}),
    "numbers may stand without quotes": ({"containers": [asks(cpu=2, memory=0.5)]}, {"cpu": 2000, "memory": 1}),
    "a quantity that cannot be read costs that resource alone": (
        {"containers": [asks(cpu="many", memory="1"), asks(cpu=["1"], memory=None), asks(cpu="9" * 10_000)]},
        {"memory": 1},
    ),
    "a broken field costs that field alone": (
        {
            "containers": [{"name": "a", "resources": "none", "ports": 8080}, asks(cpu="1")],
            "initContainers": [{"name": "b", "resources": {"requests": []}, "ports": [{"hostPort": "80"}]}],
            "overhead": [1],
            "resources": 5,
            "volumes": {},
            "tolerations": "all",
            "topologySpreadConstraints": 1,
            "resourceClaims": "gpu",
        },
        {"cpu": 1000},
    ),
    "nulls are nothing": (
        {
            "containers": [{"name": "a", "resources": None, "ports": None}, {"name": "b", "resources": {}}],
            "initContainers": None,
            "overhead": None,
            "resources": None,
            "volumes": None,
            "nodeSelector": None,
            "affinity": None,
            "tolerations": None,
            "topologySpreadConstraints": None,
            "resourceClaims": None,
        },
        {},
    ),
}


@pytest.mark.parametrize(("spec", "requests"), REQUESTS.values(), ids=REQUESTS)
def test_resource_requests_are_summed(spec: Mapping[str, Any], requests: Mapping[str, int]) -> None:
    """As kube-scheduler sums them. A quantity that cannot be read is left out."""
    pod = pod_of(spec)

    assert pod.resource_request == ResourceRequest(requests)
    assert (pod.constraints, pod.claims) == (ANYWHERE, ())


@pytest.mark.promise("fit-8")
def test_resources_are_checked_in_one_order_however_they_are_written() -> None:
    """So that of several that do not suffice, each attempt names the same: CPU first, then memory."""
    given = {"example.com/fpga": "1", "ephemeral-storage": "1", "nvidia.com/gpu": "1", "memory": "1", "cpu": "1"}
    checked = ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "example.com/fpga"]

    for written in (given, dict(reversed(given.items()))):
        container = {"name": "a", "resources": {"requests": written}}
        assert list(pod_of({"containers": [container]}).resource_request.requests) == checked


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=5), st.lists(st.integers(0, 9), max_size=3))
def test_a_pod_requests_its_largest_sum_at_one_time(before: list[tuple[bool, int]], after: list[int]) -> None:
    """Whatever the order of sidecars and init containers is."""
    moments = [sum(cpu for stays, cpu in before if stays) + sum(after)]
    for number, (_, cpu) in enumerate(before):
        moments.append(cpu + sum(earlier for stays, earlier in before[:number] if stays))
    spec = {
        "initContainers": [asks(sidecar=sidecar, cpu=str(cpu)) for sidecar, cpu in before],
        "containers": [asks(cpu=str(cpu)) for cpu in after],
    }

    assert max(moments) * 1000 == pod_of(spec).resource_request.requests.get("cpu", 0)


def test_host_ports_are_read() -> None:
    """Containers and sidecars take ports of the host. A port of the pod's own address is not taken."""
    spec = {
        "containers": [
            {"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 0}, {"hostPort": 8080}]},
            {"name": "b", "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
        ],
        "initContainers": [
            {"name": "c", "restartPolicy": "Always", "ports": [{"hostPort": 9090, "hostIP": ""}]},
            {"name": "d", "ports": [{"hostPort": 7070}]},
        ],
    }

    assert pod_of(spec).resource_request.ports == {
        HostPort("TCP", "0.0.0.0", 8080),  # noqa: S104 - every address of the host
        HostPort("UDP", "10.0.0.1", 53),
        HostPort("TCP", "0.0.0.0", 9090),  # noqa: S104 - every address of the host
    }


def test_equal_pods_share_their_resource_request() -> None:
    """Even if their texts differ: ten thousand of them hold one request."""
    one = pod_of({"containers": [asks(cpu="500m"), asks(cpu="1500m", memory="1Ki")]})
    other = pod_of({"containers": [asks(memory="1024", cpu="2")]})

    assert one.resource_request is other.resource_request
    assert pod_of({}).resource_request is NOTHING


def test_large_requests_are_cut_and_not_shared() -> None:
    """One hostile pod must not fill the memory permanently."""
    many = {f"example.com/r{number}": "1" for number in range(500)}
    ports = [{"hostPort": number} for number in range(1, 500)]
    spec = {
        "containers": [{"name": "main", "resources": {"requests": many}, "ports": ports}],
        "nodeSelector": dict.fromkeys(many, "x" * 60),
    }
    one, other = pod_of(spec), pod_of(spec)

    assert len(one.resource_request.requests) == 64
    assert one.resource_request.ports == {EVERY_PORT}
    assert one.constraints == other.constraints == ANYWHERE
    assert one.excess == Excess("the resources of the pod", 65, 64, "resources")
    assert one.resource_request is not other.resource_request


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOWHERE = SchedulingConstraints(affinity=())

CONSTRAINTS: Mapping[str, tuple[Mapping[str, Any], SchedulingConstraints]] = {
    "a node selector": ({"nodeSelector": {"disk": "ssd"}}, SchedulingConstraints({"disk": "ssd"})),
    "required node affinity": (
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "zone", "operator": "In", "values": ["a", "b"]},
                                    {"key": "gpu", "operator": "Exists", "values": None},
                                ],
                                "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node9"]}],
                            },
                            {"matchExpressions": None},
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
                }
            }
        },
        SchedulingConstraints(
            affinity=(
                NodeSelectorTerm(
                    (NodeSelectorRequirement("zone", "In", ("a", "b")), NodeSelectorRequirement("gpu", "Exists")),
                    (NodeSelectorRequirement("metadata.name", "NotIn", ("node9",)),),
                ),
                NodeSelectorTerm(),
            )
        ),
    ),
    "affinity without terms": ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}}, NOWHERE),
    "affinity that only prefers": (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        ANYWHERE,
    ),
    "affinity that is null": ({"affinity": {"nodeAffinity": None, "podAffinity": None}}, ANYWHERE),
    "tolerations, with Kubernetes' defaults": (
        {"tolerations": [{"key": "a", "value": "b"}, {"operator": "Exists", "effect": "NoExecute"}]},
        SchedulingConstraints(
            tolerations=(Toleration("a", "Equal", "b", ""), Toleration("", "Exists", "", "NoExecute"))
        ),
    ),
    "affinity that cannot be read is granted by no node": ({"affinity": {"nodeAffinity": "node1"}}, NOWHERE),
    "a selector that cannot be read is granted by no node": ({"nodeSelector": {"disk": 5}}, NOWHERE),
}


@pytest.mark.parametrize(("spec", "constraints"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_scheduling_constraints_are_read(spec: Mapping[str, Any], constraints: SchedulingConstraints) -> None:
    """They are the nodes that the pod's own spec allows."""
    assert constraints == pod_of(spec).constraints


ANTI = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}

UNSUPPORTED: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "required affinity to pods": (
        {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}},
        (f"spec.affinity.podAffinity.{REQUIRED}",),
    ),
    "required anti-affinity to pods": ({"affinity": ANTI}, (f"spec.affinity.podAntiAffinity.{REQUIRED}",)),
    "affinity that only prefers": (
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        (),
    ),
    "affinity that requires nothing": ({"affinity": {"podAffinity": {REQUIRED: []}, "podAntiAffinity": {}}}, ()),
    "spread that must hold": (
        {
            "topologySpreadConstraints": [
                {"whenUnsatisfiable": "ScheduleAnyway"},
                {"whenUnsatisfiable": "DoNotSchedule"},
            ]
        },
        ("spec.topologySpreadConstraints",),
    ),
    "spread that should hold": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
    "claims to devices": ({"resourceClaims": [{"name": "gpu"}]}, ("spec.resourceClaims",)),
    "no claims to devices": ({"resourceClaims": []}, ()),
    "several at once": (
        {"affinity": ANTI, "resourceClaims": [{"name": "gpu"}]},
        (f"spec.affinity.podAntiAffinity.{REQUIRED}", "spec.resourceClaims"),
    ),
}


@pytest.mark.promise("fit-14")
@pytest.mark.parametrize(("spec", "fields"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported_fields_are_named(spec: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """A constraint that the scheduler does not check is reported by its field."""
    pod = msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "train-0"}, "spec": spec}), type=PodObject)

    assert fields == text_of(pod, "default").unsupported


def test_volume_claims_are_read() -> None:
    """A claim has its own name or, for an ephemeral volume, the names of pod and volume."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "train-data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "odd", "persistentVolumeClaim": {"claimName": None}, "ephemeral": None},
    ]

    assert pod_of({"volumes": volumes}).claims == ("train-data", "train-0-scratch")


def test_gpu_limits_are_read() -> None:
    """Containers and init containers with a limit of the device plugin's resource; requests alone do not count."""
    spec = {
        "containers": [
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
            {"name": "zero", "resources": {"limits": {"nvidia.com/gpu": "0"}}},
            {"name": "odd", "resources": {"limits": {"nvidia.com/gpu": "-1"}}},
            {"name": "none", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
        ],
        "initContainers": [{"name": "warm", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    }
    pod = pod_of(spec)

    assert pod.gpu_limits == (("main", 2), ("warm", 1))
    assert pod.gpu_limit == 3


def test_a_foreign_pod_is_read() -> None:
    """Only the resources that it takes are read, so that no other field can hide them."""
    raw = msgspec.json.encode(
        {
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "annotations": {"odd": 5}, "labels": []},
            "spec": {
                "nodeName": "node1",
                "containers": [asks(cpu="2"), {"ports": [{"hostPort": 80}], "env": "none"}],
                "initContainers": [asks(sidecar=True, cpu="1")],
                "overhead": {"memory": "1Ki"},
                "affinity": "anywhere",
            },
            "status": 5,
        }
    )
    resource_request = ResourceRequest({"cpu": 3000, "memory": 1024}, frozenset({HostPort("TCP", "0.0.0.0", 80)}))  # noqa: S104 - every address of the host

    assert read_foreign_pod(raw) == ("u", ForeignPod(PodRef("team-a", "web", "u"), "node1", resource_request))


def node_of(devices: str | None = None, capacity: Mapping[str, object] | None = None) -> Node:
    annotations = {} if devices is None else {"agentaflow.gpu/devices": devices}
    return read_node(
        msgspec.json.encode(
            {"metadata": {"name": "node1", "annotations": annotations}, "status": {"capacity": capacity}}
        )
    )[1]


GPU_A = "GPU-0a0a0a0a-0000-4000-8000-00000000000a"
MIG_A = "MIG-0a0a0a0a-0000-4000-8000-00000000000a"

INVENTORIES = {
    "indices, UUIDs and MIG devices": (
        (
            f'[{{"index": 1, "uuid": "{GPU_A}", "health": "healthy", "migDevices": [{{"uuid": "{MIG_A}", "x": 5}}]}},'
            ' {"index": 0, "uuid": null, "migDevices": null}]'
        ),
        Inventory((Device(1, GPU_A, (MIG_A,)), Device(0))),
    ),
    "UUIDs in capitals": (f'[{{"index": 0, "uuid": "GPU-{GPU_A[4:].upper()}"}}]', Inventory((Device(0, GPU_A),))),
    "ids that no map can name": (
        '[{"index": 0, "uuid": "1", "migDevices": [{"uuid": "MIG-GPU-1/2/0"}, {"uuid": ""}]}]',
        Inventory((Device(0),)),
    ),
    "a node without devices": ("[]", Inventory(())),
}


@pytest.mark.parametrize(("text", "inventory"), INVENTORIES.values(), ids=INVENTORIES)
def test_a_monitors_inventory_is_read(text: str, inventory: Inventory) -> None:
    """It takes precedence over the number of the device plugin."""
    assert inventory == node_of(text, {"nvidia.com/gpu": "9"}).inventory


INVALID_INVENTORIES = {
    "no JSON": "[{",
    "no list": '{"index": 0}',
    "null": "null",
    "an index that is a string": '[{"index": "0"}]',
    "no index": f'[{{"uuid": "{GPU_A}"}}]',
    "an index below zero": '[{"index": -1}]',
    "an index of a hostile length": f'[{{"index": {"9" * 5000}}}]',
    "an index twice": '[{"index": 0}, {"index": 0}]',
    "a UUID twice": f'[{{"index": 0, "uuid": "{GPU_A}"}}, {{"index": 1, "uuid": "GPU-{GPU_A[4:].upper()}"}}]',
    "a MIG device twice": f'[{{"index": 0, "migDevices": [{{"uuid": "{MIG_A}"}}, {{"uuid": "{MIG_A}"}}]}}]',
    "more devices than any node has": str([{"index": number} for number in range(1025)]).replace("'", '"'),
    "a hostile depth": '[{"index": 0, "x": ' + "[" * 100_000,
}


@pytest.mark.parametrize("text", INVALID_INVENTORIES.values(), ids=INVALID_INVENTORIES)
def test_an_invalid_inventory_is_ignored(text: str) -> None:
    """The device plugin's number counts then, if the node has one."""
    assert node_of(text).inventory is None
    assert node_of(text, {"nvidia.com/gpu": "2"}).inventory == counted(2)


ADVERTISED: Mapping[str, tuple[Mapping[str, object] | None, int | None, Inventory | None]] = {
    "a node with a device plugin": ({"nvidia.com/gpu": "8", "cpu": "4"}, 8, counted(8)),
    "a device plugin without devices": ({"nvidia.com/gpu": "0"}, 0, None),
    "a node without a device plugin": ({"cpu": "4"}, None, None),
    "a number that cannot be read": ({"nvidia.com/gpu": "-8"}, None, None),
    "a node without a capacity": (None, None, None),
    "more devices than fit into memory": ({"nvidia.com/gpu": "1e999999999"}, 2**63 - 1, counted(1024)),
}


@pytest.mark.parametrize(("capacity", "advertised", "inventory"), ADVERTISED.values(), ids=ADVERTISED)
def test_advertised_devices_are_counted(
    capacity: Mapping[str, object] | None, advertised: int | None, inventory: Inventory | None
) -> None:
    """The node's capacity gives the number of devices of the device plugin."""
    node = node_of(capacity=capacity)

    assert (advertised, inventory) == (node.advertised, node.inventory)
