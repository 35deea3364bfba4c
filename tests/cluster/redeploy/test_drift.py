"""Each tag alone restores what its role owns. After all of them a whole run changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.names import DRIVER
from tests.cluster import plays
from tests.cluster.clusters import CHECK, HOME, ROOT, SYSTEM, TESTS, Cluster
from tests.cluster.declared import MONITORS
from tests.contracts.roles import play_roles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# preflight owns nothing: it only checks. The engine is killed in scenario healing, on the tests' own engine. The kinds
# of Prometheus Operator, without which observability applies nothing, are only in suite integration.
ELSEWHERE: Final = {"preflight", "container_engine", "observability"}


@dataclass(frozen=True, slots=True)
class Damage:
    """One object that a role owns, and the function that damages it."""

    what: str
    do: Callable[[Cluster], object]


def _lose_route(cluster: Cluster) -> None:
    """Delete node4's route to node1's pods."""
    network = cluster.get("node", "node1")["spec"]["podCIDR"]
    cluster.on_node("node4", "ip", "route", "del", network)


def _lose_image(cluster: Cluster) -> None:
    """Remove the check service's image from one node, although a container runs from it."""
    template = cluster.get("statefulset", "-n", "default", CHECK)["spec"]["template"]
    name = f"docker.io/library/{template['spec']['containers'][0]['image']}"
    cluster.on_node("node2", "ctr", "--namespace=k8s.io", "images", "remove", "--sync", name)


def _leave_namespace(cluster: Cluster, name: str) -> None:
    """Create a namespace of ours with nothing in it."""
    labels = {"app.kubernetes.io/part-of": "gpu-scheduler"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


DAMAGES: Final[Mapping[str, Damage]] = {
    "node_image": Damage("the link to kind", lambda _: (ROOT / ".venv" / "bin" / "kind").unlink()),
    "certificates": Damage(
        "the serving pair",
        lambda cluster: cluster.kubectl("delete", "secret", "-n", SYSTEM, "gpu-scheduler-webhook-tls"),
    ),
    "crds": Damage(
        "a short name",
        lambda cluster: cluster.kubectl(
            "patch",
            "customresourcedefinition",
            "gpuworkloads.agentaflow.io",
            "--type=json",
            '--patch=[{"op": "remove", "path": "/spec/names/shortNames"}]',
        ),
    ),
    # The test cluster has neither of the two: the roles must remove what is left, and no namespace of others.
    "monitor": Damage("the namespace that monitors left", lambda cluster: _leave_namespace(cluster, MONITORS)),
    "driver": Damage("the namespace that drivers left", lambda cluster: _leave_namespace(cluster, DRIVER)),
    "check": Damage(
        "a bare pod", lambda cluster: cluster.kubectl("delete", "pod", "-n", TESTS, "webhook-test-1", "--wait")
    ),
    "kind_cluster": Damage("a route of the pod network", _lose_route),
    "scheduler": Damage(
        "the disruption budget",
        lambda cluster: cluster.kubectl("delete", "poddisruptionbudget", "-n", SYSTEM, "gpu-scheduler"),
    ),
    "evidence": Damage("a log", lambda _: (HOME / "evidence" / "node4.log").unlink()),
    "images": Damage("an image on one node", _lose_image),
    "policies": Damage(
        "a guard's binding",
        lambda cluster: cluster.kubectl("delete", "validatingadmissionpolicybinding", "gpu-scheduler-assignments"),
    ),
    "network_policies": Damage(
        "the policy that denies",
        lambda cluster: cluster.kubectl("delete", "networkpolicy", "-n", SYSTEM, "gpu-scheduler-deny"),
    ),
    "controller": Damage(
        "the disruption budget",
        lambda cluster: cluster.kubectl("delete", "poddisruptionbudget", "-n", SYSTEM, "gpu-scheduler-controller"),
    ),
    "webhook": Damage(
        "a value in its registration",
        lambda cluster: cluster.kubectl(
            "patch",
            "mutatingwebhookconfiguration",
            "gpu-scheduler-webhook",
            "--type=json",
            '--patch=[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 29}]',
        ),
    ),
}


def test_every_role_is_damaged() -> None:
    """Except the roles that are damaged elsewhere."""
    assert set(play_roles()) - ELSEWHERE == set(DAMAGES)


@pytest.mark.parametrize("role", play_roles())
def test_tag_alone_repairs_what_its_role_owns(cluster: Cluster, role: str) -> None:
    """Each tag of README's table runs by itself and repairs its role's damage, and nothing else."""
    damaged = {role} & set(DAMAGES)
    for each in damaged:
        DAMAGES[each].do(cluster)
    run = plays.run(*plays.SITE, "--tags", role).succeeded()

    assert set(run.changed) == damaged


def test_second_run_changes_nothing(cluster: Cluster) -> None:
    """After the repairs a whole run changes only the evidence, although pods become ready while it waits for them.

    The evidence names the new pods.
    """
    components = "app.kubernetes.io/component in (scheduler, webhook, controller)"
    cluster.kubectl("delete", "pod", "-n", SYSTEM, "-l", components, "--grace-period=1")
    assert set(plays.run(*plays.SITE).succeeded().changed) == {"evidence"}
