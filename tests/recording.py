"""Records the terminal that README.md shows: `make recording`, on a checkout whose cluster stands.

The recording is in asciinema's format: `asciinema play docs/recording.cast`. The picture is made from it by rich.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from tests.tutorial_page import steps

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
CAST: Final = ROOT / "docs" / "recording.cast"
PICTURE: Final = ROOT / "docs" / "recording.svg"
WIDTH, HEIGHT = 112, 48
PROMPT: Final = "\x1b[1;32m$\x1b[0m "
# Seconds. Longer pauses of a program are shortened to this, and a reader has this long for each answer.
LONGEST_PAUSE, READING = 1.0, 2.0
FIRST: Final = "make up"
COMMANDS: Final = (
    "grep -A 2 gpu-scheduling-map train.yaml",
    "kubectl apply -f train.yaml && kubectl rollout status statefulset train",
    "gpu-scheduler workloads pod/train-0 pod/train-1",
    "kubectl apply -f eval.yaml    # its map: 0=node1;1",
    "sed -i 's/node1;1/node1:1/' eval.yaml && kubectl apply -f eval.yaml",
    "gpu-scheduler explain eval-0",
    "sed -i 's/0=node1:1/0=node1:2/' eval.yaml && kubectl replace --force -f eval.yaml",
    "kubectl wait pod eval-0 --for=condition=Ready",
    "gpu-scheduler workloads pod/train-0 pod/train-1 pod/eval-0",
)
"""What is typed after `make up`, beside the files of docs/tutorial.md."""
FINDING: Final = ("kubectl apply -f eval.yaml", "gpu-scheduler explain")
"""How the commands begin that end with 1: one is refused, the other says why a pod waits."""
# Lines of `make up` in the picture: the verdicts, at its end.
VERDICTS: Final = 9
HOME: Final = "/home/me/gpu-scheduler"
"""What the recording has in place of the checkout's own path."""
_FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_ID: Final = re.compile(r"terminal-\d+")


def record() -> str:
    """Type everything. Return the recording."""
    environment = {**os.environ, "KUBECONFIG": str(ROOT / ".kube" / "config"), "COLUMNS": str(WIDTH)}
    environment["PATH"] = f"{ROOT / 'bin'}:{ROOT / '.venv' / 'bin'}:{environment['PATH']}"
    header = {
        "version": 2,
        "width": WIDTH,
        "height": HEIGHT,
        "title": "gpu-scheduler",
        "env": {"TERM": "xterm-256color"},
    }
    events: list[tuple[float, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command, where in ((FIRST, ROOT), *((command, folder) for command in COMMANDS)):
            if command == COMMANDS[0]:
                _write_manifests(folder, environment)
            events += [(READING, f"{PROMPT}{command}\r\n"), *_typed(command, where, environment)]
        subprocess.run(
            ("kubectl", "delete", "-f", folder / "train.yaml", "-f", folder / "eval.yaml"), env=environment, check=True
        )
    now, lines = 0.0, [json.dumps(header)]
    for pause, text in events:
        now += pause
        lines.append(json.dumps([round(now, 3), "o", text], ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _write_manifests(folder: Path, environment: dict[str, str]) -> None:
    """Write train.yaml and eval.yaml, as the tutorial does."""
    for commands, _ in steps("make", "eval", "gpu-scheduler"):
        for found in re.finditer(
            r"^(?:export IMAGE=.*\n)?cat > (\w+)\.yaml <<END\n.*?^END\n", commands, re.DOTALL | re.MULTILINE
        ):
            if found[1] in {"train", "eval"}:
                kept = "test ! -e image || . ./image\n" + found[0] + "export -p | grep IMAGE > image"
                subprocess.run(("bash", "-c", kept), cwd=folder, env=environment, check=True)


def _typed(command: str, where: Path, environment: dict[str, str]) -> Iterator[tuple[float, str]]:
    """Run a command in a terminal. Yield the seconds before each output, at most LONGEST_PAUSE, and the output."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        ("bash", "-c", command), cwd=where, env=environment, stdin=writer, stdout=writer, stderr=writer
    )
    os.close(writer)
    before = time.monotonic()
    with os.fdopen(reader, "rb", buffering=0) as output:
        while True:
            try:
                text = output.read(2**16)
            except OSError:
                break
            if not text:
                break
            now = time.monotonic()
            yield min(now - before, LONGEST_PAUSE), text.decode(errors="replace").replace(str(ROOT), HOME)
            before = now
    assert process.wait() == int(command.startswith(FINDING)), command


def shown(cast: str) -> str:
    """Return what the picture shows of a recording: the proof of `make up`, and everything after it."""
    outputs: list[Any] = [json.loads(line) for line in cast.splitlines()[1:]]
    text = "".join(output for _, _, output in outputs).replace("\r\n", "\n").replace("\r", "")
    first, prompt, rest = text.partition(f"{PROMPT}{COMMANDS[0]}")
    lines = first.splitlines()
    begin = next(number for number, line in enumerate(lines) if "- namespace " in line)
    return "\n".join((lines[0], "…", *lines[begin : begin + VERDICTS], "…", "")) + prompt + rest


def picture(cast: str) -> str:
    """Return the picture of a recording, as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown(cast)), end="")
    # No font of another site is loaded: the reader's own fixed-width font serves.
    return _ID.sub("terminal", _FONT.sub("", console.export_svg(title="gpu-scheduler"))).replace("Fira Code, ", "")


def main() -> int:
    """Record, or with `picture` only draw the recording that is there."""
    if sys.argv[1:] != ["picture"]:
        CAST.write_text(record(), encoding="utf-8")
    PICTURE.write_text(picture(CAST.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
