"""The auditor finds what it is there for: each invariant is broken once, and that one is reported and no other."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.auditor.history import Event
from tests.auditor.objects import seen
from tests.auditor.placements import dying
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.faults.forging import QUICK, bind, found, open_scheduler
from tests.objects import card, inventory, literal, pod

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object


def test_one_gpu_for_two_pods_is_found(bench: Bench, auditor: Auditor) -> None:
    """I1. The second pod's map is another one, so that nothing declares that they share."""
    for name, text in (("one-0", "0=node1:0\n"), ("two-0", "0=node1:0\n1=node1:1\n")):
        bench.pod(name, text, "0")
        bind(bench, name, "0")

    report = auditor.report()

    assert [violation.invariant for violation in report] == ["I1"]
    assert "GPU 0 of node1" in report[0].sentence


@dataclass(frozen=True, slots=True)
class Crooked:
    """A pod that is bound in a crooked way."""

    line: str
    sees: str | None
    given: str
    node: str = "node1"


CROOKED: Final = {
    "its container sees another GPU": Crooked("1", "0", "1"),
    "its line says another GPU": Crooked("0", "1", "1"),
    "its annotation names another node": Crooked("0", "0", "0", "node2"),
    "its container was told nothing": Crooked("0", None, "0"),
    "its node has no such GPU": Crooked("7", "7", "7"),
}


@pytest.mark.parametrize("crooked", CROOKED.values(), ids=CROOKED)
def test_a_pod_that_has_not_what_it_was_given_is_found(bench: Bench, auditor: Auditor, crooked: Crooked) -> None:
    """I2."""
    bench.patch_node("node1", {"metadata": {"annotations": inventory(card(0), card(1))}})
    bench.pod("train-0", f"0=node1:{crooked.line}\n", crooked.sees)

    bind(bench, "train-0", crooked.given, node=crooked.node)

    assert found(auditor) == {"I2"}


def test_a_bind_that_does_not_say_whom_it_means_is_found(bench: Bench, auditor: Auditor) -> None:
    """I3. Without a uid it would also bind the next pod of that name."""
    bench.pod("train-0", "0=node1:0\n", "0")

    bind(bench, "train-0", "0", uid="")

    assert found(auditor) == {"I3"}


def test_a_pod_that_is_bound_twice_is_found(bench: Bench, auditor: Auditor) -> None:
    """I3. The API server never does that, so the second time is written into its log."""
    bench.pod("train-0", "0=node1:0\n", "0")
    bind(bench, "train-0", "0")
    assert auditor.report() == []

    with auditor.log.path.open("r+b") as file:
        done = next(line for line in file.readlines() if b"/binding" in line and bench.namespace.encode() in line)
        file.write(done)

    assert found(auditor) == {"I3"}


def test_a_node_that_is_given_more_than_it_has_is_found(bench: Bench, auditor: Auditor) -> None:
    """I4. Each of the two would have its place alone."""
    for number in (0, 1):
        bench.make(pod(f"big-{number}", "0=node1:0\n1=node1:1\n", literal(str(number)), requests={"cpu": "40"}))
        bind(bench, f"big-{number}", str(number), index=str(number))

    report = auditor.report()

    assert [violation.invariant for violation in report] == ["I4"]
    assert "cpu is then asked for 80 and 64 is there" in report[0].sentence


def test_a_ledger_that_forgot_somebody_is_found(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """I5. At a signal a scheduler with a fault built in forgets a pod that is there."""
    bench.node("node1")
    with (
        open_scheduler(plane, tmp_path, module="tests.integration.damaging") as command,
        auditing(plane, command, allowed=QUICK) as auditor,
    ):
        bench.pod("train-0", "0=node1:0\n", "0")
        bench.wait_bound("train-0", "node1")
        assert auditor.report() == []

        command.process.send(signal.SIGUSR2)

        assert found(auditor) == {"I5"}


UNHEARD: Final = {
    "it fits and nobody binds it": ("0=node1:0\n", None),
    "nobody says why it waits": ("0=node9:0\n", None),
    "it waits for no known reason": ("0=node9:0\n", {"reason": "Unschedulable", "message": "Patience: wait"}),
}


@pytest.mark.parametrize(("text", "told"), UNHEARD.values(), ids=UNHEARD)
def test_a_pod_that_is_left_alone_is_found(
    plane: ControlPlane, bench: Bench, tmp_path: Path, text: str, told: Object | None
) -> None:
    """I7. The scheduler that runs has another name, and nothing to do with it."""
    bench.node("node1")
    with (
        open_scheduler(plane, tmp_path, SCHEDULER_NAME="another") as command,
        auditing(plane, command, allowed=QUICK) as auditor,
    ):
        bench.pod("train-0", text, "0")
        if told:
            condition = {"type": "PodScheduled", "status": "False", **told}
            bench.kube.patch(f"{bench.pods}/train-0/status", {"status": {"conditions": [condition]}})

        assert found(auditor) == {"I7"}


def test_a_write_to_a_pod_of_others_is_found(plane: ControlPlane, bench: Bench, auditor: Auditor) -> None:
    """I8. It is done with the scheduler's own account, and the API server lets it."""
    bench.pod("foreign-0", None, None, scheduler="another")
    kube = plane.client_of(SYSTEM_NAMESPACE, "gpu-scheduler")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    kube.patch(f"{bench.pods}/foreign-0/status", {"status": {"conditions": [condition]}})

    assert found(auditor) == {"I8"}


def test_a_bind_of_a_pod_that_goes_is_found() -> None:
    """I8. The API server refuses that, so what the watch would have shown is made up."""
    doomed: Object = {
        "metadata": {"name": "doomed-0", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "gpu-scheduler"},
    }
    bound = {**doomed, "spec": {**doomed["spec"], "nodeName": "node1"}}
    events = [
        Event(float(version), version, "pods", deleted=False, seen=seen(json.dumps(body).encode()))
        for version, body in enumerate((doomed, bound), 1)
    ]

    assert [violation.invariant for violation in dying(events)] == ["I8"]


def test_a_gpu_that_is_given_on_too_early_is_found(bench: Bench, auditor: Auditor) -> None:
    """I9. Its holder is being deleted and still there."""
    bench.pod("one-0", "0=node1:0\n", "0")
    bind(bench, "one-0", "0")
    bench.terminate("one-0")
    bench.pod("two-0", "0=node1:0\n1=node1:1\n", "0")

    bind(bench, "two-0", "0")

    assert found(auditor) == {"I9"}


def test_a_gpu_that_is_left_idle_is_found(bench: Bench, auditor: Auditor) -> None:
    """I9. Its holder is gone, somebody waits for it, and has it too late."""
    bench.pod("one-0", "0=node1:0\n", "0")
    bind(bench, "one-0", "0")
    bench.pod("two-0", "0=node1:0\n1=node1:1\n", "0")

    with auditor.calm():
        bench.delete("one-0")
        time.sleep(QUICK.reuse + 0.5)
        assert found(auditor) == {"I9"}
        bind(bench, "two-0", "0")

    report = auditor.report()
    assert [violation.invariant for violation in report] == ["I9"]
    assert "before" in report[0].sentence
