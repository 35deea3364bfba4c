import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from gpu_scheduler.cli.cluster import kubeconfig_of, namespace_of, reached
from gpu_scheduler.cli.command_line import run_command, run_verb
from gpu_scheduler.cli.options import FailedError, Options, RefusedInputError
from gpu_scheduler.cli.verbs.show import nodes
from unit_tests.cli.scripted_cluster import MISSING, Capsys, cluster, kubeconfig
from unit_tests.kube.server import Reply

KUBECONFIGS: dict[str, tuple[str | None, dict[str, str], bool, str | None]] = {
    "the file that is named": ("mine", {"KUBECONFIG": "other"}, True, "mine"),
    "else the files of KUBECONFIG": (None, {"KUBECONFIG": "a:b"}, True, "a:b"),
    "else the user's own file": (None, {"KUBECONFIG": ""}, True, "{home}/.kube/config"),
    "else the pod's own cluster": (None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, None),
}


@pytest.mark.parametrize(("named", "environment", "own", "chosen"), KUBECONFIGS.values(), ids=KUBECONFIGS)
def test_which_kubeconfig(  # noqa: PLR0913, PLR0917 - rows of the table
    named: str | None,
    environment: dict[str, str],
    own: bool,  # noqa: FBT001 - rows of the table
    chosen: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The CLI chooses as kubectl does."""
    monkeypatch.setenv("HOME", str(tmp_path))
    if own:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").touch()

    assert kubeconfig_of(named, environment) == (chosen and chosen.format(home=tmp_path))


def test_a_missing_kubeconfig_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one sentence with an example."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RefusedInputError, match=r"^cannot find a cluster: KUBECONFIG is not set, .*example: "):
        kubeconfig_of(None, {})


NAMESPACES: dict[str, tuple[Options, str | None, str | None]] = {
    "the namespace that is named": (Options(namespace="b"), "a", "b"),
    "else the context's": (Options(), "a", "a"),
    "else default": (Options(), None, "default"),
    "all of them": (Options(all_namespaces=True, namespace="b"), "a", None),
}


@pytest.mark.parametrize(("options", "own", "meant"), NAMESPACES.values(), ids=NAMESPACES)
async def test_which_namespace(options: Options, own: str | None, meant: str | None, tmp_path: Path) -> None:
    """The CLI chooses as kubectl does."""
    config = tmp_path / "config"
    config.write_text(json.dumps(kubeconfig("http://127.0.0.1:1", namespace=own)), encoding="utf-8")
    async with reached(replace(options, kubeconfig=str(config))) as api:
        assert namespace_of(options, api) == meant


UNAVAILABLE: dict[str, tuple[Any, str]] = {
    "a server that hangs": (Reply(hang=True), "it does not answer in time"),
    "a server that is stopped": (None, "connection refused"),
}


@pytest.mark.parametrize(("reply", "why"), UNAVAILABLE.values(), ids=UNAVAILABLE)
async def test_a_cluster_that_does_not_answer_is_named(reply: Reply | None, why: str, tmp_path: Path) -> None:
    """Within 5 seconds, with address, context and what to try."""
    async with cluster(tmp_path, settings=reply or MISSING) as (server, options):
        address = server.url
        if reply is None:
            await server.stop()
        with pytest.raises(FailedError, match=f"^cannot reach the API server {address} .context test.: {why}; see wh"):
            await nodes(options)


async def test_an_unknown_context_is_refused(tmp_path: Path) -> None:
    """It is bad input: exit code 2."""
    async with cluster(tmp_path) as (_, options):
        config = options.kubeconfig
        with pytest.raises(
            RefusedInputError, match=f'through kubeconfig {config}: it has no context "b"; it knows test'
        ):
            await nodes(Options(kubeconfig=config, context="b"))


def test_an_error_is_a_sentence_and_a_code(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is printed. Ctrl-C has the code of shells."""
    monkeypatch.setattr("sys.argv", ["gpu-scheduler"])
    monkeypatch.setattr("gpu_scheduler.process.logs.set_up_logging", lambda _: None)
    monkeypatch.setattr("gc.disable", lambda: None)

    async def failing() -> int:
        raise FailedError("cannot do it")

    async def refusing() -> int:
        raise RefusedInputError("cannot read it")

    async def well() -> int:
        return 0

    async def interrupted() -> int:
        raise KeyboardInterrupt

    codes = []
    for each in (failing, refusing, well, interrupted):
        with pytest.raises(SystemExit) as ended:
            run_command(click.Command("do", callback=partial(run_verb, each)), "do")
        codes.append(ended.value.code)

    assert codes == [1, 2, 0, 130]
    assert capsys.readouterr().err == "cannot do it\ncannot read it\n\n"
