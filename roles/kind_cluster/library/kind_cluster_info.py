"""Ansible module: the state of a kind cluster, read from the engine and from the cluster itself.

Reads only. The state is derived from the running containers and objects, never from a marker of our own: so a cluster
that was stopped, partly created or changed by hand is reported correctly.
"""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kind_cluster_info
short_description: The state of a kind cluster
description:
  - Reads the cluster's containers from the engine, and its nodes, leases and system pods from the control plane.
options:
  name:
    description: The cluster's name.
    type: str
    required: true
  workers:
    description: The names that the worker nodes should have.
    type: list
    elements: str
    required: true
author: gpu-scheduler
"""

RETURN = r"""
state:
  description:
    - absent (no container), stopped (a container does not run), starting (the API does not answer yet),
      incomplete (creation was interrupted, or a container was removed), different (a complete cluster with other
      workers), settling (not everything is ready) or ready.
  type: str
  returned: always
problem:
  description: What keeps the cluster from being ready.
  type: str
  returned: always
nodes:
  description: The name, container, address and pod_cidr of each node.
  type: list
  returned: always
containers:
  description: The names of the cluster's containers, the control plane first.
  type: list
  returned: always
image:
  description: The image that the nodes run.
  type: str
  returned: always
port:
  description: The API server's port on this host.
  type: str
  returned: always
certificate_authority:
  description: The cluster's CA certificate as a kubeconfig holds it.
  type: str
  returned: always
"""

ROLE_LABEL = "io.x-k8s.kind.role"
CLUSTER_LABEL = "io.x-k8s.kind.cluster"

# Seconds. A kubelet renews its node's Lease every 10 s; the node controller marks the node unhealthy after 40 s.
LEASE_IS_FRESH = 25

# The pods of a stopped kubelet stay "ready" in the API. A pod that started before its node is from before a restart.
SYSTEM_PODS = ("kube-dns", "kube-proxy", "kindnet")

READ_CLUSTER = r"""
test -s /etc/kubernetes/admin.conf || exit 3
base64 -w0 /etc/kubernetes/pki/ca.crt
echo
exec kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout 5s \
  get nodes,leases,pods --all-namespaces --output json
"""

Document = dict[str, Any]


# READ_CLUSTER's exit status if kubeadm never ran.
NEVER_SET_UP = 3


class Container:
    """A node's container, as the engine describes it."""

    def __init__(self, inspected: Document) -> None:
        self.name: str = inspected["Name"].lstrip("/")
        self.image: str = inspected["Config"]["Image"]
        self.role: str = inspected["Config"]["Labels"].get(ROLE_LABEL, "")
        self.running: bool = inspected["State"]["Running"]
        self.started = instant(inspected["State"]["StartedAt"])
        networks = inspected["NetworkSettings"]["Networks"].values()
        self.address: str = next((network["IPAddress"] for network in networks), "")
        bound = inspected["NetworkSettings"]["Ports"].get("6443/tcp") or [{"HostPort": ""}]
        self.port: str = bound[0]["HostPort"]


def instant(text: str) -> datetime:
    """Parse a time as Go or Kubernetes writes it; fractions of a second are dropped."""
    return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)


def ready(thing: Document) -> bool:
    """Return whether condition Ready of a node or a pod is true."""
    conditions = thing.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def of_kind(items: list[Document], kind: str) -> list[Document]:
    """Return the objects of one kind in the answer to one request."""
    return [item for item in items if item["kind"] == kind]


def node_problem(node: Document, container: Container, leases: dict[str, Document], now: datetime) -> str:
    """Return why this node cannot be used yet; empty if it can."""
    name = node["metadata"]["name"]
    renewed = leases.get(name, {}).get("spec", {}).get("renewTime")
    if not renewed or instant(renewed) < container.started or (now - instant(renewed)).total_seconds() > LEASE_IS_FRESH:
        return f"{name}'s kubelet has not reported"
    return "" if ready(node) else f"{name} is not Ready"


def pod_problem(pod: Document, started: dict[str, datetime]) -> str:
    """Return why this system pod does not count as ready yet; empty if it does."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    if not ready(pod):
        return f"pod {name} is not Ready"
    for status in pod["status"].get("containerStatuses", []):
        running = status["state"].get("running")
        if not running or instant(running["startedAt"]) < started[node]:
            return f"pod {name} is from before the last start of {node}"
    return ""


def is_system(pod: Document) -> bool:
    """Return whether the cluster needs this pod."""
    labels = pod["metadata"].get("labels", {})
    named = labels.get("tier") == "control-plane" or labels.get("k8s-app", labels.get("app")) in SYSTEM_PODS
    return bool(
        named and pod["metadata"]["namespace"] == "kube-system" and not pod["metadata"].get("deletionTimestamp")
    )


def judge(containers: list[Container], items: list[Document], workers: list[str], now: datetime) -> Document:
    """Return the state of a cluster whose containers all run and whose API server answered with these objects."""
    nodes = {node["spec"].get("providerID", "").rpartition("/")[2]: node for node in of_kind(items, "Node")}
    lost = sorted(
        node["metadata"]["name"]
        for container, node in nodes.items()
        if node["spec"].get("providerID", "").startswith("kind://")
        and container not in {found.name for found in containers}
    )
    if lost:
        return {"state": "incomplete", "problem": f"the container of {', '.join(lost)} is gone", "nodes": []}
    unjoined = [container.name for container in containers if container.name not in nodes]
    if unjoined:
        return {"state": "incomplete", "problem": f"{', '.join(unjoined)} never joined", "nodes": []}
    found = [
        {
            "name": nodes[container.name]["metadata"]["name"],
            "container": container.name,
            "address": container.address,
            "pod_cidr": nodes[container.name]["spec"].get("podCIDR", ""),
        }
        for container in containers
    ]
    names = sorted(
        node["name"] for node, container in zip(found, containers, strict=True) if container.role == "worker"
    )
    if names != sorted(workers):
        return {"state": "different", "problem": f"its workers are {', '.join(names) or 'none'}", "nodes": found}
    leases = {
        lease["metadata"]["name"]: lease
        for lease in of_kind(items, "Lease")
        if lease["metadata"]["namespace"] == "kube-node-lease"
    }
    started = {nodes[container.name]["metadata"]["name"]: container.started for container in containers}
    system = [pod for pod in of_kind(items, "Pod") if is_system(pod)]
    problems = [node_problem(nodes[container.name], container, leases, now) for container in containers]
    problems += [pod_problem(pod, started) for pod in system]
    if not any(pod["metadata"]["labels"].get("k8s-app") == "kube-dns" for pod in system):
        problems.append("CoreDNS has no pod")
    problem = "; ".join(filter(None, problems))
    return {"state": "settling" if problem else "ready", "problem": problem, "nodes": found}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run the engine's client."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603


def read_containers(name: str) -> list[Container]:
    """Return the cluster's containers, the control plane first."""
    try:
        listed = run("docker", "ps", "--all", "--quiet", "--filter", f"label={CLUSTER_LABEL}={name}")
    except FileNotFoundError:
        return []  # no engine, no cluster: in check mode the engine may not be installed yet
    if listed.returncode or not listed.stdout.split():
        return []
    inspected = json.loads(run("docker", "inspect", *listed.stdout.split()).stdout)
    return sorted(map(Container, inspected), key=lambda container: (container.role != "control-plane", container.name))


def read(name: str, workers: list[str]) -> Document:
    """Return the module's result."""
    containers = read_containers(name)
    info: Document = {
        "state": "absent",
        "problem": "",
        "nodes": [],
        "containers": [container.name for container in containers],
        "image": "",
        "port": "",
        "certificate_authority": "",
    }
    if not containers:
        return info
    control_plane = containers[0]
    info |= {"image": control_plane.image, "port": control_plane.port}
    stopped = [container.name for container in containers if not container.running]
    if control_plane.role != "control-plane":
        return info | {"state": "incomplete", "problem": "it has no control plane"}
    if stopped:
        return info | {"state": "stopped", "problem": f"{', '.join(stopped)} does not run"}
    answer = run("docker", "exec", control_plane.name, "sh", "-c", READ_CLUSTER)
    if answer.returncode == NEVER_SET_UP:
        return info | {"state": "incomplete", "problem": "its control plane was never set up"}
    if answer.returncode:
        return info | {
            "state": "starting",
            "problem": f"the API server does not answer: {answer.stderr.strip()[-200:]}",
        }
    authority, _, objects = answer.stdout.partition("\n")
    info["certificate_authority"] = authority
    return info | judge(containers, json.loads(objects)["items"], workers, datetime.now(UTC))


def main() -> None:
    """Return the result to Ansible."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "workers": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module.params["name"], module.params["workers"]))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        module.fail_json(msg=f"The state of cluster {module.params['name']} could not be read: {error}")


if __name__ == "__main__":
    main()
