"""Our own program as in a pod: its service account lies in the folder that the variable ACCOUNT names.

Run with `python -m` in the place of `gpu_scheduler`. In a pod that folder is the same for all, and a kubeconfig would
cost 10 MB and a third of a second that nobody pays there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from unittest.mock import patch

from gpu_scheduler.cli import main

MODULE: Final = "bench.contenders.housed"
ACCOUNT: Final = "ACCOUNT"


def run() -> None:
    """Be the program."""
    with patch("gpu_scheduler.adapters.in_cluster.SERVICE_ACCOUNT", Path(os.environ[ACCOUNT])):
        main()


if __name__ == "__main__":
    run()
