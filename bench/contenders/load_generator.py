"""Starts a load generator, a process that sends prepared requests as fast as the API server answers them.

    generator = LoadGenerator("curl", orders_path, log_path)
    generator.wait_ready()
    generator.go()
    load_report = generator.wait(60)

There are three clients, to show that the API server is the limit and not a client.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.contenders import prepared_requests
from bench.gated_process import GatedProcess
from tests.integration.programs import CACHE

CLIENTS: Final = ("curl", "aiohttp", "go")
SWEEP: Final = (8, 16, 32, 64, 128)
"""Requests in flight."""
_SOURCES: Final = Path(__file__).resolve().parent / "load_go"


class LoadGenerator(GatedProcess[prepared_requests.LoadReport]):
    """One run of a client on a file of prepared requests."""

    def __init__(self, client: str, orders_path: Path, log_path: Path) -> None:
        """Start it. Standard error goes to `log_path`. ValueError for an unknown client."""
        super().__init__(prepared_requests.LoadReport, [*_command(client), str(orders_path.resolve())], log_path)


def _command(client: str) -> list[str]:
    if client == "go":
        return [str(_go_program())]
    if client in CLIENTS:
        return [sys.executable, "-m", f"bench.contenders.load_{client}"]
    raise ValueError(f"cannot generate load with {client!r}: it must be one of {', '.join(CLIENTS)}")


def _go() -> str:
    """Return Go's program: the toolchain that `make programs` downloaded, or else the host's."""
    fetched = max((CACHE / "go").glob("toolchain-*/go/bin/go"), key=lambda path: path.stat().st_mtime, default=None)
    found = shutil.which("go") if fetched is None else str(fetched)
    if found is None:
        raise FileNotFoundError("cannot build the load generator: no Go is there (example: make programs)")
    return found


def _go_program() -> Path:
    """Return the client in Go. Build it unless the same sources were built before."""
    sources = b"".join((_SOURCES / name).read_bytes() for name in ("main.go", "go.mod"))
    program = CACHE / "bin" / f"load-generator-{hashlib.sha256(sources).hexdigest()[:12]}" / "load_go"
    if program.exists():
        return program
    go = _go()
    program.parent.mkdir(parents=True, exist_ok=True)
    # Built beside its path, then renamed: another build at the same time never finds a partial file.
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        part = Path(folder) / "load_go"
        subprocess.run(
            [go, "build", "-trimpath", "-o", str(part), "."],
            cwd=_SOURCES,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
            check=True,
        )
        part.replace(program)
    return program
