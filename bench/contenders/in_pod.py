"""A program as in a pod: its service account lies in the folder that the variable ACCOUNT names.

Run with `python -m` in the place of what the variable PROGRAM names. In a pod that folder is the same for all, and a
kubeconfig would cost 10 MB and a third of a second that nobody pays there.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Final

from gpu_scheduler.kube.config import in_cluster

MODULE: Final = "bench.contenders.in_pod"
ACCOUNT: Final = "ACCOUNT"
PROGRAM: Final = "PROGRAM"


if __name__ == "__main__":
    in_cluster.SERVICE_ACCOUNT = Path(os.environ[ACCOUNT])
    runpy.run_module(os.environ[PROGRAM], run_name="__main__")
