"""The container engine, cache and network of these tests, which damage only these and nothing of the user's.

`make` and `unmake` can be called repeatedly. `unmake` removes everything, from any state.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster import plays
from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHES: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
REAL: Final = CACHES / "gpu-scheduler"
HOME: Final = CACHES / "gpu-scheduler-healing"
CACHE: Final = HOME / "cache"
ENGINE: Final = HOME / "engine"
# The engine's run folder: role container_engine names it after the engine's folder.
RUNNING: Final = Path(f"/run/gpu-scheduler-engine-{hashlib.sha1(str(ENGINE).encode()).hexdigest()[:8]}")  # noqa: S324

NAME: Final = "gpu-scheduler-healing"
KUBE: Final = ROOT / ".kube" / NAME
VARS: Final = "@tests/cluster/healing/vars.yml"

# A bridge with a known name, for one iptables rule that accepts its traffic on a host that drops forwarded packets. The
# engine sets no rules, and the kernel sends bridged packets through iptables if br_netfilter is loaded.
BRIDGE: Final = "gs-healing"
RULE: Final = ("FORWARD", "-i", BRIDGE, "-o", BRIDGE, "-j", "ACCEPT")
# A foreign container in kind's network: `make down` must leave container and network alone.
STRANGER: Final = "stranger"


entries: Final = load("plugins", "modules", "cache_entry.py")


def docker(*arguments: str, check: bool = True) -> str:
    """Return the output of docker on the tests' own engine; raise with its output when it fails and `check` is true."""
    environment = {**os.environ, "DOCKER_HOST": f"unix://{ENGINE}/docker.sock"}
    command = ("docker", *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit(120), check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip() if done.returncode == 0 else ""


def engine_answers() -> bool:
    """Whether the tests' own engine answers."""
    return bool(docker("version", "--format", "{{.Server.Version}}", check=False))


def containers() -> list[str]:
    """Return the names of the cluster's running containers."""
    return sorted(docker("ps", "--filter", f"label=io.x-k8s.kind.cluster={NAME}", "--format", "{{.Names}}").split())


def start_engine() -> None:
    """Start the engine as the play does."""
    plays.run("ansible-playbook", "site.yml", "--tags", "container_engine", "-e", VARS).succeeded()


def damage(entry: Path) -> None:
    """Truncate an entry of the tests' cache to its half.

    A file that the real cache shares (a hard link) stays whole there.
    """
    entries.keep([entry], dry=False)
    half = entry.with_name(f".{entry.name}.half")
    shutil.copy2(entry, half)
    os.truncate(half, entry.stat().st_size // 2)
    half.replace(entry)
    assert not entries.is_whole(entry)


def processes() -> Iterator[int]:
    """Yield the engine's own processes: dockerd, its containerd, the shims of its containers."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *arguments = path.read_text().split("\0")
        except OSError:
            continue
        ours = any(str(folder) in argument for folder in (ENGINE, RUNNING) for argument in arguments)
        if ours and Path(program).name.startswith(("dockerd", "containerd")):
            yield int(path.parent.name)


def _signal(number: signal.Signals) -> None:
    """Send a signal to each of the engine's processes. One may end meanwhile because another does."""
    for pid in sorted(processes()):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def crash() -> None:
    """Kill all of the engine's processes: the processes of containers lose their shim."""
    _signal(signal.SIGKILL)
    eventually("the engine to be dead", lambda: not list(processes()), 20)


def make() -> None:
    """Start the engine, and create cache and network if they are missing."""
    assert os.geteuid() == 0, "an engine of our own needs root"
    build_what_is_linked()
    if not CACHE.exists():
        for source in (REAL / "bin", *REAL.glob("images/wheelhouse-*"), *REAL.glob("images/*.tar*")):
            link(source, HOME / "cache.part" / source.relative_to(REAL))
        (HOME / "cache.part").rename(CACHE)
    start_engine()
    if not docker("network", "ls", "--quiet", "--filter", "name=^kind$"):
        docker("network", "create", "--opt", f"com.docker.network.bridge.name={BRIDGE}", "kind")
    if not docker("ps", "--all", "--quiet", "--filter", f"name=^{STRANGER}$"):
        (HOME / "empty.tar").write_bytes(bytes(10240))
        docker("import", str(HOME / "empty.tar"), STRANGER)
        docker("create", "--name", STRANGER, "--network", "kind", STRANGER, "/nothing")
    if subprocess.run(("iptables", "-C", *RULE), capture_output=True, check=False).returncode:
        subprocess.run(("iptables", "-I", *RULE), check=True)


def build_what_is_linked() -> None:
    """Build the programs and the node image's archive in the real cache if missing: these tests compile nothing."""
    if not list(REAL.glob("images/node-*.tar")):
        command = (
            "ansible-playbook",
            "site.yml",
            "--tags",
            "container_engine,node_image",
            "-e",
            "node_image_source=build",
        )
        subprocess.run((*command, "-e", "@tests/cluster/vars.yml"), cwd=ROOT, check=True)


def link(source: Path, dest: Path) -> None:
    """Hard-link a file, or every file of a folder."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, dest, copy_function=os.link)
    elif not dest.exists():
        dest.hardlink_to(source)


def unmake() -> None:
    """Remove containers, engine, network, rule, cache and kubeconfig."""
    # If it was never made, the programs to remove it may be missing.
    if HOME.exists() or RUNNING.exists():
        _take_down()
    for folder in (HOME, RUNNING, KUBE):
        eventually(f"{folder} to go", partial(_gone, folder), 20, 0.5)


def _take_down() -> None:
    if engine_answers():
        docker("rm", "--force", "--volumes", *docker("ps", "--all", "--quiet").split(), check=False)
        docker("network", "rm", "kind", check=False)
    _signal(signal.SIGTERM)
    try:
        eventually("the engine to end", lambda: not list(processes()), 20, 0.2)
    except AssertionError:
        crash()
    while subprocess.run(("iptables", "-D", *RULE), capture_output=True, check=False).returncode == 0:
        pass
    subprocess.run(("ip", "link", "delete", BRIDGE), capture_output=True, check=False)
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted(mounted, reverse=True):
        if any(Path(mount).is_relative_to(folder) for folder in (HOME, RUNNING)):
            subprocess.run(("umount", "--lazy", mount), check=False)


def _gone(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


if __name__ == "__main__":
    {"make": make, "unmake": unmake}[sys.argv[1]]()
