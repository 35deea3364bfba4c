"""Writes the Grafana boards for role observability: `python -m boards.generate` (part of `make fmt`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from boards import cluster, operations, scheduling, waiting

FOLDER: Final = Path(__file__).resolve().parents[1] / "roles/observability/files/boards"
BOARDS: Final = (cluster.BOARD, scheduling.BOARD, waiting.BOARD, operations.BOARD)


def files() -> dict[Path, str]:
    """Return each file that is made, with its text."""
    return {
        FOLDER / f"{board.name}.json": json.dumps(board.dashboard(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
        for board in BOARDS
    }


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
