"""The manifests as the main play would apply them: valid, least in rights, restricted, named as promised."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROLES = ("certificates", "scheduler", "policies", "webhook", "check")

RENDER = """\
---
- name: Render the templates
  ansible.builtin.template:
    src: "{{ item }}"
    dest: "{{ rendered_dir }}/{{ rendered_role }}-{{ item | basename | splitext | first }}"
    mode: "0600"
  with_fileglob: "{{ role_path }}/templates/*.yaml.j2"
"""

# Every right that is given, and no other: (role, namespaced?, group, resource, name) → verbs.
RIGHTS = {
    ("ClusterRole", "", "pods", ""): {"get", "list", "watch"},
    ("ClusterRole", "", "nodes", ""): {"list", "watch"},
    ("ClusterRole", "", "pods/binding", ""): {"create"},
    ("ClusterRole", "", "pods/status", ""): {"patch"},
    ("ClusterRole", "events.k8s.io", "events", ""): {"create"},
    ("ClusterRole", "", "persistentvolumeclaims", ""): {"list", "watch", "patch"},
    ("ClusterRole", "", "persistentvolumes", ""): {"list", "watch"},
    ("ClusterRole", "storage.k8s.io", "storageclasses", ""): {"list", "watch"},
    ("Role", "coordination.k8s.io", "leases", ""): {"create"},
    ("Role", "coordination.k8s.io", "leases", "gpu-scheduler"): {"get", "update"},
}

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Return all manifests of all roles, rendered by Ansible itself."""
    folder: Path = tmp_path_factory.mktemp("manifests")
    roles = folder / "roles"
    rendered = folder / "rendered"
    rendered.mkdir()
    for role in ROLES:
        shutil.copytree(ROOT / "roles" / role, roles / role)
        (roles / role / "tasks" / "render.yml").write_text(RENDER)
    done = subprocess.run(
        (
            "ansible-playbook",
            "tests/contracts/render.yml",
            "-e",
            json.dumps({"rendered_roles": ROLES, "rendered_dir": str(rendered)}),
        ),
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_ROLES_PATH": str(roles)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    documents = [document for path in sorted(rendered.iterdir()) for document in yaml.safe_load_all(path.read_text())]
    return [document for document in documents if document]


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """Return the manifests of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pod_of(manifest: Manifest) -> Manifest:
    """Return the pod specification of a pod or of a workload's template."""
    spec: Manifest = manifest["spec"]
    return spec if manifest["kind"] == "Pod" else spec["template"]["spec"]


def test_manifests_are_valid(manifests: list[Manifest]) -> None:
    """Every object is valid against Kubernetes' own schema, unknown fields refused."""
    for manifest in manifests:
        if manifest["apiVersion"].startswith("cert-manager.io/"):
            continue  # a resource of cert-manager's, whose schema is not Kubernetes'
        kubernetes_validate.validate(manifest, "1.36", strict=True)


def test_names_are_the_promised_ones(manifests: list[Manifest]) -> None:
    """Deployments, Services, accounts, registrations and Secrets have the names that users look for."""
    named = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}

    assert named >= {
        ("Namespace", "gpu-scheduler-system"),
        ("Namespace", "gpu-scheduler-tests"),
        ("Deployment", "gpu-scheduler"),
        ("Service", "gpu-scheduler"),
        ("ServiceAccount", "gpu-scheduler"),
        ("PodDisruptionBudget", "gpu-scheduler"),
        ("Deployment", "gpu-scheduler-webhook"),
        ("Service", "gpu-scheduler-webhook"),
        ("ServiceAccount", "gpu-scheduler-webhook"),
        ("PodDisruptionBudget", "gpu-scheduler-webhook"),
        ("MutatingWebhookConfiguration", "gpu-scheduler-webhook"),
        ("ValidatingWebhookConfiguration", "gpu-scheduler-webhook"),
        ("Secret", "gpu-scheduler-webhook-tls"),
        ("StatefulSet", "gpu-scheduler-check"),
    }


def test_rights_are_the_least(manifests: list[Manifest]) -> None:
    """The scheduler has exactly the listed rights; nobody else has any: no Secret, no wildcard, no write on nodes."""
    given = {
        (role["kind"], group, resource, name): set(rule["verbs"])
        for role in of_kind(manifests, "Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }
    subjects = {
        (subject["namespace"], subject["name"])
        for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }

    assert given == RIGHTS
    assert subjects == {("gpu-scheduler-system", "gpu-scheduler")}


def test_containers_are_restricted(manifests: list[Manifest]) -> None:
    """Every container runs as user 1000, on a read-only root, without capabilities, under the default seccomp."""
    pods = [pod_of(manifest) for manifest in of_kind(manifests, "Pod", "Deployment", "StatefulSet")]
    assert pods
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@pytest.mark.parametrize("name", ["gpu-scheduler-system", "gpu-scheduler-tests"])
def test_namespaces_enforce_the_restricted_standard(manifests: list[Manifest], name: str) -> None:
    """Pod Security `restricted` is enforced in the namespaces of ours."""
    (namespace,) = (one for one in of_kind(manifests, "Namespace") if one["metadata"]["name"] == name)

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_deployments_survive_a_node(manifests: list[Manifest]) -> None:
    """Two replicas each, spread over nodes, critical, replaced one by one and never below their number."""
    for deployment in of_kind(manifests, "Deployment"):
        spec, pod = deployment["spec"], pod_of(deployment)
        assert spec["replicas"] == 2
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


def test_webhook_sees_our_pods_only(manifests: list[Manifest]) -> None:
    """Both registrations fail closed and ask about nobody else's pods; the webhook has no token of the API's."""
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (registration,) = of_kind(manifests, kind)
        (webhook,) = registration["webhooks"]
        (condition,) = webhook["matchConditions"]
        assert webhook["failurePolicy"] == "Fail"
        assert condition["expression"] == "object.spec.schedulerName == 'gpu-scheduler'"
    (deployment,) = (one for one in of_kind(manifests, "Deployment") if one["metadata"]["name"].endswith("webhook"))

    assert pod_of(deployment)["automountServiceAccountToken"] is False


def test_webhook_is_asked_whenever_a_container_comes(manifests: list[Manifest]) -> None:
    """At a pod's creation, and when somebody puts a container for debugging into it."""
    (registration,) = of_kind(manifests, "MutatingWebhookConfiguration")
    (webhook,) = registration["webhooks"]

    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE"], ["pods"]),
        (["UPDATE"], ["pods/ephemeralcontainers"]),
    ]


def test_witnesses_claim_no_gpu(manifests: list[Manifest]) -> None:
    """Check pods are observers: the proof stands beside real workloads and takes no card from them."""
    (check,) = of_kind(manifests, "StatefulSet")
    annotations = [check["spec"]["template"]["metadata"]["annotations"]]
    annotations += [pod["metadata"]["annotations"] for pod in of_kind(manifests, "Pod")]

    assert len(annotations) == 4
    assert all(one["agentaflow.gpu/observer"] == "true" for one in annotations)
    assert check["spec"]["podManagementPolicy"] == "Parallel"
    assert check["spec"]["replicas"] == 5
