"""Does it fit: every row waits with its sentence, told once in condition, event and log, and its cure binds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration import questions_of_devices, questions_of_indices, questions_of_nodes
from tests.integration.asking import asker, foreign, holder, world
from tests.integration.questions_of_devices import CARDS
from tests.objects import card, gpu, inventory, literal, mig, node, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.asking import Question
    from tests.integration.bench import Bench
    from tests.integration.command import Command

QUESTIONS: Final = (
    *questions_of_nodes.QUESTIONS,
    *questions_of_devices.QUESTIONS,
    *questions_of_indices.QUESTIONS,
)


@pytest.mark.promise("text-1", "text-2", "text-3", "text-8")
@pytest.mark.parametrize(
    "question",
    [pytest.param(each, id=each.name, marks=pytest.mark.promise(*each.promises)) for each in QUESTIONS],
)
def test_a_pod_waits_with_one_sentence_until_its_cure(bench: Bench, scheduler: Command, question: Question) -> None:
    """The sentence begins with the reason, names what is the case, and is told once; then the pod is bound."""
    question.world(bench)
    bench.make(question.asker)

    message = question.wait_told(bench)

    assert bench.condition(question.who)["reason"] == "Unschedulable"
    eventually("an event says it", lambda: message in _notes(bench, question))
    assert scheduler.said(message)
    assert bench.node_of(question.who) == ""
    question.cure(bench)
    placed = bench.placed(question.who, seconds=3)
    assert (placed.node, placed.devices) == ("node1", question.given)
    notes = _notes(bench, question)
    assert notes.count(message) == 1
    earlier, later = notes[: notes.index(message)], notes[notes.index(message) + 1 :]
    # The watch of nodes or of claims may be a moment later than that of pods.
    assert [text for text in earlier if ": cannot find " not in text] == []
    # A deletion shows the holder terminating before it is gone, and a claim is there before it is bound.
    assert [text for text in later if question.retold not in text] == []
    assert len(later) <= 1


def _notes(bench: Bench, question: Question) -> list[str]:
    """Give what the events of the waiting pod say, oldest first."""
    return [str(event["note"]) for event in bench.events(question.who) if event["reason"] == "FailedScheduling"]


@pytest.mark.promise("hold-4")
def test_two_slices_of_one_card_are_not_each_other(bench: Bench, scheduler: Command) -> None:
    """MIG slices are devices of their own, whoever holds the other one; their UUIDs become durable with the node."""
    world(CARDS, holder(f"0=node1:{mig(1)}\n", literal(mig(1))))(bench)
    bench.make(asker(f"0=node1:{mig(2)}\n", literal(mig(2))))

    pod = bench.wait_bound("asker-0", "node1")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-uuids"] == mig(2)


@pytest.mark.promise("hold-4", "hold-5")
def test_a_slice_that_the_inventory_forgot_still_blocks_numbers(bench: Bench, scheduler: Command) -> None:
    """A monitor that lists cards without their slices leaves it open which card the holder is on."""
    world(CARDS, holder(f"0=node1:{mig(1)}\n", literal(mig(1))))(bench)
    bench.patch_node("node1", {"metadata": {"annotations": inventory(card(0), card(1))}})
    # Whatever is asked next comes after the inventory in the scheduler's own order of things.
    bench.make(asker("0=node1:1\n", literal("1")))

    assert f"{bench.namespace}/holder-0" in bench.wait_message("asker-0", "GpuHeld: ")


@pytest.mark.promise("map-2")
def test_known_uuids_are_written_in_the_order_of_the_devices(bench: Bench, scheduler: Command) -> None:
    """Who reads `assigned-uuids` knows which of them is CUDA's device 0."""
    bench.node("node1", annotations=inventory(card(0), card(1), card(2)))
    bench.make(asker("0=node1:2,0\n", literal("2,0")))

    pod = bench.wait_bound("asker-0", "node1")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == "2,0"
    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-uuids"] == f"{gpu(2)},{gpu(0)}"


@pytest.mark.promise("share-1")
def test_two_lines_of_one_map_may_name_one_device(bench: Bench, scheduler: Command) -> None:
    """The map's author decided it."""
    bench.node("node4")
    text = "3=node4:3\n4=node4:3\n"
    for index in (3, 4):
        bench.pod(f"check-{index}", text, "3")

    for index in (3, 4):
        assert bench.placed(f"check-{index}").devices == "3"


@pytest.mark.promise("share-5")
def test_two_pods_that_both_say_so_share(bench: Bench, scheduler: Command) -> None:
    """Strangers to each other, but both opted in."""
    bench.node("node1")
    willing = {"agentaflow.gpu/sharing": "any"}
    bench.make(holder(annotations=willing))
    bench.make(asker(annotations=willing))

    bench.wait_bound("holder-0", "node1")
    bench.wait_bound("asker-0", "node1")


@pytest.mark.promise("share-6", "share-7")
def test_an_observer_sees_devices_and_takes_them_from_nobody(bench: Bench, scheduler: Command) -> None:
    """It stands beside the holder, and nobody waits for it; its index is its own."""
    bench.node("node1")
    watching = {"agentaflow.gpu/observer": "true"}
    bench.make(holder(annotations=watching))
    assert bench.placed("holder-0").devices == "0"

    bench.make(asker())
    bench.wait_bound("asker-0", "node1")
    bench.make(
        pod("late", "0=node1:0\n9=node9:0\n", literal("0"), annotations={**watching, "agentaflow.gpu/index": "0"})
    )
    bench.wait_bound("late", "node1")

    twin = {**watching, "agentaflow.gpu/index": "0"}
    bench.make(pod("twin", "0=node1:0\n9=node9:0\n", literal("0"), annotations=twin))
    assert f"{bench.namespace}/late" in bench.wait_message("twin", "IndexHeld: ")


@pytest.mark.promise("limit-1", "env-9")
def test_a_limit_is_answered_by_the_device_plugin(bench: Bench, scheduler: Command) -> None:
    """We choose the node, the plugin the cards: the pod is told numbers as its container will see them."""
    bench.node("node1", room={"nvidia.com/gpu": "8"})
    bench.make(asker("0=node1:6,7\n", reading(), limits={"nvidia.com/gpu": "2"}))

    placed = bench.placed("asker-0")

    assert (placed.node, placed.devices, placed.index) == ("node1", "0,1", 0)


@pytest.mark.promise("limit-5")
def test_without_a_device_plugin_a_limit_is_only_a_count(bench: Bench, scheduler: Command) -> None:
    """On kind nobody advertises cards: the line's devices are held by name."""
    bench.add(CARDS)
    bench.make(asker("0=node1:1\n", reading(), limits={"nvidia.com/gpu": "1"}))
    assert bench.placed("asker-0").devices == "1"

    bench.make(holder("0=node1:1\n7=node7:0\n", literal("1")))

    assert f"{bench.namespace}/asker-0" in bench.wait_message("holder-0", "GpuHeld: ")


@pytest.mark.promise("limit-3")
def test_a_limit_in_two_containers_is_refused(bench: Bench, scheduler: Command) -> None:
    """Both containers would read the same numbers and mean other cards."""
    bench.node("node1", room={"nvidia.com/gpu": "8"})
    body = asker("0=node1:0,1\n", reading(), limits={"nvidia.com/gpu": "1"})
    body["spec"]["containers"].append({**body["spec"]["containers"][0], "name": "second"})
    bench.make(body)

    message = bench.wait_message("asker-0", "RequestInvalid: ")

    assert "second" in message
    assert "nvidia.com/gpu" in message


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
def test_what_we_do_not_decide_is_refused_by_its_field(
    bench: Bench, scheduler: Command, field: str, more: dict[str, Any]
) -> None:
    """A wish that would be ignored is told, never ignored."""
    bench.node("node1")
    bench.make(asker(**more))

    assert field in bench.wait_message("asker-0", "Unsupported: ")


@pytest.mark.promise("gate-1", "gate-3")
@pytest.mark.parametrize(
    ("reason", "text", "env"),
    [
        ("EnvNotInjected", "0=node1:0\n", []),
        ("EnvConflict", "0=node1:0\n", literal("1")),
        ("EnvConflict", "0=node1:\n", literal("0")),
    ],
)
def test_the_gate_waits_for_the_pod_to_be_made_anew(
    bench: Bench, scheduler: Command, reason: str, text: str, env: list[dict[str, object]]
) -> None:
    """An environment cannot be changed after creation: the cure is a new pod, and it is bound at once."""
    bench.node("node1")
    bench.make(asker(text, env))
    assert "delete the pod" in bench.wait_message("asker-0", f"{reason}: ") or reason == "EnvConflict"

    bench.delete("asker-0")
    right = text.partition(":")[2].strip()
    bench.make(asker(text, literal(right)))

    assert bench.placed("asker-0", seconds=3).devices == right


@pytest.mark.promise("fit-7")
def test_ports_of_other_protocols_and_addresses_do_not_collide(bench: Bench, scheduler: Command) -> None:
    """8080/UDP is not 8080/TCP, and 127.0.0.1 is not 127.0.0.2."""
    bench.node("node1")
    for number, (protocol, address) in enumerate((("TCP", "127.0.0.1"), ("UDP", "127.0.0.1"), ("TCP", "127.0.0.2"))):
        body = pod(f"port-{number}", "".join(f"{i}=node1:{i}\n" for i in range(3)), literal(str(number)))
        port = {"containerPort": 80, "hostPort": 8080, "protocol": protocol, "hostIP": address}
        body["spec"]["containers"][0]["ports"] = [port]
        bench.make(body)

    for number in range(3):
        bench.wait_bound(f"port-{number}", "node1")


@pytest.mark.promise("fit-7", "fit-10")
def test_one_port_on_two_addresses_is_held_on_both(bench: Bench, scheduler: Command) -> None:
    """Also by a pod of another scheduler; when that has gone, both are free."""
    bench.node("node1")
    busy = foreign()
    addresses = ("10.0.0.1", "10.0.0.2")
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": address} for address in addresses]
    busy["spec"]["containers"][0]["ports"] = ports
    bench.make(busy)
    for number, port in enumerate(ports):
        body = pod(f"port-{number}", "0=node1:\n1=node1:\n", literal(""))
        body["spec"]["containers"][0]["ports"] = [port]
        bench.make(body)
        assert f"{bench.namespace}/foreign-0" in bench.wait_message(f"port-{number}", "PortInUse: ")

    bench.delete("foreign-0")

    assert bench.indices("port-0", "port-1") == [0, 1]


@pytest.mark.promise("fit-4", "fit-3")
def test_what_is_tolerated_is_no_obstacle(bench: Bench, scheduler: Command) -> None:
    """A pod that tolerates cordoned nodes, as DaemonSets' pods do, and the taint, is placed."""
    taint = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
    bench.add(node("node1", unschedulable=True, taints=(taint,)))
    bench.make(asker(tolerations=[{"operator": "Exists"}]))

    bench.wait_bound("asker-0", "node1")


@pytest.mark.promise("hold-7")
def test_a_bound_pod_that_reads_a_missing_annotation_is_drift(bench: Bench, scheduler: Command) -> None:
    """It sees no GPU and holds none; the metric says that it exists."""
    bench.node("node1")
    bench.make(holder(env=reading(), nodeName="node1"))
    eventually("the drift is counted", lambda: scheduler.metric("gpu_scheduler_drift") == 1)

    bench.make(asker())

    bench.wait_bound("asker-0", "node1")
