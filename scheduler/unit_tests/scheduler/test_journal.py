"""The journal of decisions: its lines, its limit, and that a replay of it gives the same decisions."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpu_scheduler.core.decision import BY_MAP, Bind, Refuse
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceId, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm, Taint
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.scheduler.journal import FileJournal, JournalError
from gpu_scheduler.scheduler.ports import Bound, Dropped, Failed, InputKind, NotSent, Ports, Unknown
from gpu_scheduler.scheduler.replay import Replay
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from unit_tests.core.build import FIELD_REF, PCI, bound, container, node, pod
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.scheduler.ports import BindResult

MAPS = ("0=node1:0\n1=node2:0\n2=node1:1,2\n", "0=node2:0\n1=node1:1\n", "0=node1:x\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_input_and_every_decision_has_a_line(tmp_path: Path) -> None:
    """The first line has the policy. Then come received objects and decisions, with the resource versions read."""
    path = tmp_path / "journal"
    journal = FileJournal(path, Policy(), wall=lambda: 1.5)
    asker = pod("train-0")
    reading = journal.reading("pods", lambda _: ("key", asker))

    assert reading(msgspec.Raw(b'{"metadata":{"resourceVersion":"7"}}')) == ("key", asker)
    journal.received(InputKind.NODE, node("node1", taints=(Taint("dedicated", "ml", "NoSchedule"),)))
    journal.received(InputKind.POD, asker, gone=True)
    journal.decided(
        asker.ref, Bind(asker.ref, Placement("node1", ("0", "1"), 0), "Successfully assigned", BY_MAP, "index 0")
    )
    journal.decided(asker.ref, Refuse(asker.ref, Reason.MAP_INVALID, "MapInvalid: line 1", "MapInvalid"))
    journal.decided(asker.ref, None)
    journal.close()

    began, seen, gone, bind, refused, nothing = read(path)
    assert (began["at"], began["began"], began["policy"]["sharing"]) == (1.5, "gpu-scheduler", "same-workload")
    assert (seen["received"], seen["gone"], seen["value"]["name"]) == ("node", False, "node1")
    assert seen["value"]["taints"] == [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
    assert (gone["received"], gone["gone"], gone["value"]["ref"]["uid"]) == ("pod", True, asker.ref.uid)
    assert (bind["decided"], bind["uid"], bind["versions"]) == ("default/train-0", asker.ref.uid, {"pods": "7"})
    assert (bind["verdict"], bind["placement"]["node"], bind["placement"]["devices"]) == ("bind", "node1", ["0", "1"])
    assert (refused["verdict"], refused["reason"], refused["message"]) == ("refuse", "MapInvalid", "MapInvalid: line 1")
    assert nothing["verdict"] == "nothing"


def test_the_journal_of_the_process_before_is_kept(tmp_path: Path) -> None:
    """A file has the lines of one process since its start. The file of the process before it is kept too."""
    path = tmp_path / "journal"
    for name in ("first", "second", "third"):
        FileJournal(path, Policy(scheduler_name=name)).close()

    assert [line["began"] for line in read(path)] == ["third"]
    assert [line["began"] for line in read(tmp_path / "journal.1")] == ["second"]


def test_a_journal_ends_at_its_limit(tmp_path: Path) -> None:
    """No line is cut, and the scheduler continues."""
    path = tmp_path / "journal"
    journal = FileJournal(path, Policy(), limit=1000)

    for _ in range(100):
        journal.received(InputKind.STRATEGY, Strategy.BEST_FIT)

    assert 800 < path.stat().st_size <= 1000
    assert read(path)[-1]["value"] == "best_fit"
    journal.close()


def test_a_failed_write_ends_the_journal_and_nothing_else(tmp_path: Path) -> None:
    """A full disk, a line that is written in part, a value that is no text: no line follows a missing one."""
    full = FileJournal(Path("/dev/full"), Policy())
    odd = FileJournal(tmp_path / "odd", Policy())
    odd.received(InputKind.STRATEGY, "\ud800")
    cut = FileJournal(tmp_path / "cut", Policy())
    assert cut._file is not None
    cut._file.close()
    cut._file = Cut(tmp_path / "cut", "ab")
    cut.received(InputKind.STRATEGY, Strategy.BEST_FIT)

    for journal in (full, odd, cut):
        journal.received(InputKind.STRATEGY, Strategy.BEST_FIT)
        assert journal._file is None
        journal.close()
    assert [(tmp_path / name).read_bytes().count(b"\n") for name in ("odd", "cut")] == [1, 1]


class Cut(FileIO):
    """A file that writes only the first half of each text."""

    def write(self, text: Any) -> int:
        return super().write(text[: len(text) // 2])


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """The error is one sentence with variable, value and cause."""
    with pytest.raises(JournalError, match=r'^cannot use DECISION_JOURNAL ".*/none/journal": No such file'):
        FileJournal(tmp_path / "none" / "journal", Policy())


DRIVER = "gpu.nvidia.com"


class RandomLoop:
    """A scheduling loop with fakes that gets random events."""

    def __init__(self, seed: int, path: Path) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - it must be repeatable, not secret
        self.now = 1000.0
        self.journal = FileJournal(path, Policy())
        self.binder = FakeBinder()
        recorder = FakeRecorder()
        self.loop = Scheduler(
            Policy(),
            Ports(
                self.binder,
                FakeClaims(),
                FakeAllocator(),
                FakeEventRecorder(),
                recorder,
                recorder,
                recorder,
                self.journal,
            ),
            timings=Timings(interval=60, audit=40, resync=20),
            clock=lambda: self.now,
            wall=lambda: 1809172800.0,
        )
        self.pods: dict[str, Pod] = {}
        self.number = 0
        self.actions: tuple[Callable[[], object], ...] = (
            self.create,
            self.create,
            self.create,
            self.show,
            self.show,
            self.delete,
            self.change_node,
            self.change_storage,
            self.change_slice,
            self.change_claim,
            self.set_strategy,
            self.set_limits,
            self.repair,
        )

    async def live(self, times: int) -> None:
        task = asyncio.create_task(self.loop.run())
        for _ in range(times):
            answers: list[BindResult] = [Bound(), Unknown("?"), Failed("BindFailed: no"), NotSent("no"), Dropped("no")]
            self.binder.results = self.dice.choices(answers, (4, 2, 3, 2, 2), k=8)
            self.dice.choice(self.actions)()
            self.now += self.dice.choice((0.0, 0.5, 3.0))
            self.loop._wakeup.set()
            for _ in range(20):
                await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self.journal.close()

    def create(self) -> None:
        self.number += 1
        text = self.dice.choice((*MAPS, None))
        counted = {} if text else {"agentaflow.gpu/count": "1"}
        claims = ("data",) if self.dice.random() < 0.2 else ()
        if text is None or self.dice.random() < 0.6:
            containers = (container((FIELD_REF, PCI)),)
            name = f"pod-bcd{self.number % 10}{self.number // 10 % 10}"
            made = pod(name, text, annotations=counted, claims=claims, containers=containers, generate_name="pod-")
        else:
            made = pod(f"pod-{self.number % 3}", text, claims=claims)
        made = replace(made, ref=replace(made.ref, uid=str(self.number)))
        self.pods[made.ref.uid] = made
        self.loop.pods.applied(made)

    def show(self) -> None:
        if not self.pods:
            return
        uid = self.dice.choice(sorted(self.pods))
        state, was = self.loop.pod_states.get(uid), self.pods[uid]
        if state is not None and state.assumed is not None and not was.bound:
            placement = state.assumed.placement
            was = bound(was, placement, phase=was.phase)
        elif was.bound:
            was = replace(was, phase=self.dice.choice(("Running", "Succeeded")))
        else:
            was = replace(was, deleting_since="2026-01-01T00:00:00Z")
        self.pods[uid] = was
        self.loop.pods.applied(was)

    def delete(self) -> None:
        if self.pods:
            self.loop.pods.forgotten(self.pods.pop(self.dice.choice(sorted(self.pods))))

    def change_node(self) -> None:
        name, cache = self.dice.choice(("node1", "node2")), self.loop.cache
        devices = tuple(Device(index, f"GPU-{name}-{index}", (), "A100", 40960) for index in range(3))
        readings = {
            0: DeviceReading(self.dice.randrange(40000), self.dice.randrange(100), self.dice.choice(list(Health)))
        }
        changed = node(name, ready=self.dice.random() < 0.9, inventory=Inventory(devices), readings=readings)
        if self.dice.random() < 0.3:
            cache.monitors.applied(MonitorLease(name, f"2027-05-01T00:00:{self.dice.randrange(60):02d}Z", 10.0))
        elif self.dice.random() < 0.1:
            cache.nodes.forgotten(changed)
        else:
            cache.nodes.applied(changed)

    def change_storage(self) -> None:
        cache = self.loop.cache
        cache.classes.applied(StorageClass("fast", waits_for_consumer=True))
        cache.volumes.applied(Volume("disk", (NodeSelectorTerm(),) if self.dice.random() < 0.5 else None))
        cache.claims.applied(VolumeClaim("default", "data", self.dice.choice((None, "disk")), "fast"))
        foreign_pod = pod("other", None, containers=())
        (cache.foreign_pods.applied if self.dice.random() < 0.5 else cache.foreign_pods.forgotten)(
            ForeignPod(foreign_pod.ref, "node1", foreign_pod.resource_request)
        )

    def change_slice(self) -> None:
        name, handler = self.dice.choice(("node1", "node2")), self.loop.cache.device_slices
        devices = tuple(
            PublishedDevice(DeviceId(DRIVER, name, f"gpu-{index}"), f"GPU-{name}-{index}") for index in range(3)
        )
        part = DeviceSlice(f"of-{name}", name, DRIVER, name, 1, self.dice.choice((1, 1, 2)), devices)
        (handler.applied if self.dice.random() < 0.7 else handler.forgotten)(part)

    def change_claim(self) -> None:
        handler, name = self.loop.cache.device_claims, self.dice.choice(("node1", "node2"))
        devices = tuple(DeviceId(DRIVER, name, f"gpu-{index}") for index in range(self.dice.randrange(3)))
        claim = AllocatedClaim("default", "training", "uid-of-training", devices)
        (handler.applied if self.dice.random() < 0.7 else handler.forgotten)(claim)

    def set_strategy(self) -> None:
        self.loop.settings.applied(self.dice.choice(list(Strategy)))

    def set_limits(self) -> None:
        self.loop.limits.applied(self.dice.choice(("", "default: devices=1 priority=5", "*: devices=3")))

    def repair(self) -> None:
        """Rebuild the ledger, as the audit does after it has found a fault."""
        self.loop.cache.replace(self.loop.cache.rebuild_ledger(self.loop.pod_states))


@pytest.mark.parametrize("seed", range(5))
async def test_a_replay_of_the_journal_gives_the_same_decisions(tmp_path: Path, seed: int) -> None:
    """Whatever happened, the same inputs in the same order give the same decisions, word for word."""
    path = tmp_path / "journal"
    random_loop = RandomLoop(seed, path)

    await random_loop.live(250)

    lines = read(path)
    verdicts = {line["verdict"] for line in lines if "verdict" in line}
    assert {"bind", "wait", "refuse"} <= verdicts
    assert {line["received"] for line in lines if "received" in line} == {*InputKind}
    with path.open("rb") as file:
        replayed = list(Replay(file))
    assert len(replayed) == sum("verdict" in line for line in lines)
    assert [each for each in replayed if each.differs] == []
