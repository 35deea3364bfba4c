"""A host for real playbook runs that change nothing: fake programs that record their calls are first on its PATH.

Home, cache and kubeconfigs are temporary, and the engine's socket that every play gets does not exist.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

NAME: Final = "gpu-scheduler"
PORT: Final = "40001"
DESTROY: Final = "playbooks/destroy.yml"
CONTEXT: Final = f"kind-{NAME}"
OURS: Final = (CONTEXT, f"https://127.0.0.1:{PORT}")
OTHERS: Final = (
    ("kind-other", "https://127.0.0.1:40002"),
    ("prod", "https://prod.example.com"),
    ("kind-gpu-scheduler-2", "https://127.0.0.1:40003"),
    ("gpu-scheduler", "https://10.0.0.1:6443"),
)
REMOVAL: Final = f"docker rm --force --volumes {NAME}-control-plane {NAME}-worker"
BOOT: Final = Path("/proc/sys/kernel/random/boot_id").read_text()
# All programs with which a play, or Ansible itself, could change a host.
PROGRAMS: Final = (
    *("docker", "kind", "kubectl", "dockerd", "start-stop-daemon", "systemctl", "service", "iptables", "ip6tables"),
    *("apt-get", "aptitude", "apt", "dpkg", "debootstrap", "mount", "umount", "sysctl", "sudo", "su", "flock"),
)
# Programs and verbs that only read.
READING: Final = {
    "docker": ("version", "ps", "inspect", "network ls"),
    "kubectl": ("get ", "version"),
    "systemctl": ("show",),
}
# Options of kubectl before its verb.
WHERE: Final = ("--kubeconfig=", "--context=")


def kubeconfig(*entries: tuple[str, str], current: str = "") -> str:
    """Return a kubeconfig as kubectl writes it, with a context, a cluster and a user for each name and server."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server}} for name, server in entries],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name, _ in entries],
            # Text that YAML would read as a number or a date, to check that it stays text.
            "users": [{"name": name, "user": {"token": "1e3", "password": "2026-01-01"}} for name, _ in entries],
            "current-context": current,
            "preferences": {},
        }
    )


def nodes(made_by: str | Path = "", *, network: bool = False, name: str = NAME, **options: Any) -> Json:
    """Return the containers of a kind cluster by id, here their names; `made_by` is a checkout (empty: no mark)."""
    marks = ([f"/dev/null:/gpu-scheduler/made-by{made_by}"] if made_by else []) + (
        ["/dev/null:/gpu-scheduler/made-network"] if network else []
    )
    roles = {f"{name}-control-plane": options.get("port", PORT), f"{name}-worker": ""}
    return {
        node: {
            "labels": [f"io.x-k8s.kind.cluster={name}"],
            "networks": ["kind"],
            "running": options.get("running", True),
            "inspected": {
                "Name": f"/{node}",
                "Config": {"Image": "node", "Labels": {"io.x-k8s.kind.role": node.removeprefix(f"{name}-")}},
                "State": {"Running": options.get("running", True), "StartedAt": "2026-01-01T00:00:00Z"},
                "NetworkSettings": {"Networks": {"kind": {"IPAddress": ""}}, "Ports": {}},
                "HostConfig": {
                    "Binds": marks or None,
                    "PortBindings": {"6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]} if port else {},
                },
            },
        }
        for node, port in roles.items()
    }


@dataclass(frozen=True, slots=True)
class Run:
    """A finished play: its exit status, its output, and every call of a program."""

    status: int
    output: str
    calls: list[list[str]]

    def changes(self) -> list[str]:
        """Return the calls that did more than read."""
        reported = [(call[0], " ".join(word for word in call[1:] if not word.startswith(WHERE))) for call in self.calls]
        return [
            f"{program} {words}"
            for program, words in reported
            if not words.startswith(READING.get(program, ())) or program not in READING
        ]


@dataclass(slots=True)
class Host:
    """The host, an engine in it, and the user's kubeconfig."""

    folder: Path
    containers: Json = field(default_factory=dict)
    network: bool = True
    answers: bool = True

    def __post_init__(self) -> None:
        for each in ("home", "bin", "cache/gpu-scheduler/engine", "engine"):
            (self.folder / each).mkdir(parents=True)
        program = self.folder / "stand_in"
        text = (ROOT / "tests/contracts/fake_programs.py").read_text()
        program.write_text(f"#!{sys.executable} -IS\n{text}")
        program.chmod(0o755)
        for name in PROGRAMS:
            (self.folder / "bin" / name).symlink_to(program)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that the inventory names."""
        return self.folder / "home" / "kubeconfig"

    @property
    def marker(self) -> Path:
        """The file that records that we started the engine."""
        return self.folder / "cache/gpu-scheduler/engine/started"

    def left(self) -> set[str]:
        """Return the ids of the remaining containers."""
        return set(json.loads((self.folder / "engine.json").read_text())["containers"])

    def play(self, playbook: str, inventory: str, *options: str, **variables: object) -> Run:
        """Run a playbook with an inventory; variables are passed as a user would pass them."""
        engine = {"answers": self.answers, "network": self.network, "containers": self.containers}
        (self.folder / "engine.json").write_text(json.dumps(engine))
        notes = self.folder / "notes"
        notes.write_text("")
        # A kind inventory uses a kubeconfig in the checkout; here it is the file that the test wrote.
        given = {"tools_dir": str(self.folder / "bin"), **variables}
        if inventory == "kind":
            given["kubeconfig"] = str(self.kubeconfig)
        command = ("ansible-playbook", playbook, "-i", f"inventory/{inventory}", "-e", json.dumps(given), *options)
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment(), capture_output=True, text=True, timeout=280, check=False
        )
        calls = [json.loads(line) for line in notes.read_text().splitlines()]
        return Run(done.returncode, " ".join((done.stdout + done.stderr).split()), calls)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "KUBECONFIG": str(self.kubeconfig),
            "DOCKER_HOST": f"unix://{self.folder}/no.sock",
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.folder / "home" / ".ansible"),
            "STAND_IN_NOTES": str(self.folder / "notes"),
            "STAND_IN_ENGINE": str(self.folder / "engine.json"),
        }


def without(text: str, names: Iterable[str]) -> Any:
    """Return a kubeconfig as data, without these contexts, clusters and users."""
    read = yaml.safe_load(text)
    gone = set(names)
    sections = {
        section: [item for item in read[section] if item["name"] not in gone]
        for section in ("contexts", "clusters", "users")
    }
    return {**read, **sections}
