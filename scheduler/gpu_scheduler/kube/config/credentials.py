"""Turns the cluster and the user of a kubeconfig into a configuration, as kubectl does."""

from __future__ import annotations

import math
import os
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.kube.config.client_config import ClientConfig, TokenFile, bearer
from gpu_scheduler.kube.config.files import some_content_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_scheduler.kube.config.kubeconfig_file import ClusterEntry, Located, Plugin, User

EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is meant for its plugins."""


def server(cluster: Located[ClusterEntry]) -> ClientConfig:
    """Return the way to a cluster, without credentials."""
    part, folder = cluster.part, cluster.folder
    authorities = _pem("certificate-authority", part.certificate_authority_data, part.certificate_authority, folder)
    if authorities and part.insecure_skip_tls_verify:
        raise ValueError("its cluster has both a certificate-authority and insecure-skip-tls-verify; remove one")
    return ClientConfig(
        (part.server or "").rstrip("/"),
        authorities=authorities.decode("ascii", "ignore") if authorities else None,
        verified=not part.insecure_skip_tls_verify,
        server_name=part.tls_server_name or None,
        proxy=part.proxy_url or None,
    )


async def authenticated(access: ClientConfig, user: Located[User], cluster: Located[ClusterEntry]) -> ClientConfig:
    """Return `access` with the user's credentials. A plugin runs only for a user who has no others."""
    part, folder = user.part, user.folder
    _check(part)
    certificate = _pem("client-certificate", part.client_certificate_data, part.client_certificate, folder)
    key = _pem("client-key", part.client_key_data, part.client_key, folder)
    if certificate and key:
        access = replace(access, certificate=(certificate, key))
    elif certificate or key:
        raise ValueError("its user has only one of client-certificate and client-key")
    if part.token_file:
        try:
            return replace(access, authorization=TokenFile(folder / part.token_file))
        except (OSError, ValueError):
            if not part.token:
                raise
    if part.token:
        return replace(access, authorization=partial(str, bearer(part.token)))
    if part.username:
        word = b64encode(f"{part.username}:{part.password or ''}".encode()).decode()
        return replace(access, authorization=partial(str, f"Basic {word}"))
    if part.exec and not access.certificate:
        return await _by_plugin(access, part.exec, folder, cluster.part)
    return access


def _check(user: User) -> None:
    """Raise ValueError for what kubectl refuses too, and for what only kubectl can do."""
    if user.auth_provider:
        raise ValueError("its user has an auth-provider; use an exec plugin as kubectl does (example: kubelogin)")
    if user.impersonated or user.as_uid or user.as_groups or user.as_user_extra:
        raise ValueError("its user impersonates another (`as`); use a context whose user has the rights itself")
    if user.username and (user.token or user.token_file):
        raise ValueError("its user has both a token and a username; remove one")


async def _by_plugin(access: ClientConfig, plugin: Plugin, folder: Path, cluster: ClusterEntry) -> ClientConfig:
    from gpu_scheduler.kube.config.exec_credential import run_plugin  # noqa: PLC0415 - few users have a plugin

    # Only a command with a slash is a path; any other is searched in PATH.
    command = str(folder / plugin.command) if os.sep in plugin.command else plugin.command
    found = await run_plugin(plugin, command, _shown(access, cluster) if plugin.provide_cluster_info else None)
    pair = (found.client_certificate_data or "").encode(), (found.client_key_data or "").encode()
    return replace(
        access,
        authorization=partial(str, bearer(found.token)) if found.token else access.authorization,
        certificate=pair if all(pair) else None,
        expires=found.expiration_timestamp.timestamp() if found.expiration_timestamp else math.inf,
    )


def _shown(access: ClientConfig, cluster: ClusterEntry) -> dict[str, Any]:
    """Return the cluster as a plugin gets it."""
    extensions = {each.name: each.extension for each in cluster.extensions or ()}
    found = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": b64encode((access.authorities or "").encode()).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": extensions.get(EXTENSION),
    }
    return {"server": cluster.server} | {name: value for name, value in found.items() if value}


def _pem(name: str, data: str | None, file: str | None, folder: Path) -> bytes | None:
    """Return the value of `name`-data, else the content of the file that `name` names, else None."""
    if data:
        try:
            return b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            raise ValueError(f"{name}-data is not base64: {error}") from error
    return some_content_of(folder / file) if file else None
