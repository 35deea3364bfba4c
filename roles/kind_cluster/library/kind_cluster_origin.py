"""Ansible module: which checkout created the kind cluster of this name, read from the engine.

kind has no option to label a container. So the nodes that this role creates are marked by mounts of /dev/null: a path
inside the container names the checkout. A mark exists exactly as long as its container, so it cannot be stale. Reads
only.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kind_cluster_origin
short_description: The checkout that created a kind cluster
description:
  - Lists the containers with the cluster's label, and those among them that this checkout did not create.
  - A container with a mark was created by the checkout that the mark names. One without a mark was created by an
    older version, which set no marks, if the kubeconfig of this inventory has its cluster's address. Otherwise it is
    not ours.
options:
  name:
    description: The cluster's name.
    type: str
    required: true
  checkout:
    description: The folder of this checkout, without symbolic links.
    type: str
    required: true
  known_server:
    description: The address that this inventory's kubeconfig has for the cluster; empty if it has none.
    type: str
    required: true
  made_by:
    description: The path below which a mark names the checkout.
    type: str
    required: true
  made_network:
    description: The path of the mark that kind's network was created with the cluster.
    type: str
    required: true
author: gpu-scheduler
"""

RETURN = r"""
answers:
  description: Whether the engine answers.
  type: bool
  returned: always
containers:
  description: The names of the cluster's containers.
  type: list
  returned: always
strangers:
  description: The containers that this checkout did not create.
  type: list
  returned: always
makers:
  description: The checkouts that the marks of the strangers name.
  type: list
  returned: always
server:
  description: The API server's address on this host; empty without a control plane.
  type: str
  returned: always
network_exists:
  description: Whether kind's network exists.
  type: bool
  returned: always
made_network:
  description: Whether kind's network was created with this cluster.
  type: bool
  returned: always
"""

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
API_PORT = "6443/tcp"

Document = dict[str, Any]


class Container:
    """A node's settings of its creation, which are known for a stopped container too."""

    def __init__(self, inspected: Document, made_by: str) -> None:
        asked = inspected["HostConfig"]
        self.name: str = inspected["Name"].lstrip("/")
        # SOURCE:DESTINATION, and options after another colon.
        self.mounts = [bind.split(":")[1] for bind in asked.get("Binds") or []]
        self.maker: str = next(
            (mount.removeprefix(made_by) for mount in self.mounts if mount.startswith(f"{made_by}/")), ""
        )
        bound = (asked.get("PortBindings") or {}).get(API_PORT) or [{"HostPort": ""}]
        self.port: str = bound[0]["HostPort"]


def docker(*arguments: str) -> str:
    """Return the output of the engine's client; raises OSError or SubprocessError if it failed."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603, S607
    return done.stdout


def judge(containers: list[Container], asked: Document) -> Document:
    """Return which checkouts created these containers."""
    port = next((container.port for container in containers if container.port), "")
    server = f"https://127.0.0.1:{port}" if port else ""
    # Without a mark only the kubeconfig shows whether the cluster is ours.
    known = bool(server) and server == asked["known_server"]
    foreign = [
        container
        for container in containers
        if (container.maker != asked["checkout"] if container.maker else not known)
    ]
    return {
        "containers": [container.name for container in containers],
        "strangers": [container.name for container in foreign],
        "makers": sorted({container.maker for container in foreign if container.maker}),
        "server": server,
        "made_network": any(asked["made_network"] in container.mounts for container in containers),
    }


def read(asked: Document) -> Document:
    """Return the module's result."""
    label = f"label={CLUSTER_LABEL}={asked['name']}"
    try:
        found = docker("ps", "--all", "--quiet", "--filter", label).split()
        network = docker("network", "ls", "--quiet", "--filter", "name=^kind$").strip()
    except (OSError, subprocess.SubprocessError):
        return {"answers": False, "network_exists": False, **judge([], asked)}
    inspected = json.loads(docker("inspect", *found)) if found else []
    containers = [Container(each, asked["made_by"]) for each in inspected]
    return {"answers": True, "network_exists": bool(network), **judge(containers, asked)}


def main() -> None:
    """Return the result to Ansible."""
    options = ("name", "checkout", "known_server", "made_by", "made_network")
    module = AnsibleModule(
        argument_spec={option: {"type": "str", "required": True} for option in options}, supports_check_mode=True
    )
    try:
        module.exit_json(changed=False, **read(module.params))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        module.fail_json(msg=f"cannot tell who made cluster {module.params['name']}: {error}")


if __name__ == "__main__":
    main()
