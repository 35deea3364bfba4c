"""Runs the commands of the users' guides word for word, and compares their output literally.

A folder of `flows/` is one guide's example. A file `N_….sh` holds a block of its commands, word for word; the file
`….out` beside it is their output. SUBSTITUTIONS lists every change of the commands. Between two blocks the test waits
until the pods run, as a reader would. It ends a log that is followed, as with Ctrl-C. Addresses, ages and hashes are
masked on both sides.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import ROOT, SYSTEM, Cluster
from tests.cluster.verify import system
from tests.cluster.verify.masking import mask
from tests.cluster.verify.pods import ASSIGNED
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLOWS: Final = Path(__file__).parent / "flows"
# The tests' own namespaces enforce Pod Security `restricted`, which the guides' examples do not meet. They also contain
# the play's pods of the same names.
NAMESPACE: Final = "flows"

# From → to, in this order. Names in braces are values that differ between clusters.
SUBSTITUTIONS: Final = (
    ("image: busybox:1.35", "image: {image}"),
    ("image: busybox", "image: {image}"),
    ("image: gpu-scheduler-check:latest", "image: {image}"),
    ("aks-workerpool-25338008-vmss000000", "node1"),
    ("aks-workerpool-25338008-vmss000001", "node2"),
    ("aks-workerpool-25338008-vmss000003", "node3"),
    ("aks-workerpool-25338008-vmss000004", "node4"),
    ("gpu-scheduler-tests", NAMESPACE),
    ("cd gpu-scheduler\npython3 scheduler.py", "gpu-scheduler run --kubeconfig {scheduler_kubeconfig}"),
)
_FOLLOWS: Final = re.compile(r"-f\s*\Z")
# A container's variables are unordered: the kubelet passes them in a different order each time.
_PAIR: Final = re.compile(r"^(?:CUDA_\w+=.*\n){2}", re.MULTILINE)
# One guide asks the wrong pods for a container. kubectl names the first of them: the order of the scheduler's hash and
# the controller's "c" depends on the images' content.
_REFUSED: Final = re.compile(r"\bpod gpu-scheduler-(?:controller-)?HASH out of: (controller|scheduler)$", re.MULTILINE)
_REPEATED: Final = re.compile(r"((?:[^\n]*\n)+?)\1+")


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """A reader's environment: a folder, a shell, and a kubeconfig whose context names the namespace."""

    cluster: Cluster
    folder: Path
    values: Mapping[str, str]

    def type(self, flow: str) -> None:
        """Run the guide's blocks one after the other. Each must print its expected output."""
        for script in self._put_down(flow):
            expected = _reported(script.with_suffix(".out"), script)
            assert expected == self._print(script, expected), f"{flow}/{script.name}"
            if "kubectl apply" in script.read_text():
                self._wait_for_pods()

    def start(self, flow: str, log: Path) -> subprocess.Popen[bytes]:
        """Start the only block of an example, which runs until it is ended."""
        (script,) = self._put_down(flow)
        return self._run(script, log)

    def _put_down(self, flow: str) -> list[Path]:
        """Write the example's files with the substitutions; return its blocks in their order."""
        written = []
        for source in sorted((FLOWS / flow).iterdir()):
            text = source.read_text()
            for old, new in SUBSTITUTIONS:
                text = text.replace(old, new.format(**self.values))
            written.append(self.folder / source.name)
            written[-1].write_text(text)
        return [file for file in written if file.suffix == ".sh"]

    def _run(self, script: Path, log: Path) -> subprocess.Popen[bytes]:
        reported = {"KUBECONFIG": self.values["kubeconfig"], "HTTP_PORT": "0", "BIND_ADDRESS": "127.0.0.1"}
        path = os.pathsep.join((str(self.folder / "bin"), str(ROOT / ".venv" / "bin"), os.environ["PATH"]))
        environment = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
        with log.open("w") as output:
            return subprocess.Popen(
                ("bash", script),
                cwd=self.folder,
                env={**environment, **reported, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _print(self, script: Path, expected: str) -> str:
        """Return the output of the block.

        A block that follows a log is ended when it has printed the expected output.
        """
        follows = _FOLLOWS.search(script.read_text())
        log = script.with_suffix(".log")
        process = self._run(script, log)
        deadline = time.monotonic() + limit(30)
        while (
            process.poll() is None
            and time.monotonic() < deadline
            and not (follows and expected == _reported(log, script))
        ):
            time.sleep(0.1)
        end(process)
        return _reported(log, script)

    def _wait_for_pods(self) -> None:
        everything = ("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod", "--all", "--timeout=60s")
        eventually("pods to be there", partial(self.cluster.kubectl, "get", "pods", "-n", NAMESPACE, "-o", "name"))
        self.cluster.kubectl(*everything)
        # A container is running before its first line is in the log.
        time.sleep(1)


def end(process: subprocess.Popen[bytes]) -> int:
    """Send SIGINT, as Ctrl-C does, to a block that still runs; return its exit status."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(15)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _reported(output: Path, script: Path) -> str:
    """Return the output of a block, masked; repeated lines of a log are kept once."""
    text = "".join(" ".join(line.split()) + "\n" for line in mask(output.read_text()).splitlines())
    text = _REFUSED.sub("pod ANY-HASH out of: ITS-CONTAINER", text)
    text = _PAIR.sub(lambda pair: "".join(sorted(pair[0].splitlines(keepends=True))), text)
    return _REPEATED.sub(r"\1", text) if "kubectl logs" in script.read_text() else text


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """Create the readers' namespace, and delete it after the last test."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait")


@pytest.fixture
def commands(cluster: Cluster, namespace: str, image: str, tmp_path: Path) -> Iterator[CommandRunner]:
    """Return the runner of the guides' commands. Delete what the commands created afterwards."""
    kubeconfig, outside = tmp_path / "config", tmp_path / "outside.config"
    kubeconfig.write_text(cluster.kubectl("config", "view", "--minify", "--raw").stdout)
    Cluster(kubeconfig).kubectl("config", "set-context", "--current", f"--namespace={namespace}")
    (tmp_path / "typed").mkdir()
    values = {"image": image, "kubeconfig": str(kubeconfig), "scheduler_kubeconfig": str(outside)}
    yield CommandRunner(cluster, tmp_path / "typed", values)
    # A shell that is a container's first process ignores SIGTERM.
    cluster.kubectl("delete", "statefulset,deployment", "-n", namespace, "--all", "--wait", "--cascade=orphan")
    cluster.kubectl("delete", "replicaset", "-n", namespace, "--all", "--wait", "--cascade=orphan")
    cluster.kubectl("delete", "pods", "-n", namespace, "--all", "--grace-period=1", "--wait")


@pytest.mark.promise("map-1", "map-2", "index-4", "env-1")
def test_two_pods_with_one_map(commands: CommandRunner) -> None:
    """`gpu-test-0` and `gpu-test-1` run on the nodes of their lines, and `env` in them shows their devices."""
    commands.type("gpu-test")


@pytest.mark.promise("index-6", "index-11", "env-5")
def test_pod_without_a_number(commands: CommandRunner) -> None:
    """`test-gpu-pod` has no number in its name: it gets the lowest line, and sees its devices by reference."""
    commands.type("test-gpu-pod")


@pytest.mark.promise("map-1", "index-4", "env-1")
def test_three_pods_for_the_webhook(commands: CommandRunner) -> None:
    """`webhook-test-0` to `-2`: the environment shows the devices of each line.

    Their logs contain only `CUDA_VISIBLE_DEVICES=`: in the guide's unquoted heredoc the reader's own shell replaces the
    variable by its own value, which is empty.
    """
    commands.type("webhook-test")


@pytest.mark.promise("map-1", "index-2", "share-1")
def test_check_service_as_a_statefulset(commands: CommandRunner) -> None:
    """The technical task's five replicas: each on its node, two of them share a GPU as in the map, all log it."""
    commands.type("check-statefulset")


@pytest.mark.promise("map-1", "index-6", "env-5", "share-1")
def test_check_service_as_a_deployment(commands: CommandRunner) -> None:
    """The same map on a Deployment: five replicas without numbers get one of the five lines each."""
    commands.type("check-deployment")


@pytest.fixture
def scheduler_outside(cluster: Cluster, commands: CommandRunner, healthy: None) -> Iterator[subprocess.Popen[bytes]]:
    """Run the scheduler on this host with its service account's rights, and none in the cluster."""
    token = cluster.kubectl("create", "token", "gpu-scheduler", "-n", SYSTEM).stdout.strip()
    outside = Path(commands.values["scheduler_kubeconfig"])
    outside.write_text(cluster.kubectl("config", "view", "--minify", "--raw").stdout)
    Cluster(outside).kubectl("config", "set-credentials", "gpu-scheduler", f"--token={token}")
    Cluster(outside).kubectl("config", "set-context", "--current", "--user=gpu-scheduler")
    # The console script of `pip install ./scheduler`, with the packages of the tests' own environment.
    program = commands.folder / "bin" / "gpu-scheduler"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/scheduler exec {ROOT}/.venv/bin/python -m gpu_scheduler "$@"\n')
    program.chmod(0o755)
    try:
        cluster.kubectl("scale", "deployment", "-n", SYSTEM, "gpu-scheduler", "--replicas=0")
        eventually("no scheduler to be left", lambda: not system.replicas(cluster, system.SCHEDULER), 60, 0.5)
        log = commands.folder / "scheduler.txt"
        process = commands.start("outside", log)
        try:
            eventually("the scheduler to decide", lambda: "Deciding" in log.read_text(), 30, 0.2)
            yield process
        finally:
            end(process)
    finally:
        cluster.kubectl("scale", "deployment", "-n", SYSTEM, "gpu-scheduler", "--replicas=2")


@pytest.mark.promise("map-1", "lead-1")
def test_scheduler_outside_the_cluster(
    cluster: Cluster, commands: CommandRunner, scheduler_outside: subprocess.Popen[bytes]
) -> None:
    """`gpu-scheduler run --kubeconfig` on this host places the guide's pods and signs them.

    Ctrl-C ends it with status 0.
    """
    commands.type("gpu-test")
    pods = cluster.get("pods", "-n", NAMESPACE)["items"]

    assert {pod["metadata"]["annotations"][f"{ASSIGNED}by"].rpartition("_")[0] for pod in pods} == {
        os.uname().nodename.lower()
    }
    assert end(scheduler_outside) == 0
