import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from gpu_scheduler.cli import live_names
from unit_tests.cli.scripted_cluster import MISSING, cluster, device, items, node, pod
from unit_tests.kube.server import FakeServer, Reply

PARAM = click.Argument(["word"])
NODES = items(node("node1", device(0)), node("node2"), node("$(evil)"))
SPACES = items({"metadata": {"name": "ml"}}, {"metadata": {"name": "mlops"}}, {"metadata": {"name": "lab"}})


def context(options: Any, **params: Any) -> Any:
    """Return what click hands to a completer, first: the options before the word."""
    return SimpleNamespace(params={"kubeconfig": options.kubeconfig, **params})


@pytest.mark.promise("cli-12")
async def test_names_of_the_cluster_are_offered(tmp_path: Path) -> None:
    """Those that begin so, and no word that a shell would run."""
    workload = items({"metadata": {"name": "a-tune"}})
    async with cluster(tmp_path, nodes=NODES, mine=items(pod("a-0"), pod("b-0")), my_workloads=workload) as (
        server,
        options,
    ):
        server.on("GET", "/api/v1/namespaces", SPACES)
        given = context(options)
        assert await asyncio.to_thread(live_names.nodes, given, PARAM, "") == ["node1", "node2"]
        assert await asyncio.to_thread(live_names.nodes, given, PARAM, "node2") == ["node2"]
        assert await asyncio.to_thread(live_names.nodes_of_list, given, PARAM, "node1,n") == [
            "node1,node1",
            "node1,node2",
        ]
        assert await asyncio.to_thread(live_names.namespaces, given, PARAM, "ml") == ["ml", "mlops"]
        assert await asyncio.to_thread(live_names.workloads, given, PARAM, "a") == ["a-0", "a-tune"]
        everywhere = context(options, all_namespaces=True)
        assert await asyncio.to_thread(live_names.workloads, everywhere, PARAM, "a") == []

    asked: FakeServer = server
    assert {each.query["limit"] for each in asked.requests} == {"500"}


@pytest.mark.parametrize("reply", [MISSING, Reply(403, {"message": "forbidden"})])
async def test_what_cannot_be_listed_is_not_offered(reply: Reply, tmp_path: Path) -> None:
    """The shell gets no word, and no error."""
    async with cluster(tmp_path, nodes=reply) as (_, options):
        assert await asyncio.to_thread(live_names.nodes, context(options), PARAM, "") == []


def test_no_cluster_has_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has a kubeconfig that is not there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for kubeconfig in (None, str(tmp_path / "none")):
        nowhere = context(SimpleNamespace(kubeconfig=kubeconfig))
        assert live_names.nodes(nowhere, PARAM, "") == []
        assert live_names.contexts(nowhere, PARAM, "") == []


def test_contexts_stand_in_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each file of KUBECONFIG."""
    for name in ("one", "two"):
        text = f"contexts: [{{name: {name}}}, {{name: {name}@aks}}, {{name: 'x y'}}]"
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'one'}:{tmp_path / 'two'}")

    assert live_names.contexts(context(SimpleNamespace(kubeconfig=None)), PARAM, "") == [
        "one",
        "one@aks",
        "two",
        "two@aks",
    ]
