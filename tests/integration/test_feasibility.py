"""What fits a node and its devices, and the table of messages: each reason, and each part of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.core.reasons import RANKING, Reason
from tests.integration import (
    feasibility_counts,
    feasibility_devices,
    feasibility_indices,
    feasibility_nodes,
    feasibility_texts,
)
from tests.integration.feasibility_case import asker, cluster, foreign, holder
from tests.integration.feasibility_devices import DEVICES
from tests.objects import device, gpu, inventory, literal, mig, node, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.feasibility_case import Case
    from tests.integration.namespace import Namespace

CASES: Final = (
    *feasibility_nodes.CASES,
    *feasibility_devices.CASES,
    *feasibility_indices.CASES,
    *feasibility_texts.CASES,
    *feasibility_counts.CASES,
)


@pytest.mark.promise("text-3")
@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
def test_each_remedy_of_a_message_is_carried_out(case: Case) -> None:
    """The parts of a row are all that its message says after what is wrong; what is a command runs as it stands."""
    assert case.has_every_part()
    assert all(remedy.action is None for remedy in case.remedies if "kubectl " in remedy.text)


@pytest.mark.promise("text-9")
def test_each_reason_has_a_message_with_remedies() -> None:
    """Every reason and rank of the closed list has a row."""
    # A cordon needs the kind GPUNode, which this control plane does not have: test_cordons.py has it.
    elsewhere = {(Reason.GPU_CORDONED, False)}
    assert {case.ranked_reason for case in CASES} == set(RANKING) - elsewhere


@pytest.mark.promise("hold-4")
def test_two_mig_devices_of_one_gpu_are_two_devices(namespace: Namespace, scheduler: Command) -> None:
    """The other MIG device of the GPU is held. The Binding writes the UUID of the assigned one."""
    cluster(DEVICES, holder(f"0=node1:{mig(1)}\n", literal(mig(1))))(namespace)
    namespace.make(asker(f"0=node1:{mig(2)}\n", literal(mig(2))))

    pod = namespace.wait_bound("asker-0", "node1")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-uuids"] == mig(2)


@pytest.mark.promise("hold-4", "hold-5")
def test_a_held_mig_device_missing_from_the_inventory_blocks_device_numbers(
    namespace: Namespace, scheduler: Command
) -> None:
    """The inventory lists GPUs without their MIG devices, so the GPU of the held MIG device is unknown."""
    cluster(DEVICES, holder(f"0=node1:{mig(1)}\n", literal(mig(1))))(namespace)
    namespace.patch_node("node1", {"metadata": {"annotations": inventory(device(0), device(1))}})
    # The scheduler has processed the inventory when it decides this pod.
    namespace.make(asker("0=node1:1\n", literal("1")))

    assert f"{namespace.name}/holder-0" in namespace.wait_message("asker-0", "GpuHeld: ")


@pytest.mark.promise("map-2")
def test_known_uuids_are_written_in_the_order_of_the_devices(namespace: Namespace, scheduler: Command) -> None:
    """The first UUID of `assigned-uuids` is that of CUDA's device 0."""
    namespace.node("node1", annotations=inventory(device(0), device(1), device(2)))
    namespace.make(asker("0=node1:2,0\n", literal("2,0")))

    pod = namespace.wait_bound("asker-0", "node1")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == "2,0"
    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-uuids"] == f"{gpu(2)},{gpu(0)}"


@pytest.mark.promise("share-1")
def test_two_lines_of_one_map_may_name_one_device(namespace: Namespace, scheduler: Command) -> None:
    """The author of the map decides that both pods share it."""
    namespace.node("node4")
    text = "3=node4:3\n4=node4:3\n"
    for index in (3, 4):
        namespace.pod(f"check-{index}", text, "3")

    for index in (3, 4):
        assert namespace.placed(f"check-{index}").devices == "3"


@pytest.mark.promise("share-5")
def test_two_pods_share_a_device_if_both_allow_it(namespace: Namespace, scheduler: Command) -> None:
    """They belong to different workloads, and both have the annotation `sharing: any`."""
    namespace.node("node1")
    willing = {"agentaflow.gpu/sharing": "any"}
    namespace.make(holder(annotations=willing))
    namespace.make(asker(annotations=willing))

    namespace.wait_bound("holder-0", "node1")
    namespace.wait_bound("asker-0", "node1")


@pytest.mark.promise("share-6", "share-7")
def test_an_observer_sees_devices_and_holds_none(namespace: Namespace, scheduler: Command) -> None:
    """It shares the device with the holder, and no pod waits for it. It holds its index."""
    namespace.node("node1")
    watching = {"agentaflow.gpu/observer": "true"}
    namespace.make(holder(annotations=watching))
    assert namespace.placed("holder-0").devices == "0"

    namespace.make(asker())
    namespace.wait_bound("asker-0", "node1")
    namespace.make(
        pod("late", "0=node1:0\n9=node9:0\n", literal("0"), annotations={**watching, "agentaflow.gpu/index": "0"})
    )
    namespace.wait_bound("late", "node1")

    second_pod = {**watching, "agentaflow.gpu/index": "0"}
    namespace.make(pod("twin", "0=node1:0\n9=node9:0\n", literal("0"), annotations=second_pod))
    assert f"{namespace.name}/late" in namespace.wait_message("twin", "IndexHeld: ")


@pytest.mark.promise("limit-1", "env-9")
def test_a_pod_with_a_limit_gets_devices_of_the_device_plugin(namespace: Namespace, scheduler: Command) -> None:
    """The scheduler chooses the node, the plugin the devices. The annotation has the numbers inside the container."""
    namespace.node("node1", room={"nvidia.com/gpu": "8"})
    namespace.make(asker("0=node1:6,7\n", reading(), limits={"nvidia.com/gpu": "2"}))

    placed = namespace.placed("asker-0")

    assert (placed.node, placed.devices, placed.index) == ("node1", "0,1", 0)


@pytest.mark.promise("limit-5")
def test_without_a_device_plugin_a_limit_is_only_a_count(namespace: Namespace, scheduler: Command) -> None:
    """Without a device plugin, as on kind, the pod holds the devices of its line by name."""
    namespace.add(DEVICES)
    namespace.make(asker("0=node1:1\n", reading(), limits={"nvidia.com/gpu": "1"}))
    assert namespace.placed("asker-0").devices == "1"

    namespace.make(holder("0=node1:1\n7=node7:0\n", literal("1")))

    assert f"{namespace.name}/asker-0" in namespace.wait_message("holder-0", "GpuHeld: ")


@pytest.mark.promise("fit-14")
@pytest.mark.parametrize(
    ("field", "more"),
    [
        (
            "requiredDuringSchedulingIgnoredDuringExecution",
            {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
        )
        for kind in ("podAffinity", "podAntiAffinity")
    ]
    + [
        (
            "topologySpreadConstraints",
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
        ),
        ("resourceClaims", {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}),
    ],
)
def test_the_message_names_an_unsupported_field(
    namespace: Namespace, scheduler: Command, field: str, more: dict[str, Any]
) -> None:
    """A pod with a constraint that the scheduler does not implement waits, and the message names the field."""
    namespace.node("node1")
    namespace.make(asker(**more))

    assert field in namespace.wait_message("asker-0", "Unsupported: ")


@pytest.mark.promise("fit-7")
def test_ports_of_other_protocols_and_addresses_do_not_collide(namespace: Namespace, scheduler: Command) -> None:
    """Port 8080 is used with TCP and UDP on 127.0.0.1, and with TCP on 127.0.0.2."""
    namespace.node("node1")
    for number, (protocol, address) in enumerate((("TCP", "127.0.0.1"), ("UDP", "127.0.0.1"), ("TCP", "127.0.0.2"))):
        body = pod(f"port-{number}", "".join(f"{i}=node1:{i}\n" for i in range(3)), literal(str(number)))
        port = {"containerPort": 80, "hostPort": 8080, "protocol": protocol, "hostIP": address}
        body["spec"]["containers"][0]["ports"] = [port]
        namespace.make(body)

    for number in range(3):
        namespace.wait_bound(f"port-{number}", "node1")


@pytest.mark.promise("fit-7", "fit-10")
def test_one_port_on_two_addresses_is_held_on_both(namespace: Namespace, scheduler: Command) -> None:
    """A pod of another scheduler uses it. When that pod is deleted, both addresses are free."""
    namespace.node("node1")
    busy = foreign()
    addresses = ("10.0.0.1", "10.0.0.2")
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": address} for address in addresses]
    busy["spec"]["containers"][0]["ports"] = ports
    namespace.make(busy)
    for number, port in enumerate(ports):
        body = pod(f"port-{number}", "0=node1:\n1=node1:\n", literal(""))
        body["spec"]["containers"][0]["ports"] = [port]
        namespace.make(body)
        assert f"{namespace.name}/foreign-0" in namespace.wait_message(f"port-{number}", "PortInUse: ")

    namespace.delete("foreign-0")

    assert namespace.indices("port-0", "port-1") == [0, 1]


@pytest.mark.promise("fit-4", "fit-3")
def test_a_pod_is_placed_on_a_node_whose_taints_it_tolerates(namespace: Namespace, scheduler: Command) -> None:
    """The node is cordoned and has a taint. A pod that tolerates both, like a DaemonSet's, is placed."""
    taint = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
    namespace.add(node("node1", unschedulable=True, taints=(taint,)))
    namespace.make(asker(tolerations=[{"operator": "Exists"}]))

    namespace.wait_bound("asker-0", "node1")


@pytest.mark.promise("hold-7")
def test_a_bound_pod_that_reads_a_missing_annotation_is_drift(namespace: Namespace, scheduler: Command) -> None:
    """The pod sees and holds no GPU. The metric counts it."""
    namespace.node("node1")
    namespace.make(holder(env=reading(), nodeName="node1"))
    eventually("the drift is counted", lambda: scheduler.metric("gpu_scheduler_drift") == 1)

    namespace.make(asker())

    namespace.wait_bound("asker-0", "node1")
