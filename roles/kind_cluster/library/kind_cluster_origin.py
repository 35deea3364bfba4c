"""Ansible module: who made the kind cluster of this name, read from the engine.

kind lets nobody label a container, so the nodes that this role creates carry marks as mounts of /dev/null: a path
inside the container says which checkout made it. A mark comes with its container and goes with it: no file of ours
can be stale. Reads only.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kind_cluster_origin
short_description: Who made a kind cluster
description:
  - Lists the containers that carry the cluster's label, and those among them that this checkout did not make.
  - A container with a mark was made by the checkout that the mark names. One without was made by an older version,
    which marked nothing, where the kubeconfig of this inventory leads to its cluster; else by somebody else.
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
    description: The address that this inventory's kubeconfig has for the cluster; empty where it has none.
    type: str
    required: true
  made_by:
    description: The path below which a mark names the checkout.
    type: str
    required: true
  made_network:
    description: The path of the mark that kind's network came with the cluster.
    type: str
    required: true
author: gpu-scheduler
"""

RETURN = r"""
answers:
  description: Whether the engine could be asked.
  type: bool
  returned: always
containers:
  description: The names of the cluster's containers.
  type: list
  returned: always
strangers:
  description: Those of the containers that this checkout did not make.
  type: list
  returned: always
makers:
  description: The checkouts that the marks of the strangers name.
  type: list
  returned: always
server:
  description: The API server's address on this host; empty where there is no control plane.
  type: str
  returned: always
network_exists:
  description: Whether kind's network is there.
  type: bool
  returned: always
made_network:
  description: Whether kind's network came with this cluster.
  type: bool
  returned: always
"""

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
API_PORT = "6443/tcp"

Document = dict[str, Any]


class Container:
    """A node as it was asked for at its creation: that does not change while it stands still."""

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
    """What the engine's client printed; raises OSError or SubprocessError where it failed."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603, S607
    return done.stdout


def judge(containers: list[Container], asked: Document) -> Document:
    """Who made these containers."""
    port = next((container.port for container in containers if container.port), "")
    server = f"https://127.0.0.1:{port}" if port else ""
    # Without a mark the kubeconfig is the only witness.
    known = bool(server) and server == asked["known_server"]
    strangers = [
        container
        for container in containers
        if (container.maker != asked["checkout"] if container.maker else not known)
    ]
    return {
        "containers": [container.name for container in containers],
        "strangers": [container.name for container in strangers],
        "makers": sorted({container.maker for container in strangers if container.maker}),
        "server": server,
        "made_network": any(asked["made_network"] in container.mounts for container in containers),
    }


def read(asked: Document) -> Document:
    """The module's answer."""
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
    """Answer Ansible."""
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
