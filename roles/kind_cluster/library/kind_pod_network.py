"""Ansible module: a pod network for kind nodes whose image has no network of its own.

Every node assigns addresses of its own range with the standard CNI plugins, and has routes to the other nodes' ranges.
Routes and the address translation are state of the node's network namespace: a restart of the engine loses them, and
may swap the nodes' addresses. So every run compares them with the required ones.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kind_pod_network
short_description: CNI configuration and routes of kind nodes
description:
  - Writes each node's CNI configuration and the routes to the other nodes' pods.
  - Adds the address translation that lets pods reach beyond the cluster.
options:
  nodes:
    description: The container, address and pod_cidr of each node.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The node's name.
        type: str
        required: true
      container:
        description: The node's container.
        type: str
        required: true
      address:
        description: The node's present address.
        type: str
        required: true
      pod_cidr:
        description: The range of its pods.
        type: str
        required: true
author: gpu-scheduler
"""

CONFIGURATION = "/etc/cni/net.d/10-pods.conflist"
# The range of all pods, which is kind's own default.
PODS = "10.244.0.0/16"
# The rule for traffic that leaves the cluster, as iptables prints it.
MASQUERADE = f"POSTROUTING -s {PODS} ! -d {PODS} -o eth0 -j MASQUERADE"

# One call reads all three: the configuration, our routes (protocol static), the translation rules.
OBSERVE = f"""
cat {CONFIGURATION} 2>/dev/null || true
echo ---
ip route show proto static
echo ---
iptables -t nat -S POSTROUTING
"""

Node = dict[str, str]


def configuration(pod_cidr: str) -> str:
    """Return the CNI configuration that connects the pods of one node."""
    ptp = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            # On a tmpfs: a restart ends all pods, so it must also free their addresses.
            "dataDir": "/run/cni-pods",
            "ranges": [[{"subnet": pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [ptp, portmap]})


def steps(node: Node, nodes: list[Node], observed: str) -> list[str]:
    """Return the shell commands that change one node from the observed to the required state."""
    written, routes, rules = (part.strip() for part in observed.split("---"))
    present = {" ".join(line.split()[:3]) for line in routes.splitlines()}
    wanted = [f"{other['pod_cidr']} via {other['address']}" for other in nodes if other is not node]
    todo = [f"ip route replace {route} proto static" for route in wanted if route not in present]
    if f"-A {MASQUERADE}" not in rules.splitlines():
        todo.append(f"iptables -t nat -A {MASQUERADE}")
    # Last, because the configuration makes the node ready.
    if written != configuration(node["pod_cidr"]):
        todo.append("mkdir -p /etc/cni/net.d")
        todo.append(f"printf %s {shlex.quote(configuration(node['pod_cidr']))} > {CONFIGURATION}")
    return todo


def execute(container: str, script: str) -> str:
    """Return the output of a script in a node."""
    command = ["docker", "exec", container, "sh", "-euc", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{container}: {done.stderr.strip()}")
    return done.stdout


def settle(node: Node, nodes: list[Node], *, dry: bool) -> list[str]:
    """Bring one node to the required state; return the commands for it."""
    todo = steps(node, nodes, execute(node["container"], OBSERVE))
    if todo and not dry:
        execute(node["container"], "\n".join(todo))
    return [f"{node['name']}: {step}" for step in todo]


def main() -> None:
    """Return the result to Ansible."""
    text = {"type": "str", "required": True}
    node: dict[str, Any] = {"name": text, "container": text, "address": text, "pod_cidr": text}
    module = AnsibleModule(
        argument_spec={"nodes": {"type": "list", "elements": "dict", "required": True, "options": node}},
        supports_check_mode=True,
    )
    nodes = module.params["nodes"]
    try:
        with ThreadPoolExecutor() as pool:
            done = pool.map(lambda node: settle(node, nodes, dry=module.check_mode), nodes)
            todo = [step for steps_of_node in done for step in steps_of_node]
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"The pod network could not be set: {error}")
    module.exit_json(changed=bool(todo), steps=todo)


if __name__ == "__main__":
    main()
