"""Queries the test cluster as kubectl does, and runs the project's playbooks against it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.reading import path_of, read
from tests.waiting import limit

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "gpu-scheduler-test"
HOME: Final = ROOT / ".kube" / NAME
SYSTEM: Final = "gpu-scheduler-system"
TESTS: Final = "gpu-scheduler-tests"
CHECK: Final = "gpu-scheduler-check"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The test cluster. Every call has a time-out in seconds and names its kubeconfig, never the user's own."""

    kubeconfig: Path = HOME / "config"
    name: str = NAME

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; raise with its output when it fails and `check` is true."""
        command = ("kubectl", f"--kubeconfig={self.kubeconfig}", f"--context=kind-{self.name}", *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=limit(180), check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done

    def get(self, *arguments: str) -> Json:
        """Return an object or a list of them, as the API server returns it; the arguments are kubectl's."""
        if path_of(*arguments) is not None:
            found = self.find(*arguments)
            assert found is not None, f"there is no {' '.join(arguments)}"
            return found
        answer: Json = json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)
        return answer

    def find(self, *arguments: str) -> Json | None:
        """Return an object that may be missing, for example deleted and not yet created again.

        None if it does not exist.
        """
        path = path_of(*arguments)
        assert path is not None, f"add its kind to those that are read: {' '.join(arguments)}"
        return read(self.kubeconfig, f"kind-{self.name}", path)

    def create(self, manifest: Json, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Create the object; the caller deletes it."""
        return self.kubectl("create", "-f", "-", stdin=json.dumps(manifest), check=check)

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind the pod by hand, without any scheduler."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))

    def exec(self, namespace: str, pod: str, *command: str, container: str = "") -> str:
        """Return what a command prints inside the pod's container."""
        chosen = ("-c", container) if container else ()
        return self.kubectl("exec", "-n", namespace, pod, *chosen, "--", *command).stdout

    def environment(self, namespace: str, pod: str, container: str = "") -> dict[str, str]:
        """Return the environment of the container's first process, read inside the container."""
        text = self.exec(namespace, pod, "cat", "/proc/1/environ", container=container)
        return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)

    def on_node(self, node: str, *command: str) -> str:
        """Return what a command prints inside the container that is the node."""
        container = self.get("node", node)["spec"]["providerID"].rsplit("/", 1)[-1]
        done = subprocess.run(
            ("docker", "exec", container, *command), capture_output=True, text=True, timeout=limit(60), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def condition(self, namespace: str, pod: str, kind: str = "PodScheduled") -> Json:
        """Return the pod's condition of that kind; empty when the condition or the pod does not exist."""
        found = self.find("pod", "-n", namespace, pod) or {"status": {}}
        return next((c for c in found["status"].get("conditions", []) if c["type"] == kind), {})


def run_playbook(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook against the test cluster and return its output, whatever its exit status."""
    command = ("ansible-playbook", *arguments, "-e", "@tests/cluster/vars.yml")
    # YAML results and no colour, so that the test can search the output that a user would read.
    # molecule forces colour.
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit(600), check=False
    )
