"""Finds the cluster of this process: by a kubeconfig, or by the service account of its pod."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.config.in_cluster import in_cluster_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from gpu_scheduler.kube.config.client_config import ClientConfig
    from gpu_scheduler.kube.config.kubeconfig_file import Merged

    Part = TypeVar("Part")


@immutable
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
                return in_cluster_config()
            found = await read_kubeconfig(self._kubeconfig, self.context or None)
        except (OSError, ValueError) as error:
            where = "a service account" if self._kubeconfig is None else f"kubeconfig {self._kubeconfig}"
            raise ClientConfigError(
                f"cannot reach a cluster through {where}: {error} "
                "(example: --kubeconfig ~/.kube/config --context kind-gpu-scheduler)",
            ) from error
        self.context, self.namespace = found.context, found.namespace
        return found.access


async def read_kubeconfig(paths: str, context: str | None) -> Kubeconfig:
    """Read one file, or several as KUBECONFIG lists them; raise ValueError or OSError if they cannot be used."""
    # No pod needs these two.
    from gpu_scheduler.kube.config.credentials import authenticated, server  # noqa: PLC0415
    from gpu_scheduler.kube.config.kubeconfig_file import merged  # noqa: PLC0415

    files = merged(paths)
    name = _chosen(context, files)
    chosen = files.contexts[name]
    cluster = _named(files.clusters, chosen.cluster, f"context {quote(name)} names cluster")
    access = server(cluster)
    if chosen.user:
        user = _named(files.users, chosen.user, f"context {quote(name)} names user")
        # As in kubectl, plain HTTP carries no credentials: everyone on the way could read them.
        if urlsplit(access.host).scheme == "https":
            access = await authenticated(access, user, cluster)
    return Kubeconfig(access, name, chosen.namespace or "default")


def _chosen(context: str | None, files: Merged) -> str:
    """Return `context`, else the current context."""
    chosen = context or files.current
    if not chosen or chosen not in files.contexts:
        what = f"has no context {quote(chosen)}" if chosen else "names no current context"
        raise ValueError(f"it {what}; it knows {', '.join(files.contexts) or 'none'}")
    return chosen


def _named(parts: Mapping[str, Part], name: str | None, what: str) -> Part:
    found = parts.get(name or "")
    if found is None:
        raise ValueError(f"{what} {quote(name or '')}, which it does not have")
    return found
