"""Configuration of the pod's own cluster, from its service account's volume and the kubelet's variables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_scheduler.kube.config.client_config import ClientConfig, TokenFile
from gpu_scheduler.kube.config.files import some_content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster_config(
    account: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> ClientConfig:
    """Return the way to the pod's API server; ValueError or OSError if variables or files are missing.

    `account` is the folder with the files `token` and `ca.crt`.
    """
    address, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not address or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    folder = account or SERVICE_ACCOUNT
    return ClientConfig(
        f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}",
        TokenFile(folder / "token", clock),
        some_content_of(folder / "ca.crt").decode("ascii", "ignore"),
    )
