"""The command line, installed as a user installs it, and what it must tell: what kubectl shows of the same cluster."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import ROOT, SYSTEM, Cluster
from tests.cluster.declared import cards
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.verify.pods import Json

    Done = subprocess.CompletedProcess[str]
    Ask = Callable[..., list[Json]]


OUT_OF_TIME: Final = 124
"""What `timeout` ends with where it had to end the command."""


def install(cluster: Cluster, folder: Path) -> Callable[..., Done]:
    """Install it outside the checkout, as its page says; return what runs words on the test cluster."""
    environment = {
        **os.environ,
        "UV_TOOL_DIR": str(folder / "tools"),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
    }
    run = partial(
        subprocess.run, env=environment, cwd=folder, capture_output=True, text=True, timeout=limit(120), check=False
    )
    installed = run(("uv", "tool", "install", "--compile-bytecode", str(ROOT / "scheduler")))
    assert installed.returncode == 0, installed.stderr
    return lambda *words: run(words)


def asking_as(command: Callable[..., Done], called: tuple[str, ...]) -> Ask:
    """Return what gives the items of a verb's JSON."""

    def ask(*words: str) -> list[Json]:
        done = command(*called, *words, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        items: list[Json] = json.loads(done.stdout)["items"]
        return items

    return ask


def compare_workloads(cluster: Cluster, ask: Ask) -> None:
    """Each pod of ours, and the node that it is bound to."""
    ours = [pod for pod in cluster.get("pods", "-A")["items"] if pod["spec"]["schedulerName"] == "gpu-scheduler"]
    assert {each["uid"]: each["node"] for each in ask("workloads", "-A")} == {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in ours
    }


def compare_nodes(cluster: Cluster, ask: Ask) -> None:
    """Each node, and of each card what the monitor wrote on the node."""
    shown = {each["name"]: each for each in ask("nodes")}
    assert set(shown) == {node["metadata"]["name"] for node in cluster.get("nodes")["items"]}
    # What a card does meanwhile differs from one look to the next.
    lasting = itemgetter("uuid", "model", "memoryTotalMiB", "health")
    written = sorted(map(lasting, cards(cluster)))
    assert sorted(lasting(card) for node in shown.values() for card in node["cards"]) == written
    assert sorted(map(lasting, ask("health"))) == written


def compare_status(cluster: Cluster, ask: Ask, *, held: int) -> None:
    """Who leads by the Lease, how many GPUs there are by the monitors, how many of them pods hold."""
    status = ask("status")[0]
    lease = cluster.get("lease", "-n", SYSTEM, "gpu-scheduler")["spec"]
    assert status["leader"]["holder"] == lease["holderIdentity"]
    assert (status["gpus"]["total"], status["gpus"]["held"]) == (len(cards(cluster)), held)
    assert status["nodes"]["ready"] == len(cluster.get("nodes")["items"])
    assert status["conflicts"] == []


def compare_watch(command: Callable[..., Done], called: tuple[str, ...], ask: Ask) -> None:
    """Five seconds of it, until Ctrl-C: each node and each workload once, as the other verbs tell them."""
    watching = (*called, "watch", "-A", "-o", "json")
    done = command("timeout", "--signal=INT", "5", *watching)
    if done.returncode == OUT_OF_TIME and not done.stdout:
        # On a busy machine it may take longer than that to begin.
        done = command("timeout", "--signal=INT", "30", *watching)
    news = [json.loads(line) for line in done.stdout.splitlines()]
    first = {each["object"].get("uid") or each["object"]["name"]: each for each in reversed(news)}
    assert {each["type"] for each in first.values()} == {"ADDED"}, done.stderr
    assert set(first) == {each["name"] for each in ask("nodes")} | {each["uid"] for each in ask("workloads", "-A")}
