"""The report of a role's failed wait, with a fake kubectl."""

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

RUN = """
from tests.contracts.cluster_modules import load_module

load_module("plugins", "modules", "failure_report.py").main()
"""

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
    """Return a fake kubectl with two pods, their events and logs; it records its calls."""
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


def report(**arguments: object) -> str:
    """Run the module as Ansible does; return its failure message."""
    done = subprocess.run(
        (sys.executable, "-c", RUN),
        cwd=ROOT,
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


def test_report_has_table_state_events_and_log_of_pods_that_are_not_ready(kubectl: Path) -> None:
    """After the failure: the table of objects, then state, events and log of the pod that is not ready."""
    subject = {"namespace": "default", "kinds": "replicasets,pods", "selector": "app=train"}

    assert report(kubectl=[str(kubectl)], subjects=[subject]).splitlines() == [
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
    """A pod by name need not exist: the report says so, with its events and the caller's note."""
    story = report(kubectl=[str(kubectl)], subjects=[{"namespace": "default", "name": "gone-0", "note": "missing"}])

    assert story.splitlines()[2:] == [
        "default/gone-0:",
        "  missing",
        "  there is none",
        "Events of default/gone-0:",
        "  none; a cluster keeps them for an hour",
    ]


IMAGES = {
    "a registry that asks for a login": (
        {"waiting": {"reason": "ImagePullBackOff", "message": "401 Unauthorized"}},
        "",
        "create a Secret in namespace default (kubectl create secret docker-registry) and name it in pod_options",
    ),
    "a pull secret that the namespace lacks": (
        {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}},
        "Unable to retrieve some image pull secrets (registry, mirror); attempting to pull may not succeed",
        "Namespace default has no Secret mirror, registry, which pod_options.image_pull_secrets names: create it there",
    ),
    "an image of another architecture": (
        {"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}},
        "",
        "The image is of another architecture than the node: build it for the node's, or choose nodes of the image's",
    ),
}


@pytest.mark.parametrize(("state", "event", "remedy"), IMAGES.values(), ids=IMAGES)
def test_report_says_what_helps_where_an_image_is_not_pulled(
    kubectl: Path, state: dict[str, Any], event: str, remedy: str
) -> None:
    """One sentence, with the namespace and the variable; the states and events that it follows from stand below."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "train-0"},
        "status": {"containerStatuses": [{"name": "a", "state": state}]},
    }
    (kubectl.parent / "pods.json").write_text(json.dumps({"items": [pod]}))
    (kubectl.parent / "events").write_text(f"LAST SEEN OBJECT MESSAGE\n1s pod/train-0 {event}")
    lines = report(kubectl=[str(kubectl)], subjects=[{"namespace": "default"}]).splitlines()

    assert lines[4] == "What helps in default/pods:"
    assert remedy in lines[5]
    assert lines[6] == "Not ready in default/pods:"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["sh", "-c", "echo refused >&2; exit 1"], "kubectl cannot tell: refused"),
        (["sh", "-c", "sleep 60"], "kubectl cannot tell: the API server gave no answer within 1 s"),
        (["no-such-kubectl"], "kubectl cannot tell: cannot run no-such-kubectl"),
    ],
    ids=["kubectl fails", "kubectl hangs", "kubectl is missing"],
)
def test_report_says_that_the_cluster_does_not_answer(command: list[str], complaint: str) -> None:
    """If the cluster does not answer, the report still has the failure, and the error."""
    story = report(kubectl=command, timeout=1, subjects=[{"namespace": "default", "name": "a-0", "note": "not ready"}])

    assert story.startswith("It is not there.\n\ndefault/a-0:\n  not ready\n")
    assert complaint in story
