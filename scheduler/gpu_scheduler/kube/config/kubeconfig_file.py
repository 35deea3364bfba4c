"""What kubeconfig files say, merged as kubectl merges them: each name and each value is that of the first file with it.

This and its neighbours are our own code because a verb of the command line may take 0.4 s of CPU: to import
kubernetes.aio took 0.36 s and 37 MB; all of this takes 0.03 s and 3 MB.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.config.files import content_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Part(msgspec.Struct, rename="kebab"):
    """Base of a kubeconfig's parts. The file may leave out every value, or set it to null."""


class Extension(_Part):
    """A value of another program's."""

    name: str | None = None
    extension: Any = None


class ClusterEntry(_Part):
    """The way to an API server."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None


class Variable(_Part):
    """A variable of a plugin's environment."""

    name: str
    value: str | None = None


class Plugin(_Part, rename="camel"):
    """A program that prints credentials."""

    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    remedy: str | None = msgspec.field(default=None, name="installHint")
    interactive_mode: str | None = None
    provide_cluster_info: bool | None = None


class User(_Part):
    """Credentials, or the program that prints them."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: Plugin | None = None
    auth_provider: Any = None
    impersonated: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: Any = None


class Context(_Part):
    """A user of a cluster, by their names."""

    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(_Part):
    name: str | None = None
    cluster: ClusterEntry | None = None


class _NamedUser(_Part):
    name: str | None = None
    user: User | None = None


class _NamedContext(_Part):
    name: str | None = None
    context: Context | None = None


class _File(_Part):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


_Found = TypeVar("_Found")


@immutable
class Located(Generic[_Found]):
    """A part, and the folder of its file: relative paths start there."""

    part: _Found
    folder: Path


@dataclass(slots=True)
class Merged:
    """Every file's parts by name."""

    clusters: dict[str, Located[ClusterEntry]] = field(default_factory=dict)
    users: dict[str, Located[User]] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None


def merged(paths: str) -> Merged:
    """Read one file, or several as KUBECONFIG lists them; raise ValueError or OSError if they cannot be used."""
    found, any_file = Merged(), False
    for path in filter(None, paths.split(os.pathsep)):
        file = Path(path).expanduser()
        try:
            content = content_of(file)
        except FileNotFoundError:
            continue
        any_file = True
        parsed, folder = _parsed(file, content), file.absolute().parent
        clusters = [(each.name, Located(each.cluster or ClusterEntry(), folder)) for each in parsed.clusters or ()]
        users = [(each.name, Located(each.user or User(), folder)) for each in parsed.users or ()]
        contexts = [(each.name, each.context or Context()) for each in parsed.contexts or ()]
        _add(found.clusters, clusters, f"clusters (in {file})")
        _add(found.users, users, f"users (in {file})")
        _add(found.contexts, contexts, f"contexts (in {file})")
        found.current = found.current or parsed.current_context
    if not any_file:
        raise FileNotFoundError("no such file")
    return found


def _add(known: dict[str, _Found], parts: Iterable[tuple[str | None, _Found]], where: str) -> None:
    """Add one file's parts whose names no file before it has; raise ValueError if two share a name, as kubectl does."""
    own: dict[str, _Found] = {}
    for name, part in parts:
        if (name or "") in own:
            raise ValueError(f"{quote(name or '')} is the name of two {where}")
        own[name or ""] = part
    for name, part in own.items():
        known.setdefault(name, part)


def _parsed(file: Path, content: bytes) -> _File:
    import yaml  # noqa: PLC0415 - 12 ms that no pod needs

    try:
        # The loader in C is ten times as fast, and not in every build of the library.
        loaded = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        return msgspec.convert({} if loaded is None else loaded, _File)
    # A scalar whose tag does not fit it ends the library's constructors in other ways than a YAMLError.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{' '.join(str(error).split())} (in {file})") from error
