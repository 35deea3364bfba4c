"""Credentials of a plugin: what it gets, what it may print, and when it runs again."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.kube.config import exec_credential
from gpu_scheduler.kube.config.client_config import ClientConfig, ClientConfigError
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from tests.objects import Object
from unit_tests.kube.server import until
from unit_tests.kube.test_kubeconfig import one

V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"
TOKEN: Object = {"token": "abc"}
# It waits for processes.
pytestmark = pytest.mark.clock("real")


def printed(status: Object, version: str = V1) -> str:
    return f"printf %s '{json.dumps({'kind': 'ExecCredential', 'apiVersion': version, 'status': status})}'"


def kubeconfig(folder: Path, script: str, cluster: Object | None = None, **settings: Any) -> str:
    """Write a plugin and a kubeconfig that names it; return the kubeconfig's path."""
    plugin, file = folder / "plugin", folder / "config"
    plugin.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    plugin.chmod(0o755)
    stated = {"command": "./plugin", "apiVersion": V1, "interactiveMode": "Never", **settings}
    file.write_text(json.dumps(one(cluster or {}, {"exec": stated})), encoding="utf-8")
    return str(file)


async def read(folder: Path, script: str, **settings: Any) -> ClientConfig:
    return await ConfigLoader(kubeconfig(folder, script, **settings))()


CREDENTIALS: dict[str, tuple[Object, str | None, tuple[bytes, bytes] | None]] = {
    "a token": (TOKEN, "Bearer abc", None),
    "a certificate": ({"clientCertificateData": "c", "clientKeyData": "k"}, None, (b"c", b"k")),
    "both": ({**TOKEN, "clientCertificateData": "c", "clientKeyData": "k"}, "Bearer abc", (b"c", b"k")),
}


@pytest.mark.parametrize(("status", "header", "certificate"), CREDENTIALS.values(), ids=CREDENTIALS)
async def test_a_plugin_prints_credentials(
    status: Object, header: str | None, certificate: tuple[bytes, bytes] | None, tmp_path: Path
) -> None:
    """A command with a slash is relative to the kubeconfig."""
    access = await read(tmp_path, printed(status))

    assert (access.authorization(), access.certificate) == (header, certificate)


async def test_credentials_expire_when_the_plugin_says(tmp_path: Path) -> None:
    """A time zone and fractions of a second are allowed."""
    access = await read(tmp_path, printed({**TOKEN, "expirationTimestamp": "2026-11-25T04:00:00.5+01:00"}))

    assert datetime.fromtimestamp(access.expires, UTC) == datetime(2026, 11, 25, 3, tzinfo=UTC) + timedelta(seconds=0.5)


async def test_a_plugin_of_the_path_gets_arguments_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of the kubeconfig are added to ours."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OURS", "1")
    script = f'echo "$@ $OURS $THEIRS[$EMPTY]" > {tmp_path}/seen; {printed(TOKEN, BETA)}'
    settings = {"command": "plugin", "args": ["get", "a b"], "apiVersion": BETA, "interactiveMode": None}
    variables = [{"name": "THEIRS", "value": "2"}, {"name": "EMPTY"}]
    await read(tmp_path, script, env=variables, **settings)

    assert (tmp_path / "seen").read_text() == "get a b 1 2[]\n"


INFOS: dict[str, tuple[bool, Object]] = {
    "nothing that it does not ask for": (False, {"interactive": False}),
    "its cluster": (
        True,
        {
            "interactive": False,
            "cluster": {
                "server": "https://a",
                "tls-server-name": "b",
                "certificate-authority-data": "Y2E=",
                "proxy-url": "http://p:1",
                "config": {"audience": 1},
            },
        },
    ),
}


@pytest.mark.parametrize(("provided", "spec"), INFOS.values(), ids=INFOS)
async def test_a_plugin_knows(provided: bool, spec: Object, tmp_path: Path) -> None:  # noqa: FBT001 - a row
    """As kubectl tells it."""
    (tmp_path / "ca").write_text("ca")
    cluster = {
        "certificate-authority": "ca",
        "tls-server-name": "b",
        "proxy-url": "http://p:1",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": 1}}, {"name": "other"}],
    }
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/seen; {printed(TOKEN)}'
    await read(tmp_path, script, cluster=cluster, provideClusterInfo=provided)

    reported = json.loads((tmp_path / "seen").read_text())
    assert reported == {"kind": "ExecCredential", "apiVersion": V1, "spec": spec}


@pytest.mark.parametrize(
    ("mode", "terminal", "reported"),
    [
        pytest.param("IfAvailable", True, True, id="where there is a terminal"),
        pytest.param("IfAvailable", False, False, id="not without one"),
        pytest.param("Always", True, True, id="if it must"),
        pytest.param("Never", True, False, id="not if it never does"),
    ],
)
async def test_a_plugin_may_ask_a_person(
    mode: str,
    terminal: bool,  # noqa: FBT001 - a row
    reported: bool,  # noqa: FBT001 - a row
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It learns so, and gets our standard input."""
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"isatty": lambda _: terminal})())
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/seen; {printed(TOKEN)}'
    await read(tmp_path, script, interactiveMode=mode)

    assert json.loads((tmp_path / "seen").read_text())["spec"]["interactive"] is reported


FAULTS: dict[str, tuple[str, Object, str]] = {
    "it is not installed": ("", {"command": "not-there"}, 'plugin "not-there" is not installed \\(example: '),
    "it is not installed, and a hint says how to": (
        "",
        {"command": "not-there", "installHint": "get it\nfrom us"},
        'plugin "not-there" is not installed: get it from us',
    ),
    "it fails": ("exit 3", {}, "plugin .*: .* exit code 3"),
    "it prints nothing": ("true", {}, "plugin .*: Input data was truncated"),
    "it prints too much": ("head -c 2000000 /dev/zero", {}, "plugin .*: .* 1048576 bytes"),
    "it prints no status": ('echo \'{"apiVersion": "x"}\'', {}, "plugin .*: Object missing required field `status`"),
    "it prints no credential": (printed({}), {}, "plugin .*: .* neither a token "),
    "it prints a certificate without its key": (
        printed({"clientCertificateData": "c"}),
        {},
        "plugin .*: .* certificate and key",
    ),
    "it prints a token with a line break": (printed({"token": "a\nb"}), {}, "the token "),
    "it prints a time without a zone": (
        printed({**TOKEN, "expirationTimestamp": "2026-11-25T04:00:00"}),
        {},
        "plugin .*: Expected `datetime` with a timezone",
    ),
    "it prints another version": (printed(TOKEN, BETA), {}, f'plugin .*: it printed apiVersion "{BETA}", not {V1}'),
    "it has no command": ("", {"command": ""}, ".* exec .* command"),
    "it has a version that we do not know": (
        "",
        {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
        f'plugin .* has apiVersion ".*v1alpha1"; it must be {V1}',
    ),
    "it does not say whether it asks a person": (
        "",
        {"interactiveMode": None},
        "plugin .* interactiveMode .* Never, IfAvailable, Always",
    ),
    "it must ask a person, and there is none": (
        "",
        {"interactiveMode": "Always"},
        "plugin .* person, .* terminal",
    ),
}


@pytest.mark.parametrize(("script", "settings", "why"), FAULTS.values(), ids=FAULTS)
async def test_an_unusable_plugin_is_reported(script: str, settings: Object, why: str, tmp_path: Path) -> None:
    """The error is one sentence that names kubeconfig and plugin."""
    paths = kubeconfig(tmp_path, script, **settings)
    with pytest.raises(ClientConfigError) as raised:
        await ConfigLoader(paths)()

    sentence = str(raised.value)
    assert re.match(why, sentence.partition(f" kubeconfig {paths}: ")[2])
    assert "\n" not in sentence


@pytest.mark.parametrize("busy", [0.0, 0.5], ids=["", "of a busy machine"])
@pytest.mark.parametrize("after", ["", "& wait"], ids=["itself", "with a process of its own"])
async def test_a_plugin_that_hangs_is_killed(
    after: str, busy: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is long, because some plugins wait for a person. It may be over as soon as the plugin has started."""
    monkeypatch.setattr(exec_credential, "TIME_OUT", 0.2)
    popen = subprocess.Popen

    def start(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = popen(*words, **options)
        time.sleep(busy)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    number, end = tmp_path / "number", tmp_path / "end"
    try:
        with pytest.raises(ClientConfigError, match=r"plugin .* 0\.2 s"):
            await read(tmp_path, f"echo $$ > {number}; while [ ! -e {end} ]; do sleep 0.1; done {after}")
        # The plugin may have been killed before its first line.
        killed = Path("/proc", number.read_text().strip()) if number.exists() and number.read_text() else end
        await until(lambda: not killed.exists())
    finally:
        end.touch()


async def test_a_plugin_that_was_killed_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the machine says so: no process of ours is left behind."""
    started = started_plugins(monkeypatch)
    waitpid = os.waitpid

    def reap_late(*words: Any) -> tuple[int, int]:
        found = waitpid(*words)
        if not words[1] & os.WNOHANG:
            time.sleep(1.2)
        return found

    monkeypatch.setattr(os, "waitpid", reap_late)
    with pytest.raises(ClientConfigError, match=r"plugin .* 1048576 bytes"):
        await read(tmp_path, "head -c 2000000 /dev/zero")

    assert [process.returncode is None for process in started] == [False]


async def test_a_plugin_of_another_user_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By sudo: it may not be killed. The error is that of any plugin that hangs."""
    monkeypatch.setattr(exec_credential, "TIME_OUT", 0.2)

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(subprocess.Popen, "send_signal", refuse)
    started, end = started_plugins(monkeypatch), tmp_path / "end"
    try:
        with pytest.raises(ClientConfigError, match=r"plugin .* 0\.2 s"):
            await read(tmp_path, f"while [ ! -e {end} ]; do sleep 0.1; done")
    finally:
        end.touch()
    await until(lambda: started[0].poll() is not None)


def started_plugins(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return the list that the processes of plugins will be in."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started
