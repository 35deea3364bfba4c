"""Ansible module: the facts of this host that preflight needs, read in one task. Changes nothing."""

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
  - Reads whether this host can run a cluster.
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
  programs:
    description: More programs to look for, names or paths.
    type: list
    elements: str
    default: []
  engine:
    description: Whether to ask the container engine, which can take 20 s where it hangs.
    type: bool
    default: true
author: gpu-scheduler
"""

PROGRAMS = ("dockerd", "debootstrap")

MEMINFO = Path("/proc/meminfo")

# Of any version: who has it has built it.
NODE_IMAGE = "gpu-scheduler/node"

# The engine in one line: its data folder, its mirrors, and its default registry by the API before /v2/.
ENGINE = "{{.DockerRootDir}}|{{range .RegistryConfig.Mirrors}}{{.}} {{end}}|{{.IndexServerAddress}}"


def disk(path: str) -> dict[str, Any]:
    """Return the free space at this folder, or at its nearest existing parent."""
    folder = next(parent for parent in [Path(path), *Path(path).parents] if parent.exists())
    return {"path": path, "free_mib": shutil.disk_usage(folder).free >> 20, "device": folder.stat().st_dev}


def memory_mib() -> int:
    """Return the kernel's own estimate of the memory that is available without swapping; 0 where it is not Linux."""
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), 0)


def root_by() -> str:
    """Return what this user needs to be root: nothing, sudo, or a password for it; empty where it cannot be root."""
    if os.geteuid() == 0:
        return "nothing"
    if not shutil.which("sudo"):
        return ""
    try:
        done = subprocess.run(("sudo", "-n", "true"), capture_output=True, timeout=20, check=False)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return "password"
    return "password" if done.returncode else "sudo"


def port_is_free(port: int) -> bool:
    """Return whether no program listens on this port of the loopback address."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def docker(*arguments: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of the engine's client; a missing client counts as failed."""
    command = ["docker", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def registry(mirrors: str, index: str) -> str:
    """Return the registry from which the engine would pull, without a path."""
    address = next(iter([*mirrors.split(), index]), "")
    return "/".join(address.split("/")[:3])


def engine(cluster: str, *, asked: bool) -> dict[str, Any]:
    """Return the state of the container engine, and of the cluster in it. One that is not asked does not answer."""
    code, line, error = docker("info", "--format", ENGINE) if asked else (1, "", "")
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
        "images_built": bool(root and docker("image", "ls", "--quiet", "--filter", f"reference={NODE_IMAGE}")[1]),
        "cluster_runs": bool(root and docker("ps", *ours)[1]),
        # A stopped engine cannot list its containers, so an existing data folder counts as an existing cluster.
        "cluster_exists": bool(docker("ps", "--all", *ours)[1]) if root else Path("/var/lib/docker").exists(),
    }


def main() -> None:
    """Return the result to Ansible."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "paths": {"type": "list", "elements": "path", "required": True},
            "port": {"type": "int", "default": 0},
            "programs": {"type": "list", "elements": "str", "default": []},
            "engine": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    module.exit_json(
        changed=False,
        system=platform.system(),
        machine=platform.machine(),
        python=platform.python_version(),
        root_by=root_by(),
        is_debian=Path("/etc/debian_version").exists(),
        programs=[name for name in (*PROGRAMS, *module.params["programs"]) if shutil.which(name, path=path)],
        archives=[str(path) for path in Path(module.params["paths"][0]).glob("images/node-*.tar")],
        disks=[disk(path) for path in module.params["paths"]],
        memory_mib=memory_mib(),
        port_is_free=not module.params["port"] or port_is_free(module.params["port"]),
        **engine(module.params["cluster"], asked=module.params["engine"]),
    )


if __name__ == "__main__":
    main()
