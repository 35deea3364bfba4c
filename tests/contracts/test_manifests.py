"""The manifests as the main play would apply them: valid, least in rights, restricted, named as promised."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from tests.contracts.rendering import rendered
from tests.contracts.rights import ACCOUNTS, RIGHTS

ROLES = ("certificates", "scheduler", "policies", "monitor", "webhook", "controller", "check")

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Return all manifests of all roles, rendered by Ansible itself."""
    return rendered(tmp_path_factory.mktemp("manifests"), ROLES)


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
        ("ConfigMap", "gpu-scheduler-settings"),
        ("Deployment", "gpu-scheduler-webhook"),
        ("Service", "gpu-scheduler-webhook"),
        ("ServiceAccount", "gpu-scheduler-webhook"),
        ("PodDisruptionBudget", "gpu-scheduler-webhook"),
        ("Namespace", "gpu-scheduler-monitor"),
        ("DaemonSet", "gpu-scheduler-monitor"),
        ("ServiceAccount", "gpu-scheduler-monitor"),
        ("ConfigMap", "gpu-scheduler-monitor"),
        ("Deployment", "gpu-scheduler-controller"),
        ("ServiceAccount", "gpu-scheduler-controller"),
        ("PodDisruptionBudget", "gpu-scheduler-controller"),
        ("MutatingWebhookConfiguration", "gpu-scheduler-webhook"),
        ("ValidatingWebhookConfiguration", "gpu-scheduler-webhook"),
        ("Secret", "gpu-scheduler-webhook-tls"),
        ("StatefulSet", "gpu-scheduler-check"),
    }


def test_rights_are_the_least(manifests: list[Manifest]) -> None:
    """Each account has exactly the listed rights: no Secret, no wildcard, no write on what is not its own."""
    given = {
        f"{role['kind']} {role['metadata']['name']}": {
            (group, resource, name): set(rule["verbs"])
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
        }
        for role in of_kind(manifests, "Role", "ClusterRole")
    }
    accounts = {
        f"{binding['roleRef']['kind']} {binding['roleRef']['name']}": f"{subject['namespace']}/{subject['name']}"
        for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }

    assert given == RIGHTS
    assert accounts == ACCOUNTS


def test_containers_are_restricted(manifests: list[Manifest]) -> None:
    """Every container runs as user 1000, on a read-only root, without capabilities, under the default seccomp."""
    pods = [pod_of(manifest) for manifest in of_kind(manifests, "Pod", "Deployment", "StatefulSet", "DaemonSet")]
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


@pytest.mark.parametrize("name", ["gpu-scheduler-system", "gpu-scheduler-tests", "gpu-scheduler-monitor"])
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
        webhook = registration["webhooks"][0]
        (condition,) = webhook["matchConditions"]
        assert webhook["failurePolicy"] == "Fail"
        assert condition["expression"] == "object.spec.schedulerName == 'gpu-scheduler'"
    (deployment,) = (one for one in of_kind(manifests, "Deployment") if one["metadata"]["name"].endswith("webhook"))

    assert pod_of(deployment)["automountServiceAccountToken"] is False


def test_webhook_is_asked_whenever_a_container_comes(manifests: list[Manifest]) -> None:
    """At a pod's creation, and when somebody puts a container for debugging into it."""
    (registration,) = of_kind(manifests, "MutatingWebhookConfiguration")
    webhook = registration["webhooks"][0]

    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE"], ["pods"]),
        (["UPDATE"], ["pods/ephemeralcontainers"]),
    ]


def test_webhook_sees_jobs_with_our_annotations_only(manifests: list[Manifest]) -> None:
    """Kubeflow's three kinds, made or changed: closed for those with a word of ours, never asked about others."""
    (registration,) = of_kind(manifests, "MutatingWebhookConfiguration")
    _, webhook = registration["webhooks"]
    ours, alive = (condition["expression"] for condition in webhook["matchConditions"])

    assert webhook["clientConfig"]["service"]["path"] == "/mutate-job"
    assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Fail", "None", 5)
    assert "k == 'gpu-scheduling-map' || k.startsWith('agentaflow.gpu/')" in ours
    assert alive == "!object.?metadata.?deletionTimestamp.hasValue()"
    assert [(rule["apiGroups"], rule["apiVersions"], rule["resources"]) for rule in webhook["rules"]] == [
        (["kubeflow.org"], ["v1"], ["pytorchjobs", "mpijobs", "tfjobs"]),
        (["kubeflow.org"], ["v2beta1"], ["mpijobs"]),
    ]
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in webhook["rules"])


def test_witnesses_claim_no_gpu(manifests: list[Manifest]) -> None:
    """Check pods are observers: the proof stands beside real workloads and takes no card from them."""
    (check,) = of_kind(manifests, "StatefulSet")
    annotations = [check["spec"]["template"]["metadata"]["annotations"]]
    annotations += [pod["metadata"]["annotations"] for pod in of_kind(manifests, "Pod")]

    assert len(annotations) == 4
    assert all(one["agentaflow.gpu/observer"] == "true" for one in annotations)
    assert check["spec"]["podManagementPolicy"] == "Parallel"
    assert check["spec"]["replicas"] == 5
