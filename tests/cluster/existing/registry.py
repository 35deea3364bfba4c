"""A container registry on this host: Debian's package docker-registry, unpacked and run as a process.

The host's engine pushes to `localhost:PORT`; the nodes pull the same names through their network's gateway.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.ports import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


CONFIGURATION: Final = """\
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {folder}/storage}}
http: {{addr: "0.0.0.0:{port}"}}
"""
MIRROR: Final = """\
server = "http://{gateway}:{port}"
[host."http://{gateway}:{port}"]
  capabilities = ["pull", "resolve"]
"""


READ_MIRRORS: Final = """\
mkdir -p {folder} && cat > {folder}/hosts.toml
grep -q config_path /etc/containerd/config.toml && exit
printf '\\n[plugins."io.containerd.cri.v1.images".registry]\\n  config_path = "/etc/containerd/certs.d"\\n' \\
  >> /etc/containerd/config.toml
systemctl restart containerd
"""
"""Our node image reads no folder of mirrors, kind's does."""


class Registry:
    """The registry whose files are in the folder; each process of the scenario finds the same one."""

    def __init__(self, folder: Path) -> None:
        """Start nothing."""
        self._folder = folder
        self._program = folder / "package" / "usr" / "bin" / "docker-registry"
        self._pid = folder / "pid"

    @property
    def address(self) -> str:
        """Its host and port, as an image's name begins."""
        configured = (self._folder / "config.yml").read_text(encoding="utf-8")
        found = re.search(r"0\.0\.0\.0:(\d+)", configured)
        assert found
        return f"localhost:{found[1]}"

    def start(self) -> None:
        """Unpack the package if it is missing, and start the registry unless it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._program.exists():
            self._unpack()
        if self._runs():
            return
        configuration = self._folder / "config.yml"
        configuration.write_text(CONFIGURATION.format(folder=self._folder, port=free_port()), encoding="utf-8")
        with (self._folder / "log").open("ab") as log:
            command = (self._program, "serve", configuration)
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._pid.write_text(str(process.pid), encoding="utf-8")
        eventually("the registry answers", self._answers, 20)

    def let_node_pull(self, container: str, gateway: str) -> None:
        """Tell the container runtime of a kind node where the registry is."""
        script = READ_MIRRORS.format(folder=f"/etc/containerd/certs.d/{self.address}")
        mirror = MIRROR.format(gateway=gateway, port=self.address.partition(":")[2])
        subprocess.run(
            ("docker", "exec", "-i", container, "sh", "-c", script), input=mirror, text=True, check=True, timeout=60
        )

    def stop(self) -> None:
        """Stop the process that `start` started, and remove all files."""
        if self._runs():
            os.kill(int(self._pid.read_text(encoding="utf-8")), signal.SIGTERM)
            eventually("the registry to end", lambda: not self._runs(), 20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _unpack(self) -> None:
        """Unpack without installing: the package's own start script would start a registry of this host."""
        command = "apt-get download docker-registry || { apt-get update --quiet && apt-get download docker-registry; }"
        subprocess.run(("sh", "-c", command), cwd=self._folder, check=True, stdout=sys.stderr, timeout=300)
        (package,) = self._folder.glob("docker-registry_*.deb")
        subprocess.run(("dpkg", "--extract", package, self._folder / "package"), check=True, timeout=60)
        package.unlink()

    def _runs(self) -> bool:
        """Whether the process of the pid file is our registry: its number may belong to another process by now."""
        try:
            program = Path("/proc", self._pid.read_text(encoding="utf-8"), "exe").readlink()
        except OSError:
            return False
        return program == self._program

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/v2/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class _Refusal(BaseHTTPRequestHandler):
    """Answers every request with 401, as a registry does to somebody who has not logged in."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the name of the method

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@contextmanager
def refusing() -> Iterator[str]:
    """Yield the address of a registry that refuses everybody."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusal)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
