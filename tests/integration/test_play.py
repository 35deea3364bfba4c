"""The main play on an API server without nodes: a dry run writes nothing, policies of others are no obstacle."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.contracts.cluster_modules import load_module
from tests.contracts.roles import ROOT
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.policies import COLLECTIONS, REGISTRATION
from tests.integration.programs import program
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

# Longer than the limit of its play: other files that run plays have the same.
pytestmark = pytest.mark.timeout(300)
DIGEST: Final = f"sha256:{'d' * 64}"
FOREIGN: Final = "company-pods"
# What policies of companies commonly demand of every pod.
DEMANDS: Final = (
    "object.spec.containers.all(c, ['cpu', 'memory'].all(r, r in c.?resources.?limits.orValue({})))",
    "object.spec.containers.all(c, ['cpu', 'memory'].all(r, r in c.?resources.?requests.orValue({})))",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "object.spec.containers.all(c, c.image.contains('@') || !c.image.endsWith(':latest'))",
    "'app.kubernetes.io/name' in object.?metadata.?labels.orValue({})",
    "object.?spec.?securityContext.?runAsNonRoot.orValue(false) == true",
    "object.?spec.?automountServiceAccountToken.orValue(true) == false",
)
# The API server itself writes these.
RESTLESS: Final = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"}


class Cluster:
    """An API server, and the main play on it."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.folder = folder
        self.plane = plane
        self.kubeconfig = plane.kubeconfig(folder / "kubeconfig", ADMIN_TOKEN)

    def play(self, *options: str, left_out: str = "") -> tuple[int, str]:
        """Run site.yml as for an existing cluster whose images are in a registry. Return exit status and output.

        Of the variables those that begin with `left_out` are not given.
        """
        images = {f"{name}_image": f"registry.example.com/team/{name}@{DIGEST}" for name in ("scheduler", "check")}
        given = {
            **images,
            "kubeconfig": str(self.kubeconfig),
            "kube_context": "test",
            "kubectl_program": str(program("kubectl")),
            "evidence_dir": str(self.folder / "evidence"),
            "monitor_source": "simulated",
            "monitor_simulated_inventory": {"node1": [{"count": 4, "model": "L4", "memoryTotalMiB": 24576}]},
        }
        if left_out:
            given = {name: value for name, value in given.items() if not name.startswith(left_out)}
        command = ("ansible-playbook", "-i", "inventory/existing", "site.yml", "-e", json.dumps(given), *options)
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit(240), check=False
        )
        return done.returncode, done.stdout + done.stderr

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of every object."""
        kubectl = (str(program("kubectl")), f"--kubeconfig={self.kubeconfig}")
        asked = (*kubectl, "api-resources", "--verbs=list", "--output=name")
        kinds = set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()) - RESTLESS
        listing = (*kubectl, "get", ",".join(sorted(kinds)), "--all-namespaces", "--output=json")
        listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in json.loads(listed)["items"]}

    def written(self) -> list[str]:
        """Return the files that runs have written on this host."""
        found = (self.folder / name for name in ("cache", "evidence"))
        return [str(path) for folder in found for path in folder.rglob("*")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An empty cluster, with somebody's policy for all pods."""
    folder = tmp_path_factory.mktemp("play")
    (folder / "plane").mkdir()
    plane = ControlPlane(folder / "plane")
    try:
        for body in foreign(*DEMANDS):
            plane.kube.create(f"{REGISTRATION}/{COLLECTIONS[body['kind']]}", body)
        yield Cluster(folder, plane)
    finally:
        plane.stop()


def foreign(*expressions: str) -> list[Object]:
    """Return the policy of somebody else and its binding."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": FOREIGN}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression} for expression in expressions],
    }
    binding = {"policyName": FOREIGN, "validationActions": ["Deny"]}
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def assert_dry_run_writes_nothing(cluster: Cluster, *options: str) -> str:
    """Run the play in check mode. Return its output."""
    before = cluster.versions()
    status, output = cluster.play("--check", "--diff", *options)

    assert status == 0, output[-4000:]
    assert cluster.versions() == before
    assert cluster.written() == []
    return output


@pytest.mark.promise("up-11")
def test_dry_run_on_an_empty_cluster_shows_what_a_run_would_create(cluster: Cluster) -> None:
    """No task fails because an earlier one made nothing: no namespaces, kinds, Secrets or pods are there.

    Each object has its diff, but for the data of Secrets.
    """
    output = assert_dry_run_writes_nothing(cluster, "--skip-tags", "preflight")

    assert [
        name
        for name in (
            "Deployment gpu-scheduler-system/gpu-scheduler",
            "Deployment gpu-scheduler-system/gpu-scheduler-webhook",
            "Deployment gpu-scheduler-system/gpu-scheduler-controller",
            "DaemonSet gpu-scheduler-monitor/gpu-scheduler-monitor",
            "NetworkPolicy gpu-scheduler-system/gpu-scheduler-deny",
            "NetworkPolicy gpu-scheduler-monitor/gpu-scheduler-deny",
            "Secret gpu-scheduler-system/gpu-scheduler-webhook-tls",
            "MutatingWebhookConfiguration gpu-scheduler-webhook",
            "ValidatingAdmissionPolicy gpu-scheduler-assignments",
            "StatefulSet default/gpu-scheduler-check",
            "Pod gpu-scheduler-tests/webhook-test-0",
        )
        if f"+++ after: {name}\n" not in output
    ] == []
    assert "PRIVATE KEY" not in output


@pytest.mark.plays
@pytest.mark.promise("up-11")
@pytest.mark.parametrize(("isolation", "shown"), [("env", False), ("dra", True)])
def test_dry_run_shows_drivers_only_with_isolation_dra(cluster: Cluster, isolation: str, shown: bool) -> None:  # noqa: FBT001 - of a table
    """By default nothing of role driver is applied."""
    tags = "monitor,driver,network_policies"
    output = assert_dry_run_writes_nothing(cluster, "--tags", tags, "-e", json.dumps({"isolation": isolation}))

    for name in (
        "ClusterRole gpu-scheduler-driver",
        "DaemonSet gpu-scheduler-driver/gpu-scheduler-driver",
        "DeviceClass gpu.agentaflow.io",
        "ValidatingAdmissionPolicy gpu-scheduler-driver",
        "NetworkPolicy gpu-scheduler-driver/gpu-scheduler-deny",
    ):
        assert (f"+++ after: {name}\n" in output) is shown, name


@pytest.mark.plays
@pytest.mark.promise("up-11", "up-12")
def test_policies_are_seen_through_those_of_others(cluster: Cluster) -> None:
    """The probe pods have what other policies demand, so that ours answer.

    A dry run of an installation that was interrupted there misses a Secret and accounts, and does not fail.
    """
    cluster.plane.kube.create("/api/v1/namespaces", {"metadata": {"name": "gpu-scheduler-system"}})
    eventually("the policy of somebody else is in force", lambda: FOREIGN in refusal(cluster), seconds=20)

    status, output = cluster.play("--tags", "crds,policies")

    assert status == 0, output[-4000:]
    again = assert_dry_run_writes_nothing(cluster, "--tags", "scheduler,policies,webhook,check")
    assert "+++ after: Deployment gpu-scheduler-system/gpu-scheduler\n" in again
    assert "+++ after: ValidatingAdmissionPolicy gpu-scheduler-assignments\n" not in again


@pytest.mark.plays
@pytest.mark.parametrize(
    "options", [("--tags", "monitor"), ("--tags", "driver"), ("--skip-tags", "preflight")], ids=" ".join
)
def test_monitors_that_nobody_has_given_up_stay_whatever_the_tags(cluster: Cluster, options: tuple[str, str]) -> None:
    """U8: the refusal does not depend on tag preflight; a default of the inventory is nobody's word."""
    namespace = f"unsaid-{options[1]}"
    line = "apps/v1 DaemonSet gpu-scheduler-monitor/gpu-scheduler-monitor 0b1f"
    record = {"metadata": {"name": "gpu-scheduler-applied-monitor"}, "data": {"objects": f"{line}\n"}}
    cluster.plane.kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    cluster.plane.kube.create(f"/api/v1/namespaces/{namespace}/configmaps", record)

    status, output = cluster.play(*options, "-e", f"system_namespace={namespace}", left_out="monitor_")

    assert status != 0
    assert "Nothing was changed:" in output
    assert "This run would remove the monitors of the cluster" in output
    assert "changed=0" in output


def refusal(cluster: Cluster) -> str:
    """Return what a wait says about a probe pod that somebody's policy refuses."""
    probe = load_module("plugins", "modules", "admission_probe.py")
    pod = {"apiVersion": "v1", "kind": "Pod", **objects.pod("probe")}
    pod["metadata"]["namespace"] = "default"
    asked = {"expected": "it is so", "pod": pod, "refused_by": ["ours"], "sets": "", "not_refused_by": []}
    fault: str = probe.wait(
        asked, probe.ask_with([str(program("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]), 3, 0
    )
    return fault


def test_policy_of_somebody_else_that_refuses_is_named(cluster: Cluster) -> None:
    """The failure begins with its name, whatever the API server's sentence looks like."""
    eventually(
        "the failure names it",
        lambda: f"ValidatingAdmissionPolicy '{FOREIGN}' refuses the probe pod probe first" in refusal(cluster),
        seconds=20,
    )
