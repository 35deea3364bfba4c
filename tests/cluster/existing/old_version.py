"""v0.1.0, the oldest version to upgrade from, and its own play."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from tests.cluster import plays
from tests.cluster.clusters import ROOT
from tests.cluster.existing.own_cluster import CLUSTER, HOME, NAME, REGISTRY

COMMIT: Final = "b434b27"
FOLDER: Final = HOME / "v0.1.0"
VALUES: Final = HOME / "v0.1.0.json"
# Its proof tolerates no taint. It would build a node image of its own, and its preflight asks for room for that.
LEFT_OUT: Final = "preflight,container_engine,node_image,kind_cluster,check,evidence"


def unpack() -> None:
    """Unpack the commit's files; the environment is this checkout's, whose pins have not moved."""
    if FOLDER.exists():
        return
    FOLDER.mkdir(parents=True)
    archive = subprocess.run(("git", "-C", str(ROOT), "archive", COMMIT), capture_output=True, check=False)
    assert archive.returncode == 0, (
        f"cannot read {COMMIT} (v0.1.0): {archive.stderr.decode()}; fetch the whole history: git fetch --unshallow"
    )
    subprocess.run(("tar", "--extract", f"--directory={FOLDER}"), input=archive.stdout, check=True)
    (FOLDER / ".venv").symlink_to(ROOT / ".venv")


def play(*options: str) -> plays.Run:
    """Run its own play as an administrator with a container engine."""
    kept = ("HOME", "PATH", "LANG", "DOCKER_HOST", "XDG_CACHE_HOME")
    environment = {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
    }
    # Nothing of the environment that molecule gives to this version's plays.
    clean = ("env", "--ignore-environment", *(f"{name}={value}" for name, value in environment.items()))
    given = (
        *("-e", f"kubeconfig={CLUSTER.kubeconfig}", "-e", f"kube_context=kind-{NAME}"),
        *("-e", f"image_registry={REGISTRY.address}/v0.1.0", "-e", f"@{VALUES}"),
    )
    command = ("ansible-playbook", "--inventory=inventory/existing", "site.yml", *given, *options)
    return plays.run(*clean, *command, cwd=FOLDER).succeeded()


def push_images() -> None:
    """Build its images and push them, so that its play need not do so under load."""
    play("--tags", "images")


def deploy() -> None:
    """Install it, or put it in the place of another version."""
    play("--skip-tags", LEFT_OUT)
