"""What running containers have: their device files as the kernel shows them on the node, beside what was allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.cluster.declared import uuids

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster, Json

NODES: Final = ("node1", "node2", "node3", "node4")
MAJOR: Final = 120
"""Of simulated devices. Linux has no driver with it: a file that may be opened answers ENXIO."""
PREPARED: Final = "/var/lib/kubelet/plugins/gpu.agentaflow.io/prepared.json"
# A process's environment and the root of its file system, for each process with the variable, in blocks.
_READ: Final = """
for process in $(grep -lazs '^CUDA_VISIBLE_DEVICES=' /proc/[0-9]*/environ); do
  echo "--"
  tr '\\0' '\\n' <"$process" | grep -E '^(HOSTNAME|CUDA_VISIBLE_DEVICES)='
  ls "${process%environ}root/dev" | grep '^nvidia'
done
exit 0
"""
# Opens the files, and says for each which error the open had.
_OPEN: Final = """
import errno, os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("opened")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
# Makes the files as whoever may, and opens them.
_MAKE: Final = """
import os, stat, sys
for path in sys.argv[1:]:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev({major}, int(path.rpartition("nvidia")[2])))
"""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of one container, on one node."""

    variable: tuple[str, ...]
    """The UUIDs in CUDA_VISIBLE_DEVICES."""
    files: frozenset[str]
    """The names of the device files."""


def containers(cluster: Cluster, node: str) -> dict[str, Gpus]:
    """Return by name of the pod what each container on the node has whose environment has the variable."""
    found: dict[str, Gpus] = {}
    for block in cluster.on_node(node, "sh", "-c", _READ).split("--\n")[1:]:
        lines = block.split()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        files = frozenset(line for line in lines if "=" not in line)
        gpus = Gpus(tuple(filter(None, values["CUDA_VISIBLE_DEVICES"].split(","))), files)
        name = values["HOSTNAME"]
        assert found.setdefault(name, gpus) == gpus, f"the processes of {name} differ: {found[name]} and {gpus}"
    return found


def line(cluster: Cluster, node: str, *indices: int) -> Gpus:
    """Return what a container of a map's line must have."""
    known = uuids(cluster, node)
    return Gpus(tuple(known[index] for index in indices), frozenset(f"nvidia{index}" for index in indices))


def allocated(cluster: Cluster) -> dict[str, dict[str, set[str]]]:
    """Return by node and pod the UUIDs of its claims. A GPU of two claims fails the test."""
    claims: list[Json] = cluster.get("resourceclaims", "-A")["items"]
    holders: dict[str, str] = {}
    found: dict[str, dict[str, set[str]]] = {node: {} for node in NODES}
    for claim in claims:
        name, status = claim["metadata"]["name"], claim.get("status", {})
        for result in status.get("allocation", {}).get("devices", {}).get("results", []):
            device = f"{result['pool']}/{result['device']}"
            assert device not in holders, f"{device} is allocated to {holders[device]} and to {name}"
            holders[device] = name
            for user in status.get("reservedFor", []):
                gpus = found[result["pool"]].setdefault(user["name"], set())
                gpus.add(f"GPU-{result['device'].removeprefix('gpu-')}")
    return found


def opened(cluster: Cluster, namespace: str, pod: str, *paths: str) -> list[str]:
    """Return for each path what a process of the container gets when it opens it: `opened`, or the error's name."""
    return cluster.exec(namespace, pod, "python3", "-c", _OPEN, *paths).split()


def make_files(cluster: Cluster, namespace: str, pod: str, *paths: str) -> None:
    """Make device files of simulated GPUs in the container, which must be root's."""
    cluster.exec(namespace, pod, "python3", "-c", _MAKE.format(major=MAJOR), *paths)
