"""The installed command line: the package's scripts and kubectl on the path, with a kubeconfig."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import tomllib
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest

from gpu_scheduler.cli.main import main
from tests import objects
from tests.integration.command import SCHEDULER
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.objects import Object

MODELS: Final = {"node1": ("A100", 40960), "node2": ("A100", 81920), "node3": ("V100", 16384), "node4": ("L4", 24576)}
CONTAINER: Final[Object] = {"name": "main", "image": "registry.invalid/none", "env": objects.reading()}
TEMPLATE: Final[Object] = {"spec": {"containers": [CONTAINER]}}
"""A workload's template as it is after the webhook."""


class Installed:
    """The scripts that pip writes at installation, for one user."""

    def __init__(self, folder: Path, plane: ControlPlane, token: str, namespace: str) -> None:
        """Write scripts and kubeconfig. `namespace` is the namespace of the kubeconfig's context."""
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name, target in tomllib.loads((SCHEDULER / "pyproject.toml").read_text())["project"]["scripts"].items():
            module, _, function = target.partition(":")
            script = bin_folder / name
            script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n", encoding="utf-8")
            script.chmod(0o755)
        (bin_folder / "kubectl").symlink_to(program("kubectl"))
        config = json.loads(plane.kubeconfig(folder / "kubeconfig", token).read_text(encoding="utf-8"))
        config["contexts"][0]["context"]["namespace"] = namespace
        (folder / "kubeconfig").write_text(json.dumps(config), encoding="utf-8")
        measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
        self.env = {
            "PATH": f"{bin_folder}{os.pathsep}/usr/bin:/bin",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "PYTHONPATH": str(SCHEDULER),
            **measured,
        }

    def run(self, *words: str, given: str | None = None, code: int = 0) -> str:
        """Run a command, which must end with this exit code. Return its standard output."""
        result = subprocess.run(
            words, env=self.env, input=given, capture_output=True, text=True, timeout=limit(60), check=False
        )
        assert result.returncode == code, (words, result.stdout, result.stderr)
        return result.stdout

    def refused(self, *words: str, code: int, given: str | None = None) -> str:
        """Run a command that fails with this exit code and one line on standard error. Return that line."""
        result = subprocess.run(
            words, env=self.env, input=given, capture_output=True, text=True, timeout=limit(60), check=False
        )
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (code, "", 1), result
        return result.stderr

    def complaint(self, *words: str, code: int) -> str:
        """Run a command that ends with this exit code. Return its standard error."""
        result = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=limit(60), check=False)
        assert result.returncode == code, (words, result.stdout, result.stderr)
        return result.stderr

    def items(self, *words: str, code: int | None = 0) -> list[Any]:
        """Run a verb and return the items of its JSON. It must end with this exit code, or for None with 0 or 1."""
        found, items = self.answer(*words)
        assert found in ({0, 1} if code is None else {code}), items
        return items

    def answer(self, *words: str) -> tuple[int, list[Any]]:
        """Run a verb and return its exit code and the items of its JSON. It runs in this process: that is quick."""
        printed = io.StringIO()
        arguments = ["gpu-scheduler", *words, "-o", "json"]
        with (
            patch.dict(os.environ, self.env, clear=True),
            patch.object(sys, "argv", arguments),
            redirect_stdout(printed),
            pytest.raises(SystemExit) as end,
        ):
            main()
        found = json.loads(printed.getvalue())
        assert (found["apiVersion"], found["kind"]) == ("v1", "List")
        items: list[Any] = found["items"]
        return int(end.value.code or 0), items

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that does not end by itself."""
        return subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def on_terminal(
        self, *words: str, until: str, columns: int = 120, lines: int = 40, keys: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, str]:
        """Run a command on a terminal, until it has drawn `until` or ended. Return exit code and output.

        Then press each of the keys and wait until its text is drawn, or press Ctrl-C if there are none.
        """
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**self.env, "TERM": "xterm-256color"}
        process = subprocess.Popen(words, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        drawn, pressed = b"", 0
        try:
            # At the end of the command there is nothing more to read, which is an OSError.
            with suppress(OSError):
                while until not in drawn.decode(errors="replace"):
                    drawn += os.read(master, 4096)
                for key, text in keys:
                    pressed = len(drawn)
                    os.write(master, key.encode())
                    while text not in drawn[pressed:].decode(errors="replace"):
                        drawn += os.read(master, 4096)
                if not keys:
                    process.send_signal(signal.SIGINT)
                while chunk := os.read(master, 4096):
                    drawn += chunk
            return process.wait(limit(20)), drawn.decode(errors="replace")
        finally:
            process.kill()
            os.close(master)


def read_until(process: subprocess.Popen[str], *texts: str) -> str:
    """Read lines of the command's output until they have all these texts. Return the lines."""
    assert process.stdout is not None
    hangs = threading.Timer(limit(60), process.kill)
    hangs.start()
    text = ""
    for line in process.stdout:
        text += line
        if all(each in text for each in texts):
            hangs.cancel()
            return text
    raise AssertionError(f"the command ended, or hung, before it printed {texts}: {text}")


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Press Ctrl-C. Return exit code, standard output and standard error."""
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        # communicate() would lose what an earlier readline() has buffered.
        out, err = process.stdout.read(), process.stderr.read()
        return process.wait(limit(20)), out, err


def seen_of(pod: Object) -> tuple[Any, ...]:
    """Return the fields of a pod of the API server that `workloads` must show."""
    meta, spec = pod["metadata"], pod["spec"]
    conditions = pod.get("status", {}).get("conditions", [])
    waits: Object = next(
        (each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), {}
    )
    message = waits.get("message")
    return (
        meta["namespace"],
        meta["name"],
        meta["uid"],
        meta["creationTimestamp"],
        spec.get("nodeName"),
        [each for each in meta["annotations"].get("agentaflow.gpu/assigned-devices", "").split(",") if each],
        message,
        message.partition(":")[0] if message else None,
    )


def fields_of_view(item: Any) -> tuple[Any, ...]:
    """Return the same fields from an item of `workloads`."""
    keys = ("namespace", "name", "uid", "createdAt", "node", "devices", "message", "reason")
    return tuple(item[key] for key in keys)


def busy(namespace: Namespace) -> Namespace:
    """Create four nodes with four devices each, two pods that are bound and one that waits."""
    for name, (model, memory) in MODELS.items():
        devices = [{**objects.device(index), "model": model, "memoryTotalMiB": memory} for index in range(4)]
        namespace.node(name, annotations=objects.inventory(*devices), alias="small" if name == "node3" else None)
    namespace.pod("train-0", "0=node1:0,1\n1=node2:2\n", "0,1")
    namespace.pod("train-1", "0=node1:0,1\n1=node2:2\n", "2")
    namespace.wait_bound("train-0", "node1")
    namespace.wait_bound("train-1", "node2")
    namespace.pod("late-0", "0=node1:1\n", "1")
    namespace.wait_message("late-0", "GpuHeld: ")
    return namespace


def pods_of(namespace: Namespace) -> list[Object]:
    """Return our pods of the namespace from the API server, by name."""
    status, answer = namespace.kube.call("GET", f"{namespace.pods}?fieldSelector=spec.schedulerName=gpu-scheduler")
    assert status == 200
    return sorted(answer["items"], key=lambda pod: str(pod["metadata"]["name"]))
