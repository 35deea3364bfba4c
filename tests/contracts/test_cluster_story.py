"""What a role tells when it waited in vain, with a kubectl that says what we want it to say."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

MODULE = ROOT / "plugins" / "modules" / "cluster_story.py"

EVENTS = """\
LAST SEEN   TYPE      REASON    OBJECT               MESSAGE
1s          Warning   Failed    pod/train-0          no such image
1s          Normal    Created   replicaset/train-5   made train-0
1s          Normal    Created   pod/train-01         another pod's"""

PODS: dict[str, Any] = {
    "items": [
        {
            "kind": "Pod",
            "metadata": {"name": "train-0"},
            "spec": {"nodeName": "node1"},
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "Ready", "status": "False", "message": "containers are not ready"}],
                "containerStatuses": [
                    {
                        "name": "train",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    }
                ],
            },
        },
        {
            "kind": "Pod",
            "metadata": {"name": "train-1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        },
        {"kind": "ReplicaSet", "metadata": {"name": "train-5"}},
    ]
}


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """Return a kubectl that knows two pods, their events, and a log each; it notes what it is asked."""
    (tmp_path / "pods.json").write_text(json.dumps(PODS))
    (tmp_path / "events").write_text(EVENTS)
    program = tmp_path / "kubectl"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$*" in
  *--output=json*gone*|*gone*--output=json*) ;;
  *--output=json*) cat {tmp_path}/pods.json ;;
  *--output=wide*gone*|*gone*--output=wide*) ;;
  *--output=wide*) echo "a table" ;;
  "get events"*) cat {tmp_path}/events ;;
  "logs train-0"*) echo "[pod/train-0] last words" ;;
  logs*) echo "the log of somebody who is well" ;;
  *) echo "cannot $*" >&2; exit 1 ;;
esac
"""
    )
    program.chmod(0o755)
    return program


def told(**arguments: object) -> str:
    """Run the module as Ansible does; return what it fails with."""
    done = subprocess.run(
        (sys.executable, MODULE),
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"failure": "It is not there.", **arguments}}),
        capture_output=True,
        text=True,
        timeout=limit(30),
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["failed"] is True
    assert answer["changed"] is False
    message: str = answer["msg"]
    return message


def test_story_has_table_state_events_and_log_of_what_is_not_ready(kubectl: Path) -> None:
    """After the failure: what is there, what holds up the pod that is not ready, its events, its last words."""
    subject = {"namespace": "default", "kinds": "replicasets,pods", "selector": "app=train"}

    assert told(kubectl=[str(kubectl)], subjects=[subject]).splitlines() == [
        "It is not there.",
        "",
        "default/replicasets,pods:",
        "  a table",
        "Not ready in default/replicasets,pods:",
        "  train-0: Pending on node1",
        "    containers are not ready",
        "    container train, waiting: CrashLoopBackOff, back-off",
        "    container train, terminated: OOMKilled, exit status 137",
        "Events of default/replicasets,pods:",
        "  LAST SEEN   TYPE      REASON    OBJECT               MESSAGE",
        "  1s          Warning   Failed    pod/train-0          no such image",
        "  1s          Normal    Created   replicaset/train-5   made train-0",
        "Log of default/replicasets,pods:",
        "  [pod/train-0] last words",
    ]


def test_pod_that_is_gone_has_its_events_and_its_note(kubectl: Path) -> None:
    """A pod by name need not exist: what is known of it, and that there is none, is told."""
    story = told(kubectl=[str(kubectl)], subjects=[{"namespace": "default", "name": "gone-0", "note": "missing"}])

    assert story.splitlines()[2:] == [
        "default/gone-0:",
        "  missing",
        "  there is none",
        "Events of default/gone-0:",
        "  none; a cluster keeps them for an hour",
    ]


def test_nothing_but_reading_is_asked(kubectl: Path) -> None:
    """The story only reads, with the caller's kubectl."""
    told(kubectl=[str(kubectl)], subjects=[{"namespace": "default"}, {"namespace": "other", "name": "train-0"}])
    asked = (kubectl.parent / "asked").read_text().splitlines()

    assert {line.split()[0] for line in asked} == {"get", "logs"}
    assert all("--namespace=" in line for line in asked)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["sh", "-c", "echo refused >&2; exit 1"], "kubectl cannot tell: refused"),
        (["sh", "-c", "sleep 60"], "kubectl cannot tell: no answer in 1 s"),
        (["no-such-kubectl"], "kubectl cannot tell: cannot run no-such-kubectl"),
    ],
    ids=["refused", "silent", "missing"],
)
def test_silence_of_the_cluster_is_part_of_the_story(command: list[str], complaint: str) -> None:
    """Where nobody answers the failure is told all the same, and that nobody answers."""
    story = told(kubectl=command, timeout=1, subjects=[{"namespace": "default", "name": "a-0", "note": "not ready"}])

    assert story.startswith("It is not there.\n\ndefault/a-0:\n  not ready\n")
    assert complaint in story
