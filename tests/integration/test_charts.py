"""The charts and the manifests make the same objects: real helm and the real playbook, for a matrix of inputs."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.contracts.network_policies import Peer, Port, connects, isolating, pods_of, policies_of
from tests.contracts.roles import ROOT
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

Object = dict[str, Any]
Named = dict[tuple[str, str, str], Object]

IMAGE: Final = "mirror.example.com/team/gpu-scheduler"
CHECK_IMAGE: Final = "mirror.example.com/team/gpu-scheduler-check"
BUNDLE: Final = "bWFkZSB1cA=="
DIGEST: Final = f"sha256:{'0' * 64}"
HOSTILE: Final = 'team-a: devices=8 priority=1000\n*: devices=2\n# "quoted" & <more>\n'
AUTHORITY: Final = "-----BEGIN CERTIFICATE-----\nmade up\n-----END CERTIFICATE-----\n"
INVENTORY: Final = {"node-a": [{"count": 2, "model": "A100-40GB", "memoryTotalMiB": 40960, "power": {"1": 68}}]}
AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
        }
    }
}
TOLERATIONS: Final = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The same request twice: as values of the chart and as variables of the inventory."""

    values: Object = field(default_factory=dict)
    variables: Object = field(default_factory=dict)
    namespace: str = "gpu-scheduler-system"


MATRIX: Final = {
    "what the chart does by itself": Inputs(),
    "a certificate that the user made": Inputs({"webhook": {"caBundle": BUNDLE}}, {"manifests_ca_bundle": BUNDLE}),
    "the API server injects": Inputs(
        {"webhook": {"enabled": False}, "injectionPolicy": {"enabled": True}}, {"injection": "policy"}
    ),
    "ResourceClaims for all namespaces": Inputs({"isolation": {"mode": "dra"}}, {"isolation": "dra"}),
    "ResourceClaims for labelled namespaces, and a webhook that may be silent": Inputs(
        {"isolation": {"mode": "dra", "namespaces": "labelled"}, "webhook": {"failurePolicy": "Ignore"}},
        {"isolation": "dra", "isolation_namespaces": "labelled", "webhook_failure_policy": "Ignore"},
    ),
    "another namespace, as the fourth source has it": Inputs({}, {"system_namespace": "kube-system"}, "kube-system"),
    "a webhook on its nodes' network, with callers that prove who they are": Inputs(
        {
            "webhook": {
                "hostNetwork": True,
                "port": 10260,
                "httpPort": 10255,
                "clientCA": AUTHORITY,
                "replicas": 3,
                "logLevel": "DEBUG",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 9,
            }
        },
        {
            "webhook_host_network": True,
            "webhook_port": 10260,
            "webhook_http_port": 10255,
            "webhook_client_ca": AUTHORITY,
            "webhook_replicas": 3,
            "webhook_log_level": "DEBUG",
            "webhook_failure_policy": "Ignore",
            "webhook_timeout": 9,
        },
    ),
    "OpenShift, with GPUs by NVML": Inputs(
        {
            "openshift": True,
            "webhook": {"hostNetwork": True},
            "monitor": {"source": "nvml", "namespace": "gpus", "interval": "30s", "logLevel": "WARNING"},
        },
        {
            "openshift": True,
            "webhook_host_network": True,
            "monitor_source": "nvml",
            "monitor_namespace": "gpus",
            "policies_monitor_namespace": "gpus",
            "network_policies_monitor_namespace": "gpus",
            "monitor_interval": "30s",
            "monitor_log_level": "WARNING",
        },
    ),
    "GPUs by NVML, with a runtime and a driver of the nodes": Inputs(
        {"monitor": {"source": "nvml", "runtimeClass": "nvidia", "driverDir": "/opt/driver"}},
        {"monitor_source": "nvml", "monitor_runtime_class": "nvidia", "monitor_driver_dir": "/opt/driver"},
    ),
    "NetworkPolicies with the API server's addresses": Inputs(
        {
            "monitor": {"source": "nvml"},
            "networkPolicies": {
                "apiServerCidrs": ["10.0.0.0/28", "fd00::/64"],
                "apiServerPorts": [16443],
                "scrapingNamespaces": ["metrics", "more-metrics"],
            },
        },
        {
            "monitor_source": "nvml",
            "network_policies_api_server_cidrs": ["10.0.0.0/28", "fd00::/64"],
            "network_policies_api_server_ports": [16443],
            "network_policies_scraping_namespaces": ["metrics", "more-metrics"],
        },
    ),
    "no NetworkPolicies": Inputs({"networkPolicies": {"enabled": False}}, {"network_policies_enabled": False}),
    "declared GPUs": Inputs(
        {"monitor": {"source": "simulated", "simulatedInventory": INVENTORY}},
        {"monitor_source": "simulated", "monitor_simulated_inventory": INVENTORY},
    ),
    "the kubelet's driver of declared GPUs": Inputs(
        {
            "isolation": {"mode": "dra"},
            "monitor": {"source": "simulated", "simulatedInventory": INVENTORY},
            "driver": {"namespace": "drivers", "kubeletDir": "/data/kubelet", "logLevel": "DEBUG"},
        },
        {
            "isolation": "dra",
            "monitor_source": "simulated",
            "monitor_simulated_inventory": INVENTORY,
            **dict.fromkeys(
                (
                    "driver_namespace",
                    "policies_driver_namespace",
                    "network_policies_driver_namespace",
                    "observability_driver_namespace",
                ),
                "drivers",
            ),
            "driver_kubelet_dir": "/data/kubelet",
            "driver_log_level": "DEBUG",
        },
    ),
    "the kubelet's driver with NVIDIA's toolkit, on OpenShift": Inputs(
        {"isolation": {"mode": "dra"}, "monitor": {"source": "nvml"}, "openshift": True},
        {"isolation": "dra", "monitor_source": "nvml", "openshift": True},
    ),
    "no driver without monitors": Inputs({"isolation": {"mode": "dra"}}, {"isolation": "dra"}),
    "pods that choose their nodes": Inputs(
        {
            "image": {"digest": DIGEST, "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
            "nodeSelector": {"pool": "system", "kubernetes.io/arch": "arm64"},
            "tolerations": TOLERATIONS,
            "affinity": AFFINITY,
            "priorityClassName": "ours",
            "resources": {
                "scheduler": {"limits": {"memory": "1Gi", "cpu": "2"}},
                "webhook": {"requests": {"cpu": "1m"}},
                "certificates": {"limits": {"memory": "512Mi"}},
            },
            "monitor": {"source": "nvml"},
        },
        {
            "scheduler_image": f"{IMAGE}:1.2.3@{DIGEST}",
            "monitor_source": "nvml",
            "pod_options": {
                "image_pull_policy": "Always",
                "image_pull_secrets": ["registry", "mirror"],
                "node_selector": {"pool": "system", "kubernetes.io/arch": "arm64"},
                "tolerations": TOLERATIONS,
                "affinity": AFFINITY,
                "priority_class": "ours",
                "resources": {
                    "scheduler": {"limits": {"memory": "1Gi", "cpu": "2"}},
                    "webhook": {"requests": {"cpu": "1m"}},
                    "certificates": {"limits": {"memory": "512Mi"}},
                },
            },
        },
    ),
    "another scheduler's name, strategy and limits": Inputs(
        {
            "scheduler": {
                "name": "gpus",
                "replicas": 3,
                "logLevel": "DEBUG",
                "interval": "7s",
                "sharing": "none",
                "strategy": "best_fit",
                "utilizationGoal": 55,
                "limits": HOSTILE,
            },
            "controller": {"replicas": 1, "logLevel": "ERROR"},
            "policies": {
                "schedulerUsers": ["alice", "bob"],
                "protectedNamespaces": ["kube-system", "vault"],
                "forcedDeletion": "warn",
            },
            "certificates": {"caDays": 400, "servingDays": 90, "renewDays": 20, "renewSchedule": "1 2 * * 3"},
        },
        {
            **dict.fromkeys(
                (
                    "scheduler_name",
                    "webhook_scheduler_name",
                    "policies_scheduler_name",
                    "controller_scheduler_name",
                    "check_scheduler_name",
                ),
                "gpus",
            ),
            "scheduler_replicas": 3,
            "scheduler_log_level": "DEBUG",
            "scheduler_interval": "7s",
            "scheduler_sharing": "none",
            "scheduler_strategy": "best_fit",
            **dict.fromkeys(("scheduler_utilization_goal", "monitor_utilization_goal"), 55),
            "scheduler_limits": HOSTILE,
            "controller_replicas": 1,
            "controller_log_level": "ERROR",
            "scheduler_users": ["alice", "bob"],
            "policies_protected_namespaces": ["kube-system", "vault"],
            "policies_forced_deletion": "warn",
            "certificates_ca_days": 400,
            "certificates_serving_days": 90,
            "certificates_renew_days": 20,
            "certificates_renew_schedule": "1 2 * * 3",
        },
    ),
}
AT_ONCE: Final = "many inputs at once"
"""A row of the following ones together: between them each role has inputs."""
COMBINED: Final = (
    "a webhook on its nodes' network, with callers that prove who they are",
    "NetworkPolicies with the API server's addresses",
    "pods that choose their nodes",
    "the kubelet's driver of declared GPUs",
    "another scheduler's name, strategy and limits",
)


def combined(*names: str) -> Inputs:
    """Return these rows as one. Where two have the same input, the later one counts."""
    values: Object = {}
    variables: Object = {}
    for name in names:
        values = _merged(values, MATRIX[name].values)
        variables |= MATRIX[name].variables
    return Inputs(values, variables)


def _merged(one: Object, other: Object) -> Object:
    both = {key: _merged(one[key], value) for key, value in other.items() if isinstance(one.get(key), dict)}
    return {**one, **other, **both}


IN_THE_GATE: Final = {
    "what the chart does by itself": MATRIX["what the chart does by itself"],
    AT_ONCE: combined(*COMBINED),
}
"""The rows that `make test` runs, a play each; suite plays runs all."""


@pytest.mark.promise("up-13")
@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(inputs, id=name, marks=() if name in IN_THE_GATE else pytest.mark.plays)
        for name, inputs in {**IN_THE_GATE, **MATRIX}.items()
    ],
)
def test_chart_and_manifests_make_the_same_objects(inputs: Inputs, tmp_path: Path) -> None:
    """Every object, every field; what only Helm or only kubectl needs is named in `without_what_differs`."""
    values = {**inputs.values, "image": {"repository": IMAGE, "tag": "1.2.3", **inputs.values.get("image", {})}}
    variables = {"monitor_source": "none", "scheduler_image": f"{IMAGE}:1.2.3", **inputs.variables}

    chart = by_name(helm_template("gpu-scheduler", values, inputs.namespace, tmp_path))
    manifests = by_name(made_manifests(variables, tmp_path)["gpu-scheduler"])

    assert without_what_differs(chart) == without_what_differs(manifests)


@pytest.mark.promise("net-1")
@pytest.mark.parametrize("namespace", ["gpu-scheduler-system", "kube-system"])
def test_every_pod_of_the_chart_is_denied_what_nothing_allows(namespace: str, tmp_path: Path) -> None:
    """The hooks' Jobs and the pod of `helm test` too, which reaches what it tests as long as it runs."""
    given: Object = {"monitor": {"source": "nvml"}, "networkPolicies": {"apiServerCidrs": ["10.0.0.0/28"]}}
    made = helm_template("gpu-scheduler", given, namespace, tmp_path)
    pods, policies = pods_of(made), policies_of(made)
    tester, scheduler, webhook = (
        pods[name]
        for name in ("Pod gpu-scheduler-test", "Deployment gpu-scheduler", "Deployment gpu-scheduler-webhook")
    )

    assert {"Job gpu-scheduler-issuer", "Job gpu-scheduler-issuer-secrets", "CronJob gpu-scheduler-renewer"} <= set(
        pods
    )
    for name, pod in pods.items():
        for direction in ("Ingress", "Egress"):
            assert "gpu-scheduler-deny" in {one["metadata"]["name"] for one in isolating(policies, pod, direction)}, (
                name
            )
    for name in ("Job gpu-scheduler-issuer", "CronJob gpu-scheduler-renewer"):
        assert connects(policies, pods[name], Peer("10.0.0.1"), Port(6443))
        assert not connects(policies, pods[name], scheduler, Port(8080))
    assert connects(policies, tester, scheduler, Port(8080))
    assert connects(policies, tester, webhook, Port(8443))
    assert connects(policies, tester, Peer("10.244.0.2", "kube-system"), Port(53, "UDP"))
    installed = [one for one in policies if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    assert not connects(installed, tester, scheduler, Port(8080))


@pytest.mark.plays
@pytest.mark.parametrize("openshift", [False, True], ids=["anywhere", "on OpenShift"])
def test_check_chart_and_manifests_make_the_same_objects(openshift: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a row
    """The same for the check service, with a map that has comments and blank lines."""
    text = "# ours\n0=node-a:0,1\n\n  # more\n 1=node-b:\n"
    values = {
        "image": {"repository": CHECK_IMAGE, "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "scheduler": {"name": "gpus"},
        "podAnnotations": {"gpu-scheduling-map": text},
        "interval": "3s",
        "tolerations": TOLERATIONS,
        "openshift": openshift,
    }
    variables = {
        "monitor_source": "none",
        "scheduler_image": f"{IMAGE}:1.2.3",
        "check_image": f"{CHECK_IMAGE}:1.2.3",
        "pod_options": {"image_pull_policy": "Always", "image_pull_secrets": ["registry"]},
        "check_scheduler_name": "gpus",
        "gpu_scheduling_map": text,
        "check_interval": "3s",
        "check_tolerations": TOLERATIONS,
        "openshift": openshift,
    }

    chart = by_name(helm_template("gpu-scheduler-check", values, "default", tmp_path))
    manifests = by_name(made_manifests(variables, tmp_path)["gpu-scheduler-check"])

    assert without_what_differs(chart) == without_what_differs(manifests)
    assert chart["StatefulSet", "default", "gpu-scheduler-check"]["spec"]["replicas"] == 2


def test_check_chart_makes_a_deployment(tmp_path: Path) -> None:
    """`statefulSet.enabled=false`: the same pods from a Deployment, without Service and a StatefulSet's own fields."""
    values = {"statefulSet": {"enabled": False}, "replicaCount": 3, "podAnnotations": {"team": "a"}}

    made = by_name(helm_template("gpu-scheduler-check", values, "default", tmp_path))
    usual = by_name(helm_template("gpu-scheduler-check", {"podAnnotations": {"team": "a"}}, "default", tmp_path))
    deployment = made["Deployment", "default", "gpu-scheduler-check"]["spec"]
    stateful = usual["StatefulSet", "default", "gpu-scheduler-check"]["spec"]

    assert not [kind for kind, _, _ in made if kind in ("StatefulSet", "Service")]
    assert deployment["replicas"] == 3
    assert deployment["template"] == stateful["template"]
    assert deployment["template"]["metadata"]["annotations"]["team"] == "a"
    assert not {"serviceName", "podManagementPolicy"} & set(deployment)


REFUSED: Final = {
    "a key that is misspelt": ("gpu-scheduler", "webhook.replica=3", "additional properties 'replica' not allowed"),
    "a strategy that is none": ("gpu-scheduler", "scheduler.strategy=best", "value must be one of 'least_utilized'"),
    "a port below 1024": ("gpu-scheduler", "webhook.port=443", "minimum: got 443, want 1,024"),
    "a bundle that is not base64": ("gpu-scheduler", "webhook.caBundle=-----BEGIN", "'/webhook/caBundle'"),
    "an address that is no block": ("gpu-scheduler", "networkPolicies.apiServerCidrs={here}", "'here' does not match"),
    "a port of the API server that is none": (
        "gpu-scheduler",
        "networkPolicies.apiServerPorts={0}",
        "minimum: got 0, want 1",
    ),
    "two that inject": (
        "gpu-scheduler",
        "injectionPolicy.enabled=true",
        "cannot set both webhook.enabled and injectionPolicy.enabled to true",
    ),
    "claims without the webhook": (
        "gpu-scheduler",
        "isolation.mode=dra,webhook.enabled=false",
        "cannot set isolation.mode to dra with webhook.enabled=false",
    ),
    "claims in namespaces that are no choice": (
        "gpu-scheduler",
        "isolation.namespaces=none",
        "value must be one of 'all', 'labelled'",
    ),
    "no map": (
        "gpu-scheduler-check",
        "podAnnotations.gpu-scheduling-map=null",
        "missing property 'gpu-scheduling-map'",
    ),
    "replicas below 0": ("gpu-scheduler-check", "replicaCount=-1", "'/replicaCount'"),
}


@pytest.mark.promise("up-13")
@pytest.mark.parametrize(("chart", "wrong", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_values_are_refused(chart: str, wrong: str, message: str) -> None:
    """Helm names the value and the rule before anything is sent."""
    done = helm("template", "release", str(ROOT / "charts" / chart), "--set", wrong)

    assert done.returncode != 0
    assert message in done.stderr


def test_charts_pass_helms_own_lint() -> None:
    """`helm lint --strict`."""
    done = helm("lint", "--strict", *(str(ROOT / "charts" / name) for name in ("gpu-scheduler", "gpu-scheduler-check")))

    assert done.returncode == 0, done.stdout + done.stderr


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm with nothing of the user's."""
    command = (str(program("helm")), *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=limit(60), check=False)


def helm_template(chart: str, values: Object, namespace: str, folder: Path) -> list[Object]:
    """Return what the chart makes of these values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm(
        "template",
        "release",
        str(ROOT / "charts" / chart),
        f"--namespace={namespace}",
        f"--values={file}",
        "--kube-version=1.36.0",
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def made_manifests(variables: Object, folder: Path) -> dict[str, list[Object]]:
    """Return what `make manifests` writes with these variables, by file."""
    target = folder / "manifests"
    given = json.dumps({"manifests_dir": str(target), **variables})
    done = subprocess.run(
        ("ansible-playbook", "-i", "inventory/existing", "playbooks/manifests.yml", "-e", given),
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=limit(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.stem: documents(path.read_text()) for path in target.glob("gpu-*.yaml")}


def documents(text: str) -> list[Object]:
    """Return the objects of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def by_name(objects: list[Object]) -> Named:
    """Return objects by kind, namespace and name. Fail where two have the same."""
    named = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in objects}
    assert len(named) == len(objects)
    return named


def without_what_differs(objects: Named) -> Named:
    """Return the objects without what Helm and kubectl cannot have in common."""
    return {name: _comparable(one) for name, one in objects.items() if not _differs(name, one)}


def _differs(name: tuple[str, str, str], one: Object) -> bool:
    kind, namespace, called = name
    return (
        # Helm makes the release's namespace; a quota in kube-system would bind pods of others.
        (kind == "Namespace" and called not in {"gpu-scheduler-monitor", "gpus"})
        or (kind == "ResourceQuota" and namespace == "kube-system")
        # Helm waits for Deployments before it goes on, and they for their Secret: the Secrets have a Job of their own.
        or called == "gpu-scheduler-issuer-secrets"
        or one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"
    )


def _comparable(one: Object) -> Object:
    copied: Object = json.loads(json.dumps(one).replace('"app.kubernetes.io/managed-by": "kubectl"', _MANAGED))
    for key in ("helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy", "helm.sh/resource-policy"):
        copied["metadata"].get("annotations", {}).pop(key, None)
    if not copied["metadata"].get("annotations"):
        copied["metadata"].pop("annotations", None)
    if "inventory.yaml" in copied.get("data", {}):
        # The same data, written in another order.
        copied["data"]["inventory.yaml"] = yaml.safe_load(copied["data"]["inventory.yaml"])
    return copied


_MANAGED: Final = '"app.kubernetes.io/managed-by": "Helm"'
