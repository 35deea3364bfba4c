"""Finds the cluster of this process: by a kubeconfig, or by the service account of its pod.

Only this module imports the Kubernetes client, and only where a kubeconfig is read: the import costs 32 MB and 0.27 s
of CPU. A process inside the cluster reads no kubeconfig, so it never pays for the client.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.config.in_cluster import InClusterConfig

if TYPE_CHECKING:
    from gpu_scheduler.kube.config.client_config import ClientConfig


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig."""

    access: ClientConfig
    context: str
    namespace: str
    """The namespace of a command that names none; `default` if the context has no namespace."""


class ConfigLoader:
    """Loads the cluster's configuration: from a kubeconfig if one is named, else from the pod's service account."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """If `kubeconfig` is None, use the pod's service account."""
        self._kubeconfig = kubeconfig
        self.context = context or ""
        self.namespace = ""

    async def __call__(self) -> ClientConfig:
        """Return a newly read configuration; raise ClientConfigError, whose text says what is missing."""
        try:
            if self._kubeconfig is None:
                return InClusterConfig()
            found = await read_kubeconfig(self._kubeconfig, self.context or None)
        except (OSError, TypeError, ValueError) as error:
            where = "a service account" if self._kubeconfig is None else f"kubeconfig {self._kubeconfig}"
            raise ClientConfigError(
                f"cannot reach a cluster through {where}: {error} "
                "(example: --kubeconfig ~/.kube/config --context kind-gpu-scheduler)",
            ) from error
        self.context, self.namespace = found.context, found.namespace
        return found.access


async def read_kubeconfig(paths: str, context: str | None) -> Kubeconfig:
    """Read one file, or several as KUBECONFIG lists them; raise ValueError or OSError if they cannot be used."""
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):  # noqa: ASYNC240 - at start-up, nothing else runs yet
        raise FileNotFoundError("no such file")
    import yaml  # noqa: PLC0415 - with the client
    from kubernetes.aio.client.configuration import Configuration  # noqa: PLC0415 - 32 MB that no pod needs
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415 - likewise
    from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: PLC0415 - likewise

    configuration = Configuration()
    try:
        merged = KubeConfigMerger(paths)  # type: ignore[no-untyped-call]
        chosen = _chosen(context, merged)
        loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
            config_dict=merged.config, active_context=chosen, config_base_path=None
        )
        await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return Kubeconfig(configuration, chosen, loader.current_context["context"].get("namespace") or "default")


def _chosen(context: str | None, merged: Any) -> str:
    """Return `context`, else the current context of the first file that sets one, as kubectl does."""
    known = [each["name"] for each in merged.config.value["contexts"]]
    current = (merged.config_files[path].get("current-context") for path in merged.paths)
    chosen = context or next(filter(None, current), None)
    if chosen not in known:
        what = "names no current context" if chosen is None else f"has no context {quote(chosen)}"
        raise ValueError(f"it {what}; it knows {', '.join(known) or 'none'}")
    return str(chosen)
