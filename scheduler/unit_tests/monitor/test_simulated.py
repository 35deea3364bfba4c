"""GPUs that a file declares, and the load that pods put on them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.placement import read_assignment
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import let_go
from gpu_scheduler.monitor.simulated import MOST, NodePods, SimulatedSource, declared
from tests.messages import text_of

FOUR = b'{"node1": [{"count": 4, "model": "A100-40GB", "memoryTotalMiB": 40960}]}'
TWO_KINDS = b"""\
# Edited by people.
node1:
  - {count: 2, model: A100-80GB, memoryTotalMiB: 81920, utilization: {1: 55}, temperature: {1: 91}, power: {0: 280}}
  - {count: 1, model: L4-24GB, memoryTotalMiB: 24576, health: {2: degraded}}
node2: []
"""


def test_groups_make_gpus() -> None:
    """In their order, with consecutive indices. UUIDs are the same at every start, and others on every node."""
    gpus = declared(TWO_KINDS, "node1")

    assert [(gpu.index, gpu.model, gpu.total, gpu.health, gpu.utilization) for gpu in gpus] == [
        (0, "A100-80GB", 81920, Health.HEALTHY, None),
        (1, "A100-80GB", 81920, Health.HEALTHY, 55),
        (2, "L4-24GB", 24576, Health.DEGRADED, None),
    ]
    assert gpus == declared(TWO_KINDS, "node1")
    assert gpus[2].why == "the simulated inventory says so"
    assert [gpu.bus for gpu in gpus] == ["00000000:00:00.0", "00000000:01:00.0", "00000000:02:00.0"]
    four = declared(FOUR, "node1") + declared(FOUR.replace(b"node1", b"node2"), "node2")
    assert len({gpu.uuid for gpu in four}) == 8
    assert four[0].uuid == "GPU-a05c6894-afaa-56aa-b3a2-dc33db7d311a"


def test_a_gpu_may_have_another_uuid() -> None:
    """A simulated reboot numbers two GPUs the other way round."""
    before = declared(FOUR, "node1")
    swapped = FOUR.replace(b"}]", f', "uuid": {{"0": "{before[1].uuid}", "1": "{before[0].uuid}"}}}}]'.encode())
    after = declared(swapped, "node1")

    assert [gpu.uuid for gpu in after] == [before[number].uuid for number in (1, 0, 2, 3)]


def test_an_index_may_have_quotes() -> None:
    """JSON has no other keys."""
    text = b'{"node1": [{"count": 2, "model": "L4", "memoryTotalMiB": 1, "health": {"1": "unhealthy"}}]}'

    assert [gpu.health for gpu in declared(text, "node1")] == [Health.HEALTHY, Health.UNHEALTHY]


@pytest.mark.parametrize("node", ["node2", "node3"])
def test_a_node_may_have_none(node: str) -> None:
    """It is declared without GPUs, or not declared at all."""
    assert declared(TWO_KINDS, node) == ()


UNUSABLE = text_of("monitor: an inventory cannot be used")
GROUP = b"node1: [{count: 2, model: L4, memoryTotalMiB: 24576}]"
WRONG = {
    "not YAML": (b"[", f"{UNUSABLE} while parsing"),
    "an empty file": (b"", "Expected `object`, got `null`"),
    "not UTF-8": (b"\xff", "invalid leading UTF-8 octet"),
    "a word": (b"node1: many", "Expected `array`, got `str`"),
    "a negative count": (GROUP.replace(b"2", b"-1", 1), "Expected `int` >= 0"),
    "too many in a group": (GROUP.replace(b"count: 2", b"count: 257"), "Expected `int` <= 256"),
    "no memory": (GROUP.replace(b", memoryTotalMiB: 24576", b""), "missing required field `memoryTotalMiB`"),
    "a memory of zero": (GROUP.replace(b"24576", b"0"), "Expected `int` >= 1"),
    "an unknown field": (GROUP.replace(b"model", b"colour: red, model"), "unknown field `colour`"),
    "an unknown health": (GROUP.replace(b"model", b"health: {0: ill}, model"), "Invalid enum value 'ill'"),
    "too high a utilization": (GROUP.replace(b"model", b"utilization: {0: 101}, model"), "Expected `int` <= 100"),
    "too high a temperature": (GROUP.replace(b"model", b"temperature: {0: 1001}, model"), "Expected `int` <= 1000"),
    "a negative power": (GROUP.replace(b"model", b"power: {0: -1}, model"), "Expected `int` >= 0"),
    "a power of a GPU outside its group": (
        GROUP.replace(b"model", b"power: {2: 1}, model"),
        "node1 has no GPU 2 in its group of L4, which has 0 to 1",
    ),
    "an index outside its group": (
        GROUP.replace(b"model", b"health: {2: degraded}, model"),
        "node1 has no GPU 2 in its group of L4, which has 0 to 1",
    ),
    "an index of an empty group": (
        GROUP.replace(b"count: 2", b"count: 0, health: {0: degraded}"),
        "node1 has no GPU 0 in its group of L4, which has none",
    ),
    "a UUID that a map cannot name": (GROUP.replace(b"model", b"uuid: {0: GPU-1}, model"), "matching regex"),
    "a UUID of another GPU": (
        GROUP.replace(b"model", b"uuid: {1: GPU-a05c6894-afaa-56aa-b3a2-dc33db7d311a}, model"),
        "2 GPUs have UUID GPU-a05c6894-afaa-56aa-b3a2-dc33db7d311a: each has its own",
    ),
    "a model with a line break": (GROUP.replace(b"L4", b'"a\\nb"'), "matching regex"),
    "YAML that refers to itself": (b"node1: &all [*all]", "Expected `object`, got `array`"),
    "YAML that runs code": (b"!!python/object:os.system x", "could not determine a constructor"),
    "lists in lists": (b"[" * 5000, UNUSABLE),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_a_wrong_inventory_is_one_sentence_with_an_example(text: bytes, sentence: str) -> None:
    """No part of a wrong inventory is used."""
    with pytest.raises(UnreadableError) as caught:
        declared(text, "node1")

    assert sentence in str(caught.value)
    assert str(caught.value).endswith(
        '(example: {"node1": [{"count": 4, "model": "A100-40GB", "memoryTotalMiB": 40960}]})'
    )
    assert "\n" not in str(caught.value)


def test_a_node_has_a_limit() -> None:
    """The simulated GPUs must fit into an annotation."""
    text = GROUP[:-1] + b", " + GROUP[GROUP.index(b"{") :]
    with pytest.raises(UnreadableError, match=f"node1 has {MOST + 2} GPUs: at most {MOST} can be simulated"):
        declared(text.replace(b"count: 2", b"count: 256", 1), "node1")


def pod(name: str, *, node: str | None = "node1", phase: str = "Running", literal: str = "", **notes: str) -> Pod:
    """Return a bound pod; `notes` are annotations of ours, `literal` is its container's CUDA_VISIBLE_DEVICES."""
    annotations = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in notes.items()}
    env = (EnvVar("CUDA_VISIBLE_DEVICES", literal),) if literal else None
    environment = environment_of((Container(ContainerKind.CONTAINER, 0, "main", env),))
    text = PodText("default", name, bound=node is not None, annotations=annotations, environment=environment)
    return Pod(
        PodRef("default", name, f"uid-{name}"),
        read_request(text),
        node=node,
        phase=phase,
        assignment=read_assignment(annotations),
        environment=environment,
    )


def by_strategy(name: str, devices: str, **notes: str) -> Pod:
    return pod(name, assigned_devices=devices, count=str(len(devices.split(","))), **notes)


MAPPED = replace(
    pod("mapped", assigned_devices="1"),
    request=read_request(PodText("default", "mapped", bound=True, annotations={"gpu-scheduling-map": "0=node1:1"})),
)
SHARED = {"exclusive": "false", "memory": "10240"}
UUID = declared(FOUR, "node1")[2].uuid or ""

# pods → index → (memory, utilization)
LOADS: dict[str, tuple[tuple[Pod, ...], dict[int, tuple[int, int]]]] = {
    "no pod": ((), {}),
    "exclusive, with memory": ((by_strategy("a", "1", memory="8192"),), {1: (8192, 70)}),
    "exclusive, on two devices, without memory": ((by_strategy("a", "0,3"),), {0: (40960, 70), 3: (40960, 70)}),
    "a share": ((by_strategy("a", "0", **SHARED),), {0: (10240, 17)}),
    "two shares": ((by_strategy("a", "0", **SHARED), by_strategy("b", "0", **SHARED)), {0: (20480, 34)}),
    "by the map": ((MAPPED,), {1: (40960, 70)}),
    "a literal": ((pod("a", literal="2"),), {2: (40960, 70)}),
    "a UUID": ((pod("a", literal=UUID),), {2: (40960, 70)}),
    "a map and a literal on one device": ((MAPPED, pod("b", literal="1")), {1: (40960, 100)}),
    "more memory than the device has": ((by_strategy("a", "0", memory="99999"),), {0: (40960, 70)}),
    "a device that the node does not have": ((pod("a", literal="7"),), {}),
    "an observer": ((pod("a", assigned_devices="1", observer="true"),), {}),
    "a finished pod": ((pod("a", literal="1", phase="Succeeded"),), {}),
    "a pod on another node": ((pod("a", literal="1", node="node2"),), {}),
}


@pytest.mark.parametrize(("pods", "loads"), LOADS.values(), ids=LOADS)
def test_load_follows_the_pods(pods: tuple[Pod, ...], loads: dict[int, tuple[int, int]]) -> None:
    """A pod takes its own memory, else all of a device. Alone it uses 70 % of it, a sharing pod its share of that."""
    here = NodePods("node1")
    for each in pods:
        here.applied(each)

    assert here.loads(declared(FOUR, "node1")) == loads


@pytest.mark.promise("monitor-4")
def test_load_goes_with_the_pods() -> None:
    """When a pod has finished, or is gone."""
    here = NodePods("node1")
    gpus = declared(FOUR, "node1")
    one = pod("a", literal="1")
    here.applied(one)
    assert here.loads(gpus)
    here.applied(replace(one, phase="Failed"))
    assert here.loads(gpus) == {}
    here.applied(one)
    here.forgotten(one)
    assert here.loads(gpus) == {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(TWO_KINDS)
    return path


def declare(file: Path, text: bytes) -> None:
    file.write_bytes(text)


def source(file: Path, *pods: Pod, cordons: tuple[Cordon, ...] = ()) -> SimulatedSource:
    """Return a source of node1 with these pods."""
    here = NodePods("node1")
    for each in pods:
        here.applied(each)
    return SimulatedSource(file, "node1", here, lambda: cordons)


@pytest.mark.promise("monitor-4")
async def test_the_file_is_read_anew_at_each_read(file: Path) -> None:
    """So health can be changed at run time. The file's utilization takes precedence over the pods'."""
    reader = source(file, pod("a", literal="0"), pod("b", literal="1"))
    first = await reader.read()
    declare(file, TWO_KINDS.replace(b"degraded", b"unhealthy"))
    second = await reader.read()

    assert [(gpu.used, gpu.utilization) for gpu in first] == [(81920, 70), (81920, 55), (0, 0)]
    assert [gpu.health for gpu in second] == [Health.HEALTHY, Health.HEALTHY, Health.UNHEALTHY]


async def test_temperature_and_power_follow_the_load(file: Path) -> None:
    """An idle GPU has 30 °C and 50 W, a fully utilized one 80 °C and 300 W. The file's values take precedence."""
    reader = source(file, pod("a", literal="0"))
    first = await reader.read()
    declare(file, GROUP.replace(b"model", b"utilization: {1: 100}, temperature: {0: 0}, power: {0: 0}, model"))
    second = await reader.read()

    assert [(gpu.utilization, gpu.temperature, gpu.power) for gpu in first] == [
        (70, 65, 280),
        (55, 91, 187),
        (0, 30, 50),
    ]
    assert [(gpu.utilization, gpu.temperature, gpu.power) for gpu in second] == [(70, 0, 0), (100, 80, 300)]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (Path.unlink, r"cannot read inventory .*inventory\.yaml: No such file"),
        (lambda file: file.write_text("node1: many"), UNUSABLE),
    ],
    ids=["missing", "broken"],
)
async def test_a_file_that_cannot_be_read_gives_no_reading(
    file: Path, damage: Callable[[Path], Any], sentence: str
) -> None:
    """The node is stale until the file is right again."""
    damage(file)

    with pytest.raises(UnreadableError, match=sentence):
        await source(file).read()


async def test_a_cordoned_gpu_is_shown_as_let_go(file: Path) -> None:
    """It keeps its identity and its health, and has no load."""
    loaded = pod("a", literal="0")
    before = await source(file, loaded).read()
    gpus = await source(file, loaded, cordons=(Cordon("2"), Cordon(before[0].uuid or ""))).read()

    assert gpus == (let_go(before[0]), before[1], let_go(before[2]))
    assert [(gpu.health, gpu.used, gpu.released) for gpu in (before[2], gpus[2])] == [
        (Health.DEGRADED, 0, False),
        (Health.DEGRADED, None, True),
    ]
