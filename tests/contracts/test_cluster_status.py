"""The screen of `make status`, for clusters that are a few lines of data."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme

from tests.contracts.loading import load

Json = dict[str, Any]

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REMEDY = "make up"


status_lines = load("plugins", "module_utils", "status_lines.py")
# Registered under the name with which Ansible imports it.
sys.modules["ansible.module_utils.status_lines"] = status_lines
status = load("plugins", "modules", "cluster_status.py")


def stamp(**ago: float) -> str:
    """Return a time as Kubernetes writes it."""
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def node(name: str, *, ready: str = "True", cordoned: bool = False) -> Json:
    """Return a node."""
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }


def pod(name: str, on: str = "", devices: str = "", *, message: str = "", **annotations: str) -> Json:
    """Return a pod of ours; with `on` it is bound to that node and running."""
    conditions = [{"type": "Ready", "status": "True"}] if on else []
    if message:
        conditions.append({"type": "PodScheduled", "status": "False", "message": message})
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "labels": {"app": "x"},
            "annotations": {f"agentaflow.gpu/{key}": value for key, value in annotations.items()},
        },
        "spec": {
            **({"nodeName": on} if on else {}),
            "containers": [{"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": devices}]}],
        },
        "status": {"phase": "Running" if on else "Pending", "conditions": conditions},
    }


def deployment(name: str) -> Json:
    """Return a Deployment of two replicas, one of them ready."""
    return {
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"spec": {"containers": [{"image": "host/team/gpu-scheduler:dev-1"}]}},
        },
        "status": {"readyReplicas": 1},
    }


def lease(holder: str, renewed: float) -> Json:
    """Return the scheduler's Lease, acquired an hour ago and renewed `renewed` seconds ago."""
    spec = {"holderIdentity": f"{holder}_1a2b", "acquireTime": stamp(hours=3), "renewTime": stamp(seconds=renewed)}
    return {"kind": "Lease", "metadata": {"name": "gpu-scheduler"}, "spec": spec}


def test_table_of_nodes_shows_who_is_ready_and_what_is_held() -> None:
    """Bound pods that have not finished and are no observers hold a node's GPUs, which are sorted by number."""
    pods = [
        pod("a-0", "node1", "10,2"),
        pod("b-0", "node1", "0", observer="true"),
        pod("c-0", "node1", "", **{"assigned-devices": "3"}),
        pod("d-0", "", "4"),
    ]

    assert list(status_lines.node_rows([node("node1"), node("node2", ready="Unknown", cordoned=True)], pods)) == [
        ("NODE", "STATE", "VERSION", "GPUS HELD"),
        ("node1", "Ready", "v1.36.3", "2,3,10"),
        ("node2", "NotReady, cordoned", "v1.36.3", "-"),
    ]


@pytest.mark.parametrize(
    ("renewed", "places"),
    [(2, "node1 (leads for 3 h), node2"), (60, "node1, node2, nobody leads")],
    ids=["a leader", "a Lease that has expired"],
)
def test_table_of_components_shows_who_leads(renewed: float, places: str) -> None:
    """Ready and wanted replicas, the image without registry, the nodes, and the leader unless its Lease has expired."""
    system = [deployment("gpu-scheduler"), pod("s-1", "node1"), pod("s-2", "node2"), lease("s-1", renewed)]

    assert list(status_lines.component_rows(system, REMEDY, NOW))[1:] == [
        ("scheduler", "1/2", "gpu-scheduler:dev-1", places),
        ("webhook", "none", "-", "not installed: make up installs it"),
        ("controller", "none", "-", "not installed: make up installs it"),
    ]


def test_the_controller_has_a_leader_of_its_own() -> None:
    """The controller's leader is that of its own Lease, not of the scheduler's."""
    system = [deployment("gpu-scheduler-controller"), pod("c-1", "node1"), lease("c-1", 2)]
    assert list(status_lines.component_rows(system, REMEDY, NOW))[-1][3] == "node1, nobody leads"

    system[-1]["metadata"]["name"] = "gpu-scheduler-controller"
    assert list(status_lines.component_rows(system, REMEDY, NOW))[-1][3] == "node1 (leads for 3 h)"


def test_monitors_are_counted_where_there_are_any() -> None:
    """The line has the ready monitors and their number; a cluster without monitors has no such line."""
    monitors = deployment("gpu-scheduler-monitor") | {"status": {"desiredNumberScheduled": 4, "numberReady": 3}}

    assert list(status_lines.monitor_rows([monitors])) == [
        ("monitor", "3/4", "gpu-scheduler:dev-1", "where agentaflow.gpu/enabled=true")
    ]
    assert list(status_lines.monitor_rows([])) == []


def test_pods_that_wait_come_first_with_their_reason() -> None:
    """A waiting pod is shown with the scheduler's reason, a running pod with its node."""
    waits = pod("z-0", message="GpuHeld: GPU 3 of node4 is held by default/train-3")
    runs = pod("a-0", "node4", "3", observer="true")

    assert list(status_lines.pod_rows([runs, waits]))[1:] == [
        ("default/z-0", "-", "-", "GpuHeld: GPU 3 of node4 is held by default/train-3"),
        ("default/a-0", "node4", "3", "Running, observes"),
    ]


def test_container_that_cannot_start_is_reported() -> None:
    """A bound pod whose container waits is shown with the cause, a terminating pod with the time since its deletion."""
    stuck, leaving = pod("a-0", "node1"), pod("b-0", "node1")
    stuck["status"] |= {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"

    assert status_lines.state(stuck) == "Pending, ErrImagePull"
    assert status_lines.state(leaving) == "Terminating since 2026-11-21T11:00:00Z"


@pytest.mark.promise("lead-6")
def test_gpu_held_twice_is_reported_once_and_only_while_it_is() -> None:
    """Both pods have an event of one conflict; it is over when one of them no longer holds the GPU."""
    notes = [
        f"GpuConflict: GPU 3 of node4 is held by default/{one} and by default/{other} at once; delete one of the two"
        for one, other in (("a-0", "b-0"), ("b-0", "a-0"))
    ]
    both = [pod("a-0", "node4", "3"), pod("b-0", "node4", "3")]

    assert list(status_lines.conflict_lines(notes, both)) == [
        "Conflict     GpuConflict: GPU 3 of node4 is held by default/a-0 and by default/b-0 at once;",
        "             delete one of the two",
    ]
    assert list(status_lines.conflict_lines(notes, both[:1])) == []


def test_certificate_line_has_its_end_and_a_remedy() -> None:
    """The line says: days left, expired, missing, or that the webhook is not registered."""
    authority = trustme.CA()
    served = authority.issue_cert("x", not_after=NOW + timedelta(days=10, hours=1)).cert_chain_pems[0].bytes()

    assert status_lines.certificate_line(served, 2, REMEDY, NOW) == "Certificate  10 days left, until 2026-12-01"
    assert status_lines.certificate_line(served, 1, REMEDY, NOW).endswith(
        "; the webhook is not registered: make up does"
    )
    assert "ended 2026-12-01: make up renews it" in status_lines.certificate_line(
        served, 2, REMEDY, NOW + timedelta(days=11)
    )
    assert status_lines.certificate_line(b"", 0, REMEDY, NOW) == "Certificate  none: make up issues it"


def test_screen_stays_within_its_width_and_its_height() -> None:
    """Long lines are cut. Of many pods the first ones are shown, with the command that shows all."""
    found = {
        "nodes": [node("node1")],
        "system": [],
        "monitors": [],
        "pods": [pod(f"p-{number}", message="GpuHeld: " + "x" * 200) for number in range(100)],
        "conflicts": [],
        "certificate": b"",
        "registrations": 0,
    }
    lines = list(status_lines.cluster_lines(found, REMEDY, NOW))

    assert lines[-1].startswith("… and 76 more: kubectl get pods --all-namespaces")
    assert len(lines) < 40
    assert list(status_lines.cluster_lines({**found, "pods": []}, REMEDY, NOW))[-1] == (
        "No pod has schedulerName gpu-scheduler."
    )


def test_a_policy_that_injects_needs_neither_webhook_nor_certificate() -> None:
    """With injection by policy the lines of the webhook are omitted."""
    found = {
        "nodes": [node("node1")],
        "system": [],
        "monitors": [],
        "pods": [],
        "conflicts": [],
        "certificate": b"",
        "registrations": 0,
    }
    text = "\n".join(status_lines.cluster_lines(found, REMEDY, NOW, webhook=False))

    assert "Injection    by the API server's own policy" in text
    assert "Certificate" not in text
    assert "webhook" not in text


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (
            {"kind_cluster": "", "kubectl": ["kubectl", "--context="]},
            [
                "Cluster      kube_context names none, and the current one is never taken by chance:",
                f"{' ' * 13}{REMEDY}",
            ],
        ),
        (
            {"kind_cluster": "", "kubectl": ["no-such-kubectl", "--context=far"]},
            [
                "Cluster      far does not answer: check kubectl_program",
                f"{' ' * 13}cannot run no-such-kubectl: No such file or directory",
            ],
        ),
    ],
    ids=["no context", "no kubectl"],
)
def test_what_is_missing_is_a_line_with_its_remedy(asked: Json, lines: list[str]) -> None:
    """A missing part is no error: the screen has a line with its remedy."""
    given = {"namespace": "s", "injection": "webhook", "remedy": REMEDY, **asked}

    assert status.screen(given, NOW).splitlines() == lines


def test_engine_that_does_not_answer_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine, an engine without the cluster, and stopped nodes each have a line."""

    def answers(*containers: str) -> None:
        reported = {"version": "29.1", "ps": "\n".join(containers)}
        monkeypatch.setattr(status, "output_of", lambda *command: reported[command[1]])

    monkeypatch.setattr(status, "output_of", lambda *_: (_ for _ in ()).throw(status.UnavailableError("refused")))
    assert status.engine("c", REMEDY) == (False, ["Engine       none answers: make up starts it", f"{' ' * 13}refused"])
    answers()
    assert status.engine("c", REMEDY)[1][1:] == ["Cluster      c does not exist: make up creates it"]
    answers("running", "exited")
    assert status.engine("c", REMEDY)[1][1:] == ["Nodes        1 of 2 run: make up starts the others"]
    answers("running", "running")
    assert status.engine("c", REMEDY) == (True, ["Engine       Docker 29.1"])
