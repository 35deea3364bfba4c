"""Ansible module: what preflight wants to know of this host, read in one go. Changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_info
short_description: Disks, memory, tools and container engine of this host
description:
  - Reads what decides whether a cluster can be made here.
options:
  cluster:
    description: Name of the kind cluster that may run here already.
    type: str
    required: true
  paths:
    description: Folders to measure the free space of; they need not exist.
    type: list
    elements: path
    required: true
  port:
    description: Port to try; 0 tries none.
    type: int
    default: 0
author: gpu-scheduler
"""

PROGRAMS = ("git", "sudo", "dockerd", "debootstrap")

# The engine in one line: its data, where it pulls from, and its default registry by the API that came before /v2/.
ENGINE = "{{.DockerRootDir}}|{{range .RegistryConfig.Mirrors}}{{.}} {{end}}|{{.IndexServerAddress}}"


def disk(path: str) -> dict[str, Any]:
    """Free space where this folder is, or will be."""
    folder = next(parent for parent in [Path(path), *Path(path).parents] if parent.exists())
    return {"path": path, "free_mib": shutil.disk_usage(folder).free >> 20, "device": folder.stat().st_dev}


def memory_mib() -> int:
    """The kernel's own estimate of what can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:"))


def port_is_free(port: int) -> bool:
    """Whether nobody listens on this port of the loopback address."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def docker(*arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the engine's client; a missing client is a failed one."""
    command = ["docker", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def registry(mirrors: str, index: str) -> str:
    """Where the engine would pull from, without a path."""
    address = next(iter([*mirrors.split(), index]), "")
    return "/".join(address.split("/")[:3])


def engine(cluster: str) -> dict[str, Any]:
    """What the container engine says of itself, and of the cluster."""
    code, line, error = docker("info", "--format", ENGINE)
    # Without an engine the client still exits 0 in some releases, with an empty root.
    answer = line.splitlines()[-1] if code == 0 and line else "||"
    root, mirrors, index = answer.split("|")
    ours = ("--quiet", "--filter", f"label=io.x-k8s.kind.cluster={cluster}")
    place = disk(root or "/var/lib/docker")
    return {
        "engine_answers": bool(root),
        "engine_denied": "permission denied" in error.lower(),
        "engine_root": place["path"],
        "engine_free_mib": place["free_mib"],
        "engine_device": place["device"],
        "engine_registry": registry(mirrors, index),
        "cluster_runs": bool(root and docker("ps", *ours)[1]),
        # A stopped engine keeps its secret, so its data folder stands for a cluster that may be in there.
        "cluster_exists": bool(docker("ps", "--all", *ours)[1]) if root else Path("/var/lib/docker").exists(),
    }


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "paths": {"type": "list", "elements": "path", "required": True},
            "port": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    module.exit_json(
        changed=False,
        system=platform.system(),
        machine=platform.machine(),
        python=platform.python_version(),
        is_root=os.geteuid() == 0,
        is_debian=Path("/etc/debian_version").exists(),
        programs=[name for name in PROGRAMS if shutil.which(name, path=path)],
        disks=[disk(path) for path in module.params["paths"]],
        memory_mib=memory_mib(),
        port_is_free=not module.params["port"] or port_is_free(module.params["port"]),
        **engine(module.params["cluster"]),
    )


if __name__ == "__main__":
    main()
