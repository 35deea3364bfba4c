"""Is it true: what map and Binding say of a pod, what the ledger holds for it, and what its containers have.

LAW: pure functions. A container whose environment was not read is never `ok`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from gpu_scheduler import names
from gpu_scheduler.core.filters.container_claims import gpu_containers
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold, drifts
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.container_env import Container, ContainerKind
from gpu_scheduler.core.pods.count_request import MAX_DEVICES
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.visible_devices import keepable
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import number_of

View = dict[str, Any]
ContainerRef = tuple[PodRef, str]
"""A pod, and the name of one of its containers."""

_DRIFT: Final = f"drift: it reads its GPUs from annotation {names.ASSIGNED_DEVICES}, which it does not have"
_NOT_KEPT: Final = (Container(ContainerKind.CONTAINER, 0, "", None),)
"""In place of the containers of a pod that has too many: they are not in memory."""
_DEVICE_FILE: Final = re.compile(r"nvidia[0-9]+")
_UNKNOWN: Final = "neither a line of its map nor its Binding says its GPUs"


class Verdict(StrEnum):
    """The result for one container."""

    OK = "ok"
    DIFFERS = "differs"
    UNSEEN = "unseen"


@immutable
class Reading:
    """The CUDA variables in the environment of a container's first process; None for one that is not set.

    `unseen` says why the environment was not read; it is empty if it was. `unlisted` says so of the device files.
    """

    devices: str | None = None
    order: str | None = None
    unseen: str = ""
    files: int | None = None
    """How many GPUs have a device file in the container; None if that was not read."""
    unlisted: str = ""


@immutable
class ContainerState:
    """The state of one container."""

    running: bool = False
    why: str = "no status yet"
    """Why it does not run, in the kubelet's word."""
    ended: bool = False
    """It has ended and never starts again."""
    not_first: str = ""
    """Why process 1 that the container sees is not its own first process; empty if it is."""


@immutable
class PodDetails:
    """What a pod's object has beside the values that decisions read."""

    index: int | None
    """The index that the pod's own text says, whatever its Binding wrote."""
    containers: Mapping[str, ContainerState]
    """By the container's name."""


@immutable
class Expected:
    """The node and the devices that a pod must have. `source` is `map` or `Binding`; None if nothing says them."""

    node: str | None = None
    devices: tuple[str, ...] | None = None
    source: str | None = None


class Records:
    """Nodes and ledger, and what the ledger has of each pod."""

    def __init__(self, nodes: Nodes, ledger: Ledger) -> None:
        """Sort holds and conflicts by pod."""
        self._nodes = {node.name: node for node in nodes}
        self.resolve = nodes.resolve
        self._ledger = ledger
        self._holds = {hold.ref.uid: hold for hold in ledger}
        self._conflicts: dict[str, list[str]] = {}
        for each in ledger.conflicts():
            for one, other in ((each.first, each.second), (each.second, each.first)):
                text = f"GPU {each.device} of {each.node} is also held by {other.holder}"
                self._conflicts.setdefault(one.ref.uid, []).append(text)

    def node(self, pod: Pod) -> Node | None:
        """Return the pod's node; None if it has none, or one that does not exist."""
        return self._nodes.get(pod.node or "")

    def held(self, pod: Pod) -> tuple[tuple[str, ...], int]:
        """Return the devices that the pod holds, and how many more a device plugin chose."""
        hold: Hold | None = self._holds.get(pod.ref.uid)
        if hold is None:
            return (), 0
        unnamed = self._ledger.devices.unnamed(hold)
        return () if unnamed else hold.devices, unnamed

    def moved(self, pod: Pod) -> Iterable[str]:
        """Return a sentence for each GPU of the pod that its name does not mean any more."""
        hold = self._holds.get(pod.ref.uid)
        return () if hold is None else map(str, self._ledger.devices.moved_of(hold))

    def held_twice(self, pod: Pod) -> Iterator[str]:
        """Yield a sentence for each device and index of the pod that another pod holds against the rules."""
        yield from self._conflicts.get(pod.ref.uid, ())
        line = pod.request.line
        if line is not None and line.index is not None:
            for uid in self._ledger.indices.holders(line.workload, line.index):
                if uid != pod.ref.uid:
                    yield f"index {line.index} of its workload is also held by {self._holds[uid].ref}"


def read_environment(data: bytes) -> Reading:
    """Read `/proc/1/environ`: entries `NAME=VALUE`, each with a zero byte at its end."""
    entries = data.decode(errors="replace").removesuffix("\0").split("\0")
    if not all("=" in entry for entry in entries):
        # A process that changes its title writes over the memory that this file shows.
        return Reading(unseen="its first process has no environment, or has written over it")
    # The first entry of a name is valid, as for getenv.
    variables = dict(entry.split("=", 1) for entry in reversed(entries))
    return Reading(variables.get(names.VISIBLE_DEVICES), variables.get(names.DEVICE_ORDER))


def count_files(data: bytes) -> int:
    """Count the GPUs in what `ls /dev` prints: their files have a number, the others of the driver a word."""
    return sum(_DEVICE_FILE.fullmatch(name) is not None for name in data.decode(errors="replace").split())


def sort_out(
    pods: Iterable[Pod], states: Mapping[str, PodDetails], records: Records
) -> tuple[dict[ContainerRef, Reading], list[ContainerRef]]:
    """Return a reading for each container that cannot be read, and the containers to read. `states` are by uid.

    A container that has ended for good is in neither.
    """
    unseen: dict[ContainerRef, Reading] = {}
    readable: list[ContainerRef] = []
    for pod in pods:
        known = states[pod.ref.uid].containers
        for container in pod.environment.containers or _NOT_KEPT:
            state = known.get(container.name, ContainerState())
            why = _unreadable(pod, state, records)
            if why and not state.ended:
                unseen[pod.ref, container.name] = Reading(unseen=why)
            elif not state.ended:
                readable.append((pod.ref, container.name))
    return unseen, readable


def _unreadable(pod: Pod, state: ContainerState, records: Records) -> str:
    """Return why the environment of the container's first process cannot be read; empty if it can."""
    if not pod.environment.containers:
        return str(pod.excess)
    if not pod.bound:
        return "its pod has no node"
    if pod.finished:
        return f"its pod has ended ({pod.phase})"
    node = records.node(pod)
    if node is None or not node.ready:
        return f"node {pod.node} is not Ready"
    return state.not_first if state.running else f"it does not run ({state.why})"


def pod_views(
    pod: Pod, index: int | None, records: Records, readings: Mapping[ContainerRef, Reading]
) -> Iterator[View]:
    """Yield a view for each container of the pod that has a reading. `index` is that of the pod's PodDetails."""
    expected = expected_of(pod, records)
    live = pod.bound and not pod.finished
    faults = tuple(_faults(pod, index, expected, records)) if live else ()
    devices, unnamed = records.held(pod)
    users = gpu_containers(pod) or _NOT_KEPT
    for container in pod.environment.containers or _NOT_KEPT:
        reading = readings.get((pod.ref, container.name))
        if reading is not None:
            has_gpus = container in users
            value = _value(pod, container, expected) if has_gpus else None
            found = (*faults, *(_differences(container, reading, value) if has_gpus else ())) if live else ()
            if live and pod.isolated:
                found = (*found, *_wrong_files(container, reading, expected if has_gpus else Expected()))
            unseen = reading.unseen or reading.unlisted
            yield {
                "namespace": pod.ref.namespace,
                "name": pod.ref.name,
                "uid": pod.ref.uid,
                "container": container.name,
                "observer": pod.request.observer,
                "node": pod.node,
                "expected": {"node": expected.node, "visibleDevices": value, "source": expected.source},
                "held": {"devices": list(devices), "unnamed": unnamed},
                "actual": None if reading.unseen else _actual(reading),
                "verdict": Verdict.DIFFERS if found else Verdict.UNSEEN if unseen else Verdict.OK,
                "why": "; ".join(filter(None, (*found, unseen))) or None,
            }


def _actual(reading: Reading) -> View:
    return {"visibleDevices": reading.devices, "deviceOrder": reading.order, "deviceFiles": reading.files}


def expected_of(pod: Pod, records: Records) -> Expected:
    """Return what a pod must have: what its line of the map says or, if it has none, its Binding.

    If a device plugin chooses the devices, the container numbers them from 0, as the Binding says. It says the UUIDs of
    a pod with ResourceClaims too, unless the node's inventory has them.
    """
    line, assigned, node = pod.request.line, pod.assignment, records.node(pod)
    slot = None if line is None else line.slot
    if slot is None:
        return Expected() if assigned.devices is None else Expected(assigned.node, assigned.devices, "Binding")
    meant = records.resolve(slot.node)
    name = meant.name if isinstance(meant, Node) else slot.node
    if node is not None and node.advertised is not None and pod.gpu_limit:
        return Expected(name, tuple(map(str, range(min(pod.gpu_limit, MAX_DEVICES)))), "Binding")
    if pod.isolated:
        # CUDA finds the devices of ResourceClaims by their UUIDs.
        known = None if node is None or node.inventory is None else node.inventory.uuids(slot.devices)
        return Expected(name, assigned.devices, "Binding") if known is None else Expected(name, known, "map")
    return Expected(name, slot.devices, "map")


def _faults(pod: Pod, index: int | None, expected: Expected, records: Records) -> Iterator[str]:
    """Yield what is wrong with the pod, whatever its containers have."""
    assigned, line = pod.assignment, pod.request.line
    if expected.node not in {None, pod.node}:
        yield f"wrong node instead of {expected.node}"
    elif assigned.node not in {None, pod.node}:
        yield f"annotation {names.ASSIGNED_NODE} says {assigned.node}"
    if drifts(pod):
        yield _DRIFT
    elif expected.devices is None:
        yield _UNKNOWN
    elif assigned.devices not in {None, expected.devices}:
        yield f"annotation {names.ASSIGNED_DEVICES} says {_shown(assigned.devices)}"
    if line is not None and index is not None and line.index != index:
        yield f"wrong index: annotation {names.ASSIGNED_INDEX} does not say {index}, its own"
    devices, unnamed = records.held(pod)
    wanted = () if pod.request.observer else expected.devices or ()
    if not unnamed and not set(wanted).issubset(devices):
        yield f"the ledger holds {_shown(devices)}"
    yield from (f"drift: {each}" for each in records.moved(pod))
    yield from records.held_twice(pod)


def _value(pod: Pod, container: Container, expected: Expected) -> str | None:
    """Return the CUDA_VISIBLE_DEVICES that the container must have; None if nothing says it.

    A pod that keeps its environment keeps the literal value of each container.
    """
    # If two entries have one name, the last one is valid.
    for entry in reversed(container.env or ()):
        if entry.name == names.VISIBLE_DEVICES:
            if pod.request.keep_env and keepable(entry):
                return entry.value
            break
    return None if expected.devices is None else ",".join(expected.devices)


def _differences(container: Container, reading: Reading, value: str | None) -> Iterator[str]:
    """Yield what is wrong in the container: in its environment, if that was read, and in its spec."""
    if value is not None and not reading.unseen and reading.devices != value:
        yield "wrong devices"
    if not reading.unseen and reading.order != names.PCI_BUS_ID:
        yield f"{names.DEVICE_ORDER} is not {names.PCI_BUS_ID}"
    for name, wanted in ((names.VISIBLE_DEVICES, value), (names.DEVICE_ORDER, names.PCI_BUS_ID)):
        written = {entry.name: entry.value for entry in container.env or ()}.get(name)
        if written is not None and wanted is not None and written != wanted:
            yield f"its spec says {name}={written}"


def _wrong_files(container: Container, reading: Reading, expected: Expected) -> Iterator[str]:
    """Yield what is wrong with the device files of a container whose kubelet gives it those of its claims alone.

    Their number is compared: on hardware, the number in a name is not the GPU's index.
    """
    given = 0 if container.kind is ContainerKind.EPHEMERAL else len(expected.devices or ())
    if reading.files not in {None, given}:
        yield f"it has device files of {number_of(reading.files or 0, 'GPU')} instead of {given}"


def _shown(devices: tuple[str, ...] | None) -> str:
    return ",".join(devices or ()) or "no GPU"
