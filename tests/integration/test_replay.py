"""Snapshots and journals of a real API server, replayed; and the history of its pods."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from gpu_scheduler.cli.timeline import What, from_log
from tests import objects
from tests.integration.accounts import allow_everywhere, rights
from tests.integration.command import start_alone
from tests.integration.installed import Installed
from tests.integration.namespace import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

WAITING = {
    "held-0": ("0=node1:0\n1=node2:0", "0", "GpuHeld"),
    "unknown-0": ("0=node9:0", "0", "NodeNotFound"),
    "cordoned-0": ("0=node2:0", "0", "NodeUnschedulable"),
    "broken-0": ("0=node1:x", None, "MapInvalid"),
    "missing-0": ("1=node1:1", None, "IndexNotInMap"),
    "absent-0": ("0=node1:9", "9", "GpuNotFound"),
    "nothing-0": (None, None, "NothingRequested"),
    "bare-0": ("0=node1:1", None, "EnvNotInjected"),
}
"""Pods that wait: map, devices in their environment, reason."""


@pytest.fixture
def recorded(plane: ControlPlane, tmp_path: Path) -> Iterator[Command]:
    """A leading scheduler that writes a journal."""
    command = start_alone(plane, tmp_path, "scheduler-0", DECISION_JOURNAL=str(tmp_path / "journal"))
    with command.serving(leads=True):
        yield command


def decided(operator: Installed, file: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """Replay a file. Return the decisions of a JSON by pod."""
    return {each["name"]: each for each in operator.items("replay", str(file), *words, code=code)}


@pytest.mark.promise("replay-2")
def test_a_replay_decides_as_the_scheduler_did(
    namespace: Namespace, recorded: Command, operator: Installed, tmp_path: Path
) -> None:
    """Of a snapshot and of a journal, with pods that wait for many reasons. A holder's end is then the difference."""
    devices = objects.inventory(*map(objects.device, range(2)))
    for name in ("node1", "node2"):
        namespace.node(name, annotations=devices)
    namespace.cordon("node2", cordoned=True)
    namespace.pod("holder-0", "0=node1:0", "0")
    namespace.wait_bound("holder-0", "node1")
    for name, (text, seen, _) in WAITING.items():
        namespace.pod(name, text, seen)
    count = {"agentaflow.gpu/count": "3"}
    namespace.make(objects.pod("counts-0", None, objects.reading(), annotations=count))
    for name, (_, _, reason) in WAITING.items():
        namespace.wait_message(name, f"{reason}: ")
    namespace.wait_message("counts-0", "")

    file = tmp_path / "cluster.snapshot"
    file.write_text(operator.run("gpu-scheduler", "snapshot"), encoding="utf-8")

    assert decided(operator, file) == {}
    found = decided(operator, file, "--all", "-n", namespace.name)
    assert {*WAITING, "counts-0"} == found.keys()
    assert {name: each["now"]["reason"] for name, each in found.items()} == {
        name: namespace.condition(name)["message"].partition(":")[0] for name in found
    }
    assert {name: each["now"]["message"] for name, each in found.items()} == {
        name: namespace.condition(name)["message"] for name in found
    }

    recorded.process.stop()
    assert recorded.journal is not None
    assert decided(operator, recorded.journal) == {}
    assert {"holder-0", *WAITING} <= decided(operator, recorded.journal, "--all").keys()

    namespace.delete("holder-0")
    file.write_text(operator.run("gpu-scheduler", "snapshot"), encoding="utf-8")
    (name, other), *rest = decided(operator, file, code=1).items()
    assert (name, other["before"]["reason"], other["now"]["verdict"]) == ("held-0", "GpuHeld", "bind")
    assert (other["now"]["placement"]["node"], other["now"]["placement"]["devices"]) == ("node1", ["0"])
    assert rest == []


def rights_of(plane: ControlPlane, namespace: Namespace, user: str, *resources: str) -> None:
    """Create a service account that may list these resources of the core API in all namespaces."""
    rules = (rights(each, "list", group="") for each in resources)
    allow_everywhere(plane.kube, namespace.name, user, f"{namespace.name}-{user}", *rules)


@pytest.mark.promise("replay-1")
def test_a_snapshot_of_a_user_with_few_rights(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """It has what the user may read, and says what it lacks. Without pods there is none."""
    namespace.node("node1")
    namespace.pod("train-0", "0=node1:0", "0")
    found = {}
    for user, resources, code in (("jane", ("nodes", "pods"), 1), ("joe", ("nodes",), 1)):
        rights_of(plane, namespace, user, *resources)
        (tmp_path / user).mkdir()
        token = plane.service_account_token(namespace.name, user)
        found[user] = Installed(tmp_path / user, plane, token, namespace.name).run(
            "gpu-scheduler", "snapshot", code=code
        )

    first, *lines = map(json.loads, found["jane"].splitlines())
    assert first["snapshot"] == len(lines)
    assert [each.rpartition("can-i ")[2].split()[1].rstrip(")") for each in first["unread"]][-3:] == [
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses.storage.k8s.io",
    ]
    assert {"node1", "train-0"} <= {
        line["value"].get("name") or line["value"].get("ref", {}).get("name") for line in lines
    }
    assert found["joe"] == ""


FIRST_WAITS = ("first-0", "Waiting")


@pytest.mark.promise("history-1")
def test_history_shows_a_wait_and_then_the_bind(namespace: Namespace, scheduler: Command, operator: Installed) -> None:
    """Each decision once, with the sources that tell of it, and also when the pods are gone."""
    namespace.node("node1")
    namespace.pod("first-0", "0=node1:0", "0")
    namespace.wait_bound("first-0", "node1")
    namespace.pod("second-0", "0=node1:0\n7=node1:1", "0")
    namespace.wait_message("second-0", "GpuHeld: ")
    namespace.wait_event("second-0", "FailedScheduling")
    namespace.delete("first-0")
    uid = namespace.wait_bound("second-0", "node1")["metadata"]["uid"]
    namespace.wait_event("second-0", "Scheduled")

    wait, bind = operator.items("history", "second-0", "-n", namespace.name)

    assert (wait["what"], wait["reason"], wait["uid"], wait["sources"]) == ("Waiting", "GpuHeld", uid, ["event"])
    assert wait["message"].startswith(f"GPU 0 of node1 is held by {namespace.name}/first-0")
    assert (bind["what"], bind["node"], bind["devices"], bind["uid"]) == ("Bound", "node1", ["0"], uid)
    assert (bind["sources"], bind["count"]) == (["event", "pod"], 1)
    assert bind["by"].startswith("scheduler-0")
    namespace.delete("second-0")
    rows = operator.items("history", "-n", namespace.name, "--since", "1h")
    # The watch of nodes may deliver later than that of pods: then the first pod waited, too.
    shown = [(row["pod"], row["what"], row["devices"]) for row in rows if (row["pod"], row["what"]) != FIRST_WAITS]
    assert [row[:2] for row in shown] == [("first-0", "Bound"), ("second-0", "Waiting"), ("second-0", "Bound")]
    assert shown[2][2] == ["0"]
    logged = [entry for line in scheduler.lines() if (entry := from_log(line, "scheduler-0")) is not None]
    mine = [
        (entry.what, entry.node) for entry in logged if (entry.namespace, entry.pod) == (namespace.name, "second-0")
    ]
    assert mine == [(What.WAITING, None), (What.BOUND, "node1")]
    assert operator.items("history", "third-0", "-n", namespace.name, code=1) == []


class Kubelet(BaseHTTPRequestHandler):
    """Answers as the kubelet of a scheduler's node: with the log of the process."""

    scheduler: ClassVar[Command]

    def do_GET(self) -> None:
        """Send the log, if that is asked for."""
        asked = self.path.startswith(f"/containerLogs/{SYSTEM_NAMESPACE}/gpu-scheduler-0/main?")
        self.send_response(200 if asked else 404)
        self.end_headers()
        self.wfile.write(self.scheduler.process.output().encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def replica(plane: ControlPlane, scheduler: Command, namespace: Namespace, tmp_path: Path) -> Iterator[str]:
    """A scheduler's pod, whose log the API server reads from a kubelet. Its name."""
    Kubelet.scheduler = scheduler
    server = ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
    server.socket = plane.serving_context(tmp_path / "kubelet").wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    namespace.node("control1")
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    endpoint = {"kubeletEndpoint": {"Port": server.server_port}}
    namespace.patch_node("control1", {"status": {"addresses": [address], "daemonEndpoints": endpoint}})
    name, pods = "gpu-scheduler-0", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
    labels = {"app.kubernetes.io/name": "gpu-scheduler", "app.kubernetes.io/component": "scheduler"}
    spec = {"nodeName": "control1", "containers": [{"name": "main", "image": "registry.invalid/none"}]}
    plane.kube.create(pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    yield name
    plane.kube.delete(f"{pods}/{name}")
    server.shutdown()
    thread.join()
    server.server_close()


def binds(operator: Installed, name: str, namespace: Namespace) -> list[Any]:
    """Return the binds in a pod's history. It waited before if the watch of nodes delivers later than that of pods."""
    rows = operator.items("history", name, "-n", namespace.name)
    return [row for row in rows if row["what"] == "Bound"]


@pytest.mark.promise("history-1")
def test_history_reads_the_schedulers_log(namespace: Namespace, replica: str, operator: Installed) -> None:
    """The bind that the event, the pod and the log tell of is one row."""
    namespace.node("node1")
    namespace.pod("train-0", "0=node1:0", "0")
    namespace.wait_bound("train-0", "node1")
    namespace.wait_event("train-0", "Scheduled")

    (bind,) = binds(operator, "train-0", namespace)

    assert (bind["what"], bind["node"], bind["sources"]) == ("Bound", "node1", ["event", "pod", "log"])
    namespace.delete("train-0")
    (bind,) = binds(operator, "train-0", namespace)
    assert (bind["sources"], bind["by"], bind["devices"]) == (["event", "log"], replica, ["0"])
