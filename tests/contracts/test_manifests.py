"""The manifests as the main play applies them: valid, with the least rights, restricted, with the documented names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from msgspec import structs

from gpu_scheduler import names
from gpu_scheduler.kube.objects.pod_objects import PodLabels
from gpu_scheduler.kube.objects.resource_claims import OUR_CLAIM
from gpu_scheduler.webhook.pod_templates import GROUPS
from tests.contracts import roles
from tests.contracts.rendering import KIND, of_kind, once_rendered, pod_of, render, rendered
from tests.contracts.rights import ACCOUNTS, ISOLATING, RIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROLES = ("certificates", "scheduler", "policies", "monitor", "network_policies", "webhook", "controller", "check")

ISOLATING_ROLES = ("scheduler", "policies", "webhook")
ISOLATING_CASES = {each: {"isolation": "dra", "isolation_namespaces": each} for each in ("all", "labelled")}
AUTHORITY = {"webhook_client_ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}
IGNORED = {mode: {"webhook_failure_policy": "Ignore", "isolation": mode} for mode in ("env", "dra")}
WEBHOOKS = (*IGNORED.values(), AUTHORITY)

WORKLOADS = ("Pod", "Deployment", "StatefulSet", "DaemonSet", "CronJob")
CHECK = "gpu-scheduler-check"

Manifest = dict[str, Any]
BACKSLASH = "\\"
"""Before each hyphen of an escaped pattern."""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Return all manifests of all roles, rendered by Ansible itself. The same run renders what else this file needs."""
    isolating = [(role, each) for each in ISOLATING_CASES.values() for role in ISOLATING_ROLES]
    further = [*isolating, *(("webhook", each) for each in WEBHOOKS)]
    folder = tmp_path_factory.mktemp("manifests")
    render(folder, KIND, [*((role, {}) for role in ROLES), *further])
    return rendered(folder, ROLES)


@pytest.mark.promise("up-5")
def test_existing_cluster_gets_the_same_manifests(manifests: list[Manifest], tmp_path: Path) -> None:
    """Both inventories make the same objects of the same inputs."""
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    differing = (
        "isolation",
        "monitor_source",
        "monitor_simulated_inventory",
        "gpu_scheduling_map",
        "check_tolerations",
    )
    given = {name: facts[name] for name in differing}

    assert rendered(tmp_path, ROLES, "inventory/existing", **given) == manifests


@pytest.mark.promise("safe-3", "order-8", "quota-8", "hook-6")
def test_rights_are_the_least(manifests: list[Manifest]) -> None:
    """Each account has exactly the listed rights: no Secret but the renewer's two, no wildcard, no foreign write."""
    accounts: dict[str, set[str]] = {}
    for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding"):
        given_to = accounts.setdefault(f"{binding['roleRef']['kind']} {binding['roleRef']['name']}", set())
        given_to |= {f"{subject['namespace']}/{subject['name']}" for subject in binding["subjects"]}

    assert rights_of(manifests) == RIGHTS
    assert accounts == ACCOUNTS


def rights_of(manifests: list[Manifest]) -> dict[str, dict[tuple[str, str, str], set[str]]]:
    """Return role → (group, resource, name) → verbs."""
    return {
        f"{role['kind']} {role['metadata']['name']}": {
            (group, resource, name): set(rule["verbs"])
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
        }
        for role in of_kind(manifests, "Role", "ClusterRole")
    }


@pytest.mark.promise("safe-1")
def test_containers_are_restricted(manifests: list[Manifest]) -> None:
    """Every container runs as user 1000, on a read-only root, without capabilities, under the default seccomp."""
    pods = [pod_of(manifest) for manifest in of_kind(manifests, *WORKLOADS)]
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


@pytest.mark.promise("safe-2")
@pytest.mark.parametrize("name", ["gpu-scheduler-system", "gpu-scheduler-monitor"])
def test_namespaces_enforce_the_restricted_standard(manifests: list[Manifest], name: str) -> None:
    """The namespaces of our programs enforce Pod Security `restricted`."""
    assert pod_security(manifests, name)["enforce"] == "restricted"


def test_the_tests_namespace_takes_the_pods_of_users_as_they_are(manifests: list[Manifest]) -> None:
    """Pod Security warns and audits there, and refuses nothing."""
    assert pod_security(manifests, "gpu-scheduler-tests") == {"audit": "restricted", "warn": "restricted"}


def pod_security(manifests: list[Manifest], name: str) -> dict[str, str]:
    """Return mode → level of Pod Security in the namespace."""
    (namespace,) = (one for one in of_kind(manifests, "Namespace") if one["metadata"]["name"] == name)
    labels: dict[str, str] = namespace["metadata"]["labels"]
    prefix = "pod-security.kubernetes.io/"
    return {key.removeprefix(prefix): level for key, level in labels.items() if key.startswith(prefix)}


@pytest.mark.promise("order-8")
def test_deployments_survive_a_node(manifests: list[Manifest]) -> None:
    """Two replicas each, spread over nodes, with a critical priority and a rolling update that never has fewer."""
    for deployment in of_kind(manifests, "Deployment"):
        spec, pod = deployment["spec"], pod_of(deployment)
        assert spec["replicas"] == 2
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


CHANGED = "changed-after-mutation"
"""The condition of `/validate` alone: pods that are as `/mutate` made them are not asked about."""


@pytest.mark.promise("hook-2", "hook-1", "safe-4")
def test_webhook_sees_our_pods_only(manifests: list[Manifest]) -> None:
    """Both registrations fail closed and match only our pods; the webhook has no token for the API."""
    for kind, further in (("Mutating", []), ("Validating", [CHANGED])):
        (registration,) = of_kind(manifests, f"{kind}WebhookConfiguration")
        webhook = registration["webhooks"][0]
        condition, *others = webhook["matchConditions"]
        assert webhook["failurePolicy"] == "Fail"
        assert condition["expression"] == "object.spec.schedulerName == 'gpu-scheduler'"
        assert [each["name"] for each in others] == further
    (deployment,) = (one for one in of_kind(manifests, "Deployment") if one["metadata"]["name"].endswith("webhook"))

    assert pod_of(deployment)["automountServiceAccountToken"] is False


@pytest.fixture(scope="module")
def isolating(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Manifest]]:
    """Return what the roles make with `isolation: dra` for pods of these namespaces."""
    return once_rendered(tmp_path_factory, ISOLATING_ROLES, ISOLATING_CASES)


def test_claims_take_only_their_own_rights(isolating: Callable[[str], list[Manifest]]) -> None:
    """With `isolation: dra` the scheduler reads and allocates claims; nothing else of a cluster changes."""
    given = rights_of(isolating("all"))["ClusterRole gpu-scheduler"]

    assert given == RIGHTS["ClusterRole gpu-scheduler"] | ISOLATING


@pytest.mark.promise("guard-14", "guard-15")
def test_policies_know_the_names_of_our_claims(isolating: Callable[[str], list[Manifest]]) -> None:
    """The same that the scheduler takes for its own."""
    names = f"matches('^{OUR_CLAIM.pattern.replace(BACKSLASH, '')}$')"
    policies = of_kind(isolating("all"), "ValidatingAdmissionPolicy")

    found = {policy["metadata"]["name"] for policy in policies if names in json.dumps(policy)}
    assert found == {"gpu-scheduler-claims", "gpu-scheduler-claim-users", "gpu-scheduler-scheduler"}


SELECTED = {
    "all": (("In", ["env"]), ("NotIn", ["env"])),
    "labelled": (("NotIn", ["dra"]), ("In", ["dra"])),
}


@pytest.mark.parametrize("namespaces", SELECTED)
def test_each_pod_is_reviewed_with_claims_or_without(
    isolating: Callable[[str], list[Manifest]], namespaces: str
) -> None:
    """The label of its namespace decides. Both entries have the same rules."""
    without, with_claims = SELECTED[namespaces]
    for kind, path in (("Mutating", "mutate"), ("Validating", "validate")):
        (registration,) = of_kind(isolating(namespaces), f"{kind}WebhookConfiguration")
        plain, isolated = registration["webhooks"][:2]
        for entry, name, expected in ((plain, path, without), (isolated, f"{path}-dra", with_claims)):
            (selected,) = entry.pop("namespaceSelector")["matchExpressions"]
            assert (selected["key"], selected["operator"], selected["values"]) == (
                "agentaflow.gpu/isolation",
                *expected,
            )
            assert entry.pop("name") == f"{name}.gpu-scheduler.agentaflow.io"
            assert entry["clientConfig"]["service"].pop("path") == f"/{name}"
        if kind == "Validating":
            assert plain["matchConditions"].pop()["name"] == CHANGED
        assert isolated == plain


@pytest.mark.promise("hook-3")
@pytest.mark.parametrize(
    ("isolation", "closed"), [("env", {"mutate-job"}), ("dra", {"mutate-job", "mutate-dra", "validate-dra"})]
)
def test_inventory_may_admit_pods_without_an_answer(tmp_path: Path, isolation: str, closed: set[str]) -> None:
    """With failure policy `Ignore` pods are admitted while no webhook answers; jobs are refused as before.

    So are pods that must have claims: they would have none for all their life.
    """
    found = rendered(tmp_path, ["webhook"], **IGNORED[isolation])
    policies = {
        webhook["name"].partition(".")[0]: webhook["failurePolicy"]
        for registration in of_kind(found, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for webhook in registration["webhooks"]
    }

    assert {name for name, policy in policies.items() if policy == "Fail"} == closed
    assert {policies[name] for name in ("mutate", "validate", "warn")} == {"Ignore"}


@pytest.mark.promise("env-3")
def test_webhook_is_asked_whenever_a_container_comes(manifests: list[Manifest]) -> None:
    """At a pod's creation, and when a debug container is added to it."""
    (registration,) = of_kind(manifests, "MutatingWebhookConfiguration")
    webhook = registration["webhooks"][0]

    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE"], ["pods"]),
        (["UPDATE"], ["pods/ephemeralcontainers"]),
    ]


@pytest.mark.promise("job-6")
def test_webhook_sees_jobs_with_our_annotations_only(manifests: list[Manifest]) -> None:
    """Kubeflow's three kinds, created or updated: fails closed for those with our annotations, ignores all others."""
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


@pytest.mark.promise("warn-4")
def test_no_object_depends_on_the_webhook_that_only_warns(manifests: list[Manifest]) -> None:
    """It is asked only about controllers whose template has our schedulerName, waited for 2 s, and dispensable."""
    (registration,) = of_kind(manifests, "ValidatingWebhookConfiguration")
    _, webhook = registration["webhooks"]
    ours, alone, alive = (condition["expression"] for condition in webhook["matchConditions"])

    assert webhook["clientConfig"]["service"]["path"] == "/warn"
    assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Ignore", "None", 2)
    assert ours.split(" || ") == [
        f"object.?spec{path}.?template.?spec.?schedulerName.orValue('') == 'gpu-scheduler'"
        for path in ("", ".?jobTemplate.?spec")
    ]
    assert alone == "!object.?metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
    assert alive == "!object.?metadata.?deletionTimestamp.hasValue()"
    asked = {(rule["apiGroups"][0], each) for rule in webhook["rules"] for each in rule["resources"]}
    assert asked == {(group, f"{kind.lower()}s") for kind, group in GROUPS.items()}
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in webhook["rules"])


def test_check_pods_claim_no_gpu(manifests: list[Manifest]) -> None:
    """Check pods are observers: they run beside real workloads and hold no device."""
    (check,) = of_kind(manifests, "StatefulSet")
    annotations = [check["spec"]["template"]["metadata"]["annotations"]]
    annotations += [pod["metadata"]["annotations"] for pod in of_kind(manifests, "Pod")]

    assert len(annotations) == 4
    assert all(one["agentaflow.gpu/observer"] == "true" for one in annotations)
    pods = [pod_of(one) for one in of_kind(manifests, "StatefulSet", "Pod")]
    assert {(pod["serviceAccountName"], pod["automountServiceAccountToken"]) for pod in pods} == {(CHECK, False)}
    assert check["spec"]["podManagementPolicy"] == "Parallel"
    assert check["spec"]["replicas"] == 5


def test_every_object_is_labelled_as_part_of_the_product(manifests: list[Manifest]) -> None:
    """Removal deletes only what has this label or our field manager."""
    of_crds = (roles.ROOT / "roles" / "crds" / "files").glob("*.yaml")
    ours = [*manifests, *(one for path in of_crds for one in yaml.safe_load_all(path.read_text()))]

    named = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in ours}
    labelled = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in ours
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "gpu-scheduler"
    }
    assert labelled == named


def test_policies_know_every_key() -> None:
    """Only the program may write its annotations on pods, and its inputs on pods cannot be changed."""
    keys = roles.read("roles", "policies", "vars", "main.yml")
    written = {value for value in vars(names).values() if str(value).startswith("agentaflow.gpu/assigned-")}

    assert set(keys["_policies_assignments"]) == written
    assert set(keys["_policies_inputs"]["annotations"]) == names.POD_ANNOTATIONS - written
    assert set(keys["_policies_inputs"]["labels"]) == {field.encode_name for field in structs.fields(PodLabels)}


def test_every_policy_is_bound_and_denies(manifests: list[Manifest]) -> None:
    """A policy without a binding refuses nothing."""
    policies = {one["metadata"]["name"] for one in of_kind(manifests, "ValidatingAdmissionPolicy")}
    bound = {
        one["spec"]["policyName"]
        for one in of_kind(manifests, "ValidatingAdmissionPolicyBinding")
        if one["spec"]["validationActions"] == ["Deny"] and "matchResources" not in one["spec"]
    }

    assert bound == policies
    assert all(one["spec"]["failurePolicy"] == "Fail" for one in of_kind(manifests, "ValidatingAdmissionPolicy"))


def test_webhook_may_require_a_certificate_of_its_callers(tmp_path: Path) -> None:
    """With a CA for clients it reads it from a ConfigMap, and rolls out when it changes."""
    found = rendered(tmp_path, ["webhook"], **AUTHORITY)
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    (template,) = (each["spec"]["template"] for each in found if each["kind"] == "Deployment")
    (container,) = template["spec"]["containers"]

    assert config["data"] == {"ca.crt": AUTHORITY["webhook_client_ca"]}
    assert {"name": "CLIENT_CA", "value": "/etc/gpu-scheduler/client-ca/ca.crt"} in container["env"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "client-ca")
    (volume,) = (each for each in template["spec"]["volumes"] if each["name"] == mount["name"])
    assert (mount["mountPath"], volume["configMap"]) == (
        "/etc/gpu-scheduler/client-ca",
        {"name": config["metadata"]["name"]},
    )
    assert template["metadata"]["annotations"]["checksum/client-ca"]
