"""A user without rights on this host, who has a copy of the checkout and a kubeconfig: the reader of the page.

Each command runs as user 65534 with no group, no capability and no way to gain one. In a mount namespace of its own it
sees the checkout's Python environment, which may be in a folder that only root can read, and a list of users in which
it has a home.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cluster import plays
from tests.cluster.clusters import ROOT
from tests.suites.steps import git_files

USER: Final = 65534
VENV: Final = (ROOT / ".venv").resolve()
# An address at which no container engine listens.
NO_ENGINE: Final = "unix:///nonexistent/docker.sock"
KUBECTL_AND_KIND: Final = ("kubectl", "kind")


class Unprivileged:
    """The user's home: a checkout, programs, and a kubeconfig."""

    def __init__(self, home: Path) -> None:
        """Create nothing."""
        self.home = home
        self.checkout = home / "gpu-scheduler"
        self.kubeconfig = home / ".kube" / "config"

    def make(self) -> None:
        """Copy the checkout with its uncommitted files, and kubectl; everything belongs to the user."""
        assert os.geteuid() == 0, "only root can act as a user without rights"
        shutil.rmtree(self.home, ignore_errors=True)
        for name in git_files("."):
            target = self.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        self._make_environment()
        programs = self.home / "bin"
        programs.mkdir()
        shutil.copy2((VENV / "bin" / "kubectl").resolve(), programs / "kubectl")
        self.kubeconfig.parent.mkdir()
        users = f"root:x:0:0::/root:/bin/sh\nreader:x:{USER}:{USER}::{self.home}:/bin/bash\n"
        (self.home / "passwd").write_text(users, encoding="utf-8")
        self._own(self.home)

    def write(self, path: Path, text: str) -> None:
        """Write a file of the user's."""
        path.write_text(text, encoding="utf-8")
        self._own(path)

    def run(self, script: str) -> plays.Run:
        """Run a script of bash in the copy of the checkout; the result counts the changes of the plays in it."""
        return plays.run(*self._command(script), cwd=self.checkout)

    def _make_environment(self) -> None:
        """Make a .venv that is the checkout's own, except that it has neither kind nor kubectl."""
        venv = self.checkout / ".venv"
        programs, python = venv / "bin", self.home / "python"
        for folder in (programs, venv / "lib", python):
            folder.mkdir(parents=True)
        (venv / "lib64").symlink_to("lib")
        for source in (VENV / "bin").iterdir():
            if source.name in KUBECTL_AND_KIND or source.name.startswith("python"):
                continue
            text = source.read_bytes()
            own, other = (f"#!{folder}/bin/python".encode() for folder in (venv, VENV))
            (programs / source.name).write_bytes(own + text.removeprefix(other) if text.startswith(other) else text)
            shutil.copymode(source, programs / source.name)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (programs / version).symlink_to(python / "bin" / version)
        for name in ("python", "python3"):
            (programs / name).symlink_to(version)
        (venv / "pyvenv.cfg").write_text(f"home = {python}/bin\ninclude-system-site-packages = false\n")
        # make installs the environment when these are older than the locks.
        for name in (".deploy.stamp", ".dev.stamp"):
            (venv / name).touch()

    def _command(self, script: str) -> tuple[str, ...]:
        environment = {
            "HOME": str(self.home),
            "PATH": f"{self.home}/bin:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            # A Python that was built as a library knows only where it was installed.
            "LD_LIBRARY_PATH": f"{self.home}/python/lib",
            "DOCKER_HOST": NO_ENGINE,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
        }
        mounts = {
            VENV / "lib": self.checkout / ".venv" / "lib",
            Path(sys.base_prefix): self.home / "python",
            self.home / "passwd": Path("/etc/passwd"),
        }
        mounting = "".join(f"mount --bind '{source}' '{target}' && " for source, target in mounts.items())
        identity = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        dropping = ("setpriv", *identity, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
        return (
            *("unshare", "--mount", "sh", "-euc", f'{mounting}exec "$@"', "sh"),
            *dropping,
            *("env", "--ignore-environment", *(f"{name}={value}" for name, value in environment.items())),
            *("bash", "-euo", "pipefail", "-c", script),
        )

    def _own(self, path: Path) -> None:
        subprocess.run(("chown", "--recursive", "--no-dereference", f"{USER}:{USER}", str(path)), check=True)
