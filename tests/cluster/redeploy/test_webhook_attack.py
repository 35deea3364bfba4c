"""The webhook under attack by pods of a cluster: the source of the figures in docs/performance.md."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.process.acceptor import WEBHOOK_LIMITS
from tests.attacks.connections import established
from tests.attacks.create_latency import Creating
from tests.cluster.clusters import ROOT, SYSTEM, TESTS, Cluster
from tests.cluster.reading import client_of
from tests.cluster.verify import system
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.verify.pods import MakePod

Json = dict[str, Any]

SECONDS: Final = 60
MEMORY_LIMIT: Final = 192
"""MiB, the limit in role webhook."""
HTTPS: Final = 8443
ATTACKS: Final = (
    *(("bodies", 10) for _ in range(3)),
    *(("idle", 400) for _ in range(5)),
    ("headers", 200),
    ("giants", 4),
)
"""Ten pods: 30 stalled bodies, 2,000 idle TLS connections, slow headers, and reviews of 60,000 containers."""
ATTACKER: Final = {"requests": {"cpu": "10m"}, "limits": {"cpu": "50m"}}
"""Half a core for all ten: they share two cores with five nodes, which must have enough CPU left."""


@pytest.fixture
def flood(cluster: Cluster) -> Iterator[str]:
    """Yield the name of a ConfigMap with the attacking program."""
    program = (ROOT / "tests/attacks/flood.py").read_text(encoding="utf-8")
    metadata = {"name": "flood", "namespace": TESTS}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"flood.py": program}})
    yield "flood"
    cluster.kubectl("delete", "configmap", "-n", TESTS, "flood", "--ignore-not-found")


@pytest.mark.timeout(400)
@pytest.mark.promise("serve-1", "serve-2", "serve-3")
def test_ten_pods_attack_the_webhook_for_a_minute(
    cluster: Cluster, make_pod: MakePod, flood: str, healthy: None
) -> None:
    """No create of ours fails or is slow, and memory stays below 3/4 of its limit.

    All connections are closed, but those that may idle while there are free slots.
    """
    attackers = [f"attacker-{number}" for number in range(len(ATTACKS))]
    before = {pod["metadata"]["name"]: _restarts(pod) for pod in system.replicas(cluster, system.WEBHOOK)}
    baseline, attacked = (Creating(partial(_create, cluster, make_pod("ours-0", "0=node1:0"))) for _ in range(2))
    with baseline.going_on():
        eventually("a hundred creates in peace", lambda: len(baseline.seconds) >= 100, 60)
    for number, (name, (attack, connections)) in enumerate(zip(attackers, ATTACKS, strict=True)):
        pod = make_pod(name, "", scheduler="default-scheduler")
        cluster.create(_attacking(pod, flood, f"node{number % 4 + 1}", attack, connections))
    eventually("all to attack", lambda: all(_phase(cluster, name) != "Pending" for name in attackers), 60)
    with attacked.going_on():
        eventually("the attack to end", lambda: all(_ended(cluster, name) for name in attackers), SECONDS + 120, 1)
    reported = [json.loads(cluster.kubectl("logs", "-n", TESTS, name).stdout.splitlines()[-1]) for name in attackers]
    peaks = {name: _peak(cluster, name) for name in before}
    _print(baseline, attacked, reported, peaks)

    assert attacked.failed == []
    assert {pod["metadata"]["name"]: _restarts(pod) for pod in system.replicas(cluster, system.WEBHOOK)} == before
    assert max(peaks.values()) < 0.75 * MEMORY_LIMIT
    assert attacked.percentile(99) < limit(0.125)
    for each in reported:
        idle = len(before) * WEBHOOK_LIMITS.served_per_address
        assert each["left"] <= (idle if each["attack"] == "idle" else 0), each
    eventually("the last connections to be closed", lambda: all(_open(cluster, name) < 30 for name in before), 15)


def _attacking(pod: Json, flood: str, node: str, attack: str, connections: int) -> Json:
    del pod["metadata"]["annotations"]
    webhook = f"gpu-scheduler-webhook.{SYSTEM}.svc"
    command = ["python3", "-u", "/flood/flood.py", webhook, "443", attack, str(connections), str(SECONDS)]
    container = {
        **pod["spec"]["containers"][0],
        "command": command,
        "volumeMounts": [{"name": flood, "mountPath": "/flood"}],
        "resources": ATTACKER,
    }
    pod["spec"] |= {
        "containers": [container],
        "volumes": [{"name": flood, "configMap": {"name": flood}}],
        "nodeName": node,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
    }
    return pod


def _create(cluster: Cluster, pod: Json) -> tuple[int, Json]:
    client = client_of(cluster.kubeconfig, f"kind-{cluster.name}")
    return client.call("POST", f"/api/v1/namespaces/{TESTS}/pods?dryRun=All", pod)


def _phase(cluster: Cluster, name: str) -> str:
    phase: str = cluster.get("pod", "-n", TESTS, name)["status"].get("phase", "Pending")
    return phase


def _ended(cluster: Cluster, name: str) -> bool:
    phase = _phase(cluster, name)
    assert phase != "Failed", cluster.kubectl("logs", "-n", TESTS, name).stdout
    return phase == "Succeeded"


def _restarts(pod: Json) -> int:
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def _peak(cluster: Cluster, name: str) -> float:
    """Return the highest resident memory of the replica's process, in MiB."""
    status = cluster.exec(SYSTEM, name, "cat", "/proc/1/status")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _open(cluster: Cluster, name: str) -> int:
    """Return how many connections the replica has open; an API server keeps up to 25."""
    return len(established(cluster.exec(SYSTEM, name, "cat", "/proc/net/tcp", "/proc/net/tcp6"), HTTPS))


def _print(baseline: Creating, attacked: Creating, reported: list[Json], peaks: dict[str, float]) -> None:
    """Print rows for docs/performance.md."""
    rows = [
        f"| creates in peace | {baseline} |",
        f"| creates under attack | {attacked}, {len(attacked.failed)} failed |",
        *(f"| most memory of {name} | {peak:.0f} MiB of {MEMORY_LIMIT} |" for name, peak in peaks.items()),
    ]
    rows += [
        f"| {each.pop('attack')} | {', '.join(f'{key} {value}' for key, value in each.items())} |"
        for each in map(dict, reported)
    ]
    print("\n| what | figure |\n|---|---|\n" + "\n".join(rows))  # noqa: T201 - shown by -rP
