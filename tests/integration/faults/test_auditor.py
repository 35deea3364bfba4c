"""The auditor reports exactly the invariant that a test breaks."""

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
from tests.auditor.placements import terminating_holders
from tests.integration.faults.violations import QUICK, bind, found, open_scheduler
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.objects import device, inventory, literal, pod
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.objects import Object


def test_one_gpu_for_two_pods_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I1. The maps of the two pods differ, so that they do not share."""
    for name, text in (("one-0", "0=node1:0\n"), ("two-0", "0=node1:0\n1=node1:1\n")):
        namespace.pod(name, text, "0")
        bind(namespace, name, "0")

    report = auditor.report()

    assert [violation.invariant for violation in report] == ["I1"]
    assert "GPU 0 of node1" in report[0].sentence


@dataclass(frozen=True, slots=True)
class WrongAssignment:
    """A bind whose annotations contradict the pod or the node.

    `line` is the devices of the pod's line, `sees` the value of its variable, `given` and `node` the annotations.
    """

    line: str
    sees: str | None
    given: str
    node: str = "node1"


WRONG_ASSIGNMENTS: Final = {
    "its container sees another GPU": WrongAssignment("1", "0", "1"),
    "its line says another GPU": WrongAssignment("0", "1", "1"),
    "its annotation names another node": WrongAssignment("0", "0", "0", "node2"),
    "its container has no variable": WrongAssignment("0", None, "0"),
    "its node has no such GPU": WrongAssignment("7", "7", "7"),
}


@pytest.mark.parametrize("wrong", WRONG_ASSIGNMENTS.values(), ids=WRONG_ASSIGNMENTS)
def test_a_pod_with_a_contradictory_assignment_is_found(
    namespace: Namespace, auditor: Auditor, wrong: WrongAssignment
) -> None:
    """I2. Map, variable, annotations and node must agree."""
    namespace.patch_node("node1", {"metadata": {"annotations": inventory(device(0), device(1))}})
    namespace.pod("train-0", f"0=node1:{wrong.line}\n", wrong.sees)

    bind(namespace, "train-0", wrong.given, node=wrong.node)

    assert found(auditor) == {"I2"}


def test_a_bind_without_a_uid_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I3. Without a uid, the Binding would also bind the next pod of that name."""
    namespace.pod("train-0", "0=node1:0\n", "0")

    bind(namespace, "train-0", "0", uid="")

    assert found(auditor) == {"I3"}


def test_a_pod_that_is_bound_twice_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I3. The API server never does that, so the test appends a second entry to its audit log."""
    namespace.pod("train-0", "0=node1:0\n", "0")
    bind(namespace, "train-0", "0")
    assert auditor.report() == []

    with auditor.log.path.open("r+b") as file:
        done = next(line for line in file.readlines() if b"/binding" in line and namespace.name.encode() in line)
        file.write(done)

    assert found(auditor) == {"I3"}


def test_a_bind_beyond_the_resources_of_its_node_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I4. Each of the two pods would fit alone."""
    for number in (0, 1):
        namespace.make(pod(f"big-{number}", "0=node1:0\n1=node1:1\n", literal(str(number)), requests={"cpu": "40"}))
        bind(namespace, f"big-{number}", str(number), index=str(number))

    report = auditor.report()

    assert [violation.invariant for violation in report] == ["I4"]
    assert "cpu is then asked for 80 and 64 is there" in report[0].sentence


def test_a_ledger_without_a_pod_is_found(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """I5. A scheduler with a built-in fault drops an existing pod from its ledger at a signal."""
    namespace.node("node1")
    with (
        open_scheduler(plane, tmp_path, module="tests.integration.program_with_wrong_ledger") as command,
        auditing(plane, command, allowed=QUICK) as auditor,
    ):
        namespace.pod("train-0", "0=node1:0\n", "0")
        namespace.wait_bound("train-0", "node1")
        assert auditor.report() == []

        command.process.send(signal.SIGUSR2)

        assert found(auditor) == {"I5"}


UNHEARD: Final = {
    "it fits and is not bound": ("0=node1:0\n", None),
    "it has no condition": ("0=node9:0\n", None),
    "its condition has an unknown reason": ("0=node9:0\n", {"reason": "Unschedulable", "message": "Patience: wait"}),
}


@pytest.mark.parametrize(("text", "reported"), UNHEARD.values(), ids=UNHEARD)
def test_a_pod_that_waits_without_a_known_reason_is_found(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path, text: str, reported: Object | None
) -> None:
    """I7. The running scheduler has another name, so it ignores the pod."""
    namespace.node("node1")
    with (
        open_scheduler(plane, tmp_path, SCHEDULER_NAME="another") as command,
        auditing(plane, command, allowed=QUICK) as auditor,
    ):
        namespace.pod("train-0", text, "0")
        if reported:
            condition = {"type": "PodScheduled", "status": "False", **reported}
            namespace.kube.patch(f"{namespace.pods}/train-0/status", {"status": {"conditions": [condition]}})

        assert found(auditor) == {"I7"}


def test_a_write_to_a_pod_of_others_is_found(plane: ControlPlane, namespace: Namespace, auditor: Auditor) -> None:
    """I8. The test writes with the scheduler's account, and the API server allows it."""
    namespace.pod("foreign-0", None, None, scheduler="another")
    kube = plane.client_of(SYSTEM_NAMESPACE, "gpu-scheduler")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    kube.patch(f"{namespace.pods}/foreign-0/status", {"status": {"conditions": [condition]}})

    assert found(auditor) == {"I8"}


def test_a_bind_of_a_terminating_pod_is_found() -> None:
    """I8. The API server refuses such a bind, so the test invents the watch events."""
    leaving: Object = {
        "metadata": {"name": "doomed-0", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "gpu-scheduler"},
    }
    bound = {**leaving, "spec": {**leaving["spec"], "nodeName": "node1"}}
    events = [
        Event(float(version), version, "pods", deleted=False, seen=seen(json.dumps(body).encode()))
        for version, body in enumerate((leaving, bound), 1)
    ]

    assert [violation.invariant for violation in terminating_holders(events)] == ["I8"]


def test_a_gpu_that_is_assigned_again_too_early_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I9. Its holder is terminating and still exists."""
    namespace.pod("one-0", "0=node1:0\n", "0")
    bind(namespace, "one-0", "0")
    namespace.terminate("one-0")
    namespace.pod("two-0", "0=node1:0\n1=node1:1\n", "0")

    bind(namespace, "two-0", "0")

    assert found(auditor) == {"I9"}


def test_a_gpu_that_is_left_idle_is_found(namespace: Namespace, auditor: Auditor) -> None:
    """I9. Its holder is deleted, and the pod that waits for it is bound too late."""
    namespace.pod("one-0", "0=node1:0\n", "0")
    bind(namespace, "one-0", "0")
    namespace.pod("two-0", "0=node1:0\n1=node1:1\n", "0")

    with auditor.quiet():
        namespace.delete("one-0")
        # The scenario: for how long the GPU is idle. What is allowed grows with the load, which may change meanwhile.
        time.sleep(1.5 * limit(QUICK.reuse))
        assert found(auditor) == {"I9"}
        bind(namespace, "two-0", "0")

    report = auditor.report()
    assert [violation.invariant for violation in report] == ["I9"]
    assert "before" in report[0].sentence
