"""What keeps a run from its end is named before the run has changed anything: one message, the variable, the fix."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster import plays
from tests.cluster.clusters import ROOT, SYSTEM, Cluster
from tests.cluster.existing import scenario
from tests.cluster.existing.listing import of_ours, versions
from tests.cluster.existing.own_cluster import GPU_NODES
from tests.cluster.existing.registry import refusing
from tests.ports import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Problem = Callable[[Cluster], AbstractContextManager[str]]

pytestmark = pytest.mark.timeout(300)

DEPLOYER: Final = ROOT / "roles" / "preflight" / "files" / "deployer.yaml"
MISSING: Final = "validatingadmissionpolicies"
ACCOUNT: Final = "somebody"
CHANGED: Final = "changed.kubeconfig"


def _kubeconfig_of_reader() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(scenario.READER.kubeconfig.read_text(encoding="utf-8"))
    return read


@contextmanager
def _with_kubeconfig(changed: dict[str, Any]) -> Iterator[str]:
    path = scenario.READER.home / CHANGED
    scenario.READER.write(path, yaml.safe_dump(changed))
    yield f"-e kubeconfig={path}"
    path.unlink()


@contextmanager
def unreachable(_: Cluster) -> Iterator[str]:
    """Nobody listens at the API server's address."""
    changed = _kubeconfig_of_reader()
    changed["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    with _with_kubeconfig(changed) as options:
        yield options


@contextmanager
def _account(cluster: Cluster) -> Iterator[str]:
    """Yield a token of a service account that exists during the block."""
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", "kube-system")
    try:
        yield cluster.kubectl("create", "token", ACCOUNT, "-n", "kube-system").stdout.strip()
    finally:
        cluster.kubectl("delete", "serviceaccount", ACCOUNT, "-n", "kube-system", "--ignore-not-found")


@contextmanager
def expired(cluster: Cluster) -> Iterator[str]:
    """The token is no longer valid: a token ends with its account, and no account may have one for seconds only."""
    changed = _kubeconfig_of_reader()
    with _account(cluster) as token:
        changed["users"][0]["user"] = {"token": token}
    with _with_kubeconfig(changed) as options:
        former = Cluster(scenario.READER.home / CHANGED, cluster.name)
        # The API server keeps its verdict on a token for some seconds.
        eventually("the token to be refused", lambda: former.kubectl("auth", "whoami", check=False).returncode, 60, 1)
        yield options


@contextmanager
def without_a_right(cluster: Cluster) -> Iterator[str]:
    """The account has all rights of deployer.yaml except those on one resource."""
    (role,) = (each for each in yaml.safe_load_all(DEPLOYER.read_text(encoding="utf-8")) if each)
    for rule in role["rules"]:
        rule["resources"] = [resource for resource in rule["resources"] if resource != MISSING]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    role["metadata"]["name"] = ACCOUNT
    cluster.create(role)
    reference = f"--serviceaccount=kube-system:{ACCOUNT}"
    changed = _kubeconfig_of_reader()
    try:
        with _account(cluster) as token:
            cluster.kubectl("create", "clusterrolebinding", ACCOUNT, f"--clusterrole={ACCOUNT}", reference)
            changed["users"][0]["user"] = {"token": token}
            with _with_kubeconfig(changed) as options:
                yield options
    finally:
        cluster.kubectl("delete", f"clusterrole/{ACCOUNT}", f"clusterrolebinding/{ACCOUNT}", "--ignore-not-found")


@contextmanager
def terminating(cluster: Cluster) -> Iterator[str]:
    """Something holds a namespace of ours that is being deleted."""
    held = {"metadata": {"name": SYSTEM, "finalizers": ["example.com/held"]}}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", **held})
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")
    try:
        yield ""
    finally:
        free = json.dumps({"metadata": {"finalizers": None}})
        cluster.kubectl("patch", "namespace", SYSTEM, "--type=merge", "-p", free)
        cluster.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=60s")


@contextmanager
def of_another_installer(cluster: Cluster) -> Iterator[str]:
    """Helm has installed an object of the name of one of ours."""
    meta = {
        "name": "gpu-scheduler",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "other", "meta.helm.sh/release-namespace": "default"},
    }
    cluster.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": []})
    try:
        yield ""
    finally:
        cluster.kubectl("delete", "clusterrole", "gpu-scheduler")


def given(options: str) -> Problem:
    """Return a problem that is in the options alone."""

    @contextmanager
    def problem(_: Cluster) -> Iterator[str]:
        yield options

    return problem


REFUSED: Final[dict[str, tuple[Problem, tuple[str, ...]]]] = {
    "no context is named": (given("-e kube_context="), ("kube_context",)),
    "the context does not exist": (given("-e kube_context=nowhere"), ("kube_context", "nowhere")),
    "the cluster cannot be reached": (unreachable, ("kubeconfig", "kube_context")),
    "the token has expired": (expired, ("kubeconfig|kube_context", "[Uu]nauthorized|401|token")),
    "a right is missing": (without_a_right, ("create", MISSING, r"deployer\.yaml|cluster-admin")),
    "a namespace of ours is being deleted": (terminating, (SYSTEM, "delet|[Tt]erminat")),
    "the map names nodes that do not exist": (
        given("-e gpu_scheduling_map=0=nobody:0"),
        ("gpu_scheduling_map", "nobody", "make fix-nodes"),
    ),
    "another installer has an object of that name": (of_another_installer, ("ClusterRole", "gpu-scheduler", "Helm")),
    "cert-manager is not installed": (given("-e cert_mode=cert-manager"), ("cert_mode", "cert-manager", "managed")),
}
"""What keeps the run from its end, and what its one message must have."""


def failures(run: plays.Run) -> list[str]:
    """Return the message of each task that failed."""
    failed = [event for event in plays.events(run.output) if event["_event"] == "v2_runner_on_failed"]
    results = [result for event in failed for result in event["hosts"].values()]
    return [" ".join(text) if isinstance(text := result.get("msg"), list) else str(text) for result in results]


def check(run: plays.Run, words: tuple[str, ...]) -> None:
    """Raise unless the run failed with one message, which has all words."""
    assert run.code != 0, "the run did not fail"
    messages = failures(run)
    assert len(messages) == 1, run.story()
    assert [word for word in words if not re.search(word, messages[0])] == [], messages[0]
    assert sum(run.changed.values()) == 0, run.changed


@pytest.fixture(scope="module")
def untouched(cluster: Cluster) -> dict[str, str]:
    """The version of each object before the first run; nothing of ours is among them."""
    assert of_ours(cluster) == {}
    return versions(cluster)


@pytest.mark.parametrize("what", REFUSED)
def test_a_problem_is_named_before_anything_changes(cluster: Cluster, untouched: dict[str, str], what: str) -> None:
    """The run exits with an error and one message. Without the problem, the cluster is as before."""
    problem, words = REFUSED[what]
    with problem(cluster) as options:
        run = scenario.read(f"make up ARGS='{options}'")

    check(run, words)
    assert versions(cluster) == untouched


def test_a_registry_that_refuses_the_push_is_named_before_anything_changes(
    cluster: Cluster, untouched: dict[str, str]
) -> None:
    """The images are pushed first, so nothing is installed without them."""
    with refusing() as address:
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        options = ("-e", f"kube_context={scenario.CONTEXT}", "-e", f"image_registry={address}/team")
        values = ("-e", json.dumps({"gpu_scheduling_map": f"0={GPU_NODES[0]}:0"}))
        command = ("ansible-playbook", "--inventory=inventory/existing", "site.yml", *options, *values)
        run = plays.run(*command, environment=environment)

    assert run.code != 0
    assert "image_registry" in failures(run)[-1], run.story()
    assert versions(cluster) == untouched
