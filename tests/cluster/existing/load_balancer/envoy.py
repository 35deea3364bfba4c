#!/usr/bin/python3
"""Forwards TCP connections to the control planes of a kind cluster, in the place of the program `envoy`.

kind writes the listener into lds.yaml and the control planes into cds.yaml, beside the file of option `-c`, after it
has started the container. Only the addresses and ports in them are read.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ADDRESS: Final = re.compile(r'address: "?([\w.:-]+)"?\n\s+port_value: (\d+)')
CHUNK: Final = 65536


def addresses(file: Path) -> list[tuple[str, int]]:
    """Return the addresses with their ports; none while kind has not written them."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [(host, int(port)) for host, port in ADDRESS.findall(text)]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection, and close it at its end."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


class Forwarder:
    """Connects each client to the next control plane that answers."""

    def __init__(self, backends: Path) -> None:
        """Read the control planes at each connection: kind may write them again."""
        self._backends = backends
        self._turn = itertools.count()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection to its end; close it if no control plane answers."""
        found = addresses(self._backends)
        first = next(self._turn)
        for number in range(len(found)):
            host, port = found[(first + number) % len(found)]
            with suppress(OSError, TimeoutError):
                onward = await asyncio.wait_for(asyncio.open_connection(host, port), 1)
                await asyncio.gather(copy(reader, onward[1]), copy(onward[0], writer))
                return
        writer.close()


async def serve(folder: Path) -> None:
    """Listen where lds.yaml says."""
    ((host, port),) = addresses(folder / "lds.yaml")
    server = await asyncio.start_server(Forwarder(folder / "cds.yaml").handle, host, port)
    async with server:
        await server.serve_forever()


def main(configuration: str) -> None:
    """Wait for kind's files, then forward."""
    folder = Path(configuration).parent
    while not (addresses(folder / "lds.yaml") and addresses(folder / "cds.yaml")):
        time.sleep(0.2)
    asyncio.run(serve(folder))


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("-c") + 1])
