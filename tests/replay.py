"""Replays a journal of decisions and prints each decision that differs.

Usage: python -m tests.replay JOURNAL.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpu_scheduler.scheduler.replay import differences, whole_lines


def main(journal: str) -> None:
    """Print each decision that differs, one per line."""
    for difference in differences(whole_lines(Path(journal).read_bytes())):
        print(difference)  # noqa: T201 - the program's output


if __name__ == "__main__":
    main(sys.argv[1])
