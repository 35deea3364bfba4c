"""Runs a program as in a pod, with its service account in the folder that the variable ACCOUNT names.

`python -m bench.contenders.in_pod` runs the module that the variable PROGRAM names. In a pod the folder of the service
account is fixed; a kubeconfig instead would cost 3 MB, which a pod does not need.
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
