"""The command line, installed as a user installs it, compared with what kubectl shows of the same cluster."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import ROOT, SYSTEM, Cluster
from tests.cluster.declared import known_devices
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.verify.pods import Json

    Done = subprocess.CompletedProcess[str]
    Ask = Callable[..., list[Json]]


OUT_OF_TIME: Final = 124
"""Exit status of `timeout` when it had to end the command."""


def install(cluster: Cluster, folder: Path) -> Callable[..., Done]:
    """Install the command line outside the checkout, as its page says.

    Return a function that runs a command with it.
    """
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
    """Return a function that returns the items of a verb's JSON."""

    def ask(*words: str) -> list[Json]:
        done = command(*called, *words, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        items: list[Json] = json.loads(done.stdout)["items"]
        return items

    return ask


def compare_workloads(cluster: Cluster, ask: Ask) -> None:
    """Verb workloads has each of our pods with its node."""
    ours = [pod for pod in cluster.get("pods", "-A")["items"] if pod["spec"]["schedulerName"] == "gpu-scheduler"]
    assert {each["uid"]: each["node"] for each in ask("workloads", "-A")} == {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in ours
    }


def compare_nodes(cluster: Cluster, ask: Ask) -> None:
    """Verb nodes has each node, and verb health each device, as the monitor wrote it on the node."""
    shown = {each["name"]: each for each in ask("nodes")}
    assert set(shown) == {node["metadata"]["name"] for node in cluster.get("nodes")["items"]}
    # A device's utilization differs between two samples.
    lasting = itemgetter("uuid", "model", "memoryTotalMiB", "health")
    written = sorted(map(lasting, known_devices(cluster)))
    assert sorted(lasting(device) for node in shown.values() for device in node["cards"]) == written
    assert sorted(map(lasting, ask("health"))) == written


def compare_status(cluster: Cluster, ask: Ask, *, held: int) -> None:
    """Verb status has the leader of the Lease, the GPUs of the monitors, and how many of them pods hold."""
    status = ask("status")[0]
    lease = cluster.get("lease", "-n", SYSTEM, "gpu-scheduler")["spec"]
    assert status["leader"]["holder"] == lease["holderIdentity"]
    assert (status["gpus"]["total"], status["gpus"]["held"]) == (len(known_devices(cluster)), held)
    assert status["nodes"]["ready"] == len(cluster.get("nodes")["items"])
    assert status["conflicts"] == []


def compare_watch(command: Callable[..., Done], called: tuple[str, ...], ask: Ask) -> None:
    """Verb watch has each node and each workload once, as the other verbs have them.

    Ctrl-C ends it after five seconds.
    """
    watching = (*called, "watch", "-A", "-o", "json")
    done = command("timeout", "--signal=INT", "5", *watching)
    if done.returncode == OUT_OF_TIME and not done.stdout:
        # On a busy machine it may start later than that.
        done = command("timeout", "--signal=INT", "30", *watching)
    news = [json.loads(line) for line in done.stdout.splitlines()]
    first = {each["object"].get("uid") or each["object"]["name"]: each for each in reversed(news)}
    assert {each["type"] for each in first.values()} == {"ADDED"}, done.stderr
    assert set(first) == {each["name"] for each in ask("nodes")} | {each["uid"] for each in ask("workloads", "-A")}
