"""Runs a kubeconfig's credential plugin: a program that prints an ExecCredential, such as kubelogin."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec

from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_scheduler.kube.config.kubeconfig_file import Plugin

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MODES: Final = ("Never", "IfAvailable", "Always")
TIME_OUT = 200.0
"""Seconds for the plugin. Some wait for a person who logs in; kubelogin gives them 180."""
MOST_PRINTED: Final = 2**20


class Credential(msgspec.Struct, rename="camel", frozen=True):
    """What the plugin printed: a token, or a certificate with its key, as PEM."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel", frozen=True):
    api_version: str
    status: Credential


_credentials = msgspec.json.Decoder(_ExecCredential)


async def run_plugin(plugin: Plugin, command: str, cluster: Mapping[str, Any] | None) -> Credential:
    """Run `command` and return its credential; raise ValueError or OSError if there is none.

    `cluster` is passed to a plugin that asks for it. What the plugin prints on standard error goes to ours.
    """
    interactive = _interactive(plugin)
    program = shutil.which(command)
    if program is None:
        raise ValueError(f"plugin {quote(command)} is not installed{_remedy(plugin)}")
    spec = {"interactive": interactive} if cluster is None else {"cluster": cluster, "interactive": interactive}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    variables = {each.name: each.value or "" for each in plugin.env or ()}
    try:
        printed = await _output_of(
            (program, *(plugin.args or ())),
            {**os.environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
            interactive=interactive,
        )
        return _checked(_credentials.decode(printed), plugin.api_version)
    except TimeoutError as error:
        raise ValueError(f"plugin {quote(command)} does not answer within {TIME_OUT:g} s") from error
    except ValueError as error:
        raise ValueError(f"plugin {quote(command)}: {error}") from error


def _remedy(plugin: Plugin) -> str:
    return f": {' '.join(plugin.remedy.split())}" if plugin.remedy else ""


def _interactive(plugin: Plugin) -> bool:
    """Return whether the plugin may ask a person; raise ValueError if its settings cannot be used."""
    if not plugin.command:
        raise ValueError("its user's exec names no command")
    name = f"plugin {quote(plugin.command)}"
    if plugin.api_version not in VERSIONS:
        raise ValueError(f"{name} has apiVersion {quote(plugin.api_version)}; it must be {VERSIONS[0]}")
    mode = plugin.interactive_mode or ("IfAvailable" if plugin.api_version == VERSIONS[1] else "")
    if mode not in MODES:
        raise ValueError(f"{name} must set interactiveMode to one of {', '.join(MODES)}")
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise ValueError(f"{name} must ask a person, and standard input is no terminal")
    return terminal and mode != "Never"


async def _output_of(words: tuple[str, ...], environment: Mapping[str, str], *, interactive: bool) -> bytes:
    """Return what the plugin prints; TimeoutError after TIME_OUT."""
    stdin = None if interactive else asyncio.subprocess.DEVNULL
    # Not within the time-out: asyncio does not close the pipe of a start that is cancelled, and waits for its end.
    process = await asyncio.create_subprocess_exec(*words, env=environment, stdin=stdin, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(TIME_OUT):
            return await _printed_by(process)
    finally:
        # A plugin that runs as another user, by sudo, cannot be killed, and is not waited for.
        with suppress(PermissionError, ProcessLookupError):
            # It closes a pipe, too, that a process of the plugin's keeps open. `process` itself has no way.
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
            process.kill()
            await process.wait()


async def _printed_by(process: asyncio.subprocess.Process) -> bytes:
    try:
        await cast("asyncio.StreamReader", process.stdout).readexactly(MOST_PRINTED + 1)
    except asyncio.IncompleteReadError as end:
        if code := await process.wait():
            raise ValueError(f"it failed with exit code {code}") from end
        return end.partial
    raise ValueError(f"it prints more than {MOST_PRINTED} bytes")


def _checked(printed: _ExecCredential, version: str) -> Credential:
    found = printed.status
    if printed.api_version != version:
        raise ValueError(f"it printed apiVersion {quote(printed.api_version)}, not {version}")
    if bool(found.client_certificate_data) != bool(found.client_key_data):
        raise ValueError("it printed only one of certificate and key")
    if not found.token and not found.client_key_data:
        raise ValueError("it printed neither a token nor a certificate")
    return found
