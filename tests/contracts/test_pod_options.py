"""What the inventory asks of our pods: options, OpenShift, the webhook's ports and network, images with a digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts.rendering import of_kind, once_rendered, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Render = Callable[[str], list["Manifest"]]

Manifest = dict[str, Any]

ROLES: Final = ("certificates", "scheduler", "webhook", "controller", "monitor", "check")
OURS: Final = ("Deployment", "DaemonSet", "CronJob")
WORKLOADS: Final = (*OURS, "StatefulSet", "Pod")
DIGEST: Final = f"registry.example.com/team/gpu-scheduler@sha256:{'0' * 64}"

TOLERATIONS: Final = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
CHECK_TOLERATIONS: Final = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
EVERY_TAINT: Final = [{"operator": "Exists"}]
AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["system"]}]}]
        }
    }
}
OPTIONS: Final = {
    "image_pull_secrets": ["registry", "mirror"],
    "node_selector": {"kubernetes.io/arch": "amd64", "quoted": "true"},
    "tolerations": TOLERATIONS,
    "affinity": AFFINITY,
    "priority_class": "important",
    "resources": {"webhook": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, "controller": None},
}

CASES: Final[dict[str, dict[str, object]]] = {
    "every option": {"pod_options": OPTIONS, "check_tolerations": CHECK_TOLERATIONS, "openshift": "false"},
    "OpenShift": {"openshift": True, "monitor_source": "nvml", "scheduler_image": DIGEST, "check_image": DIGEST},
    # As the command line gives them: text. Keys of the options are there, without values.
    "the nodes' network": {
        "pod_options": dict.fromkeys(OPTIONS),
        "webhook_host_network": "true",
        "webhook_port": "10260",
        "webhook_http_port": "10261",
        "openshift": "true",
    },
}


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return a function that renders a case once."""
    return once_rendered(tmp_path_factory, ROLES, CASES)


def pods(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Return the name of each workload of these kinds → the specification of its pods."""
    return {one["metadata"]["name"]: pod_of(one) for one in of_kind(manifests, *kinds)}


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """Return the one object of this kind and name."""
    (found,) = (one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize("case", CASES)
def test_containers_of_each_case_are_restricted(render: Render, case: str) -> None:
    """No option takes from a container what Pod Security `restricted` demands; a monitor with NVML is the exception."""
    for name, pod in pods(render(case), *WORKLOADS).items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            privileged = case == "OpenShift" and name == "gpu-scheduler-monitor"
            assert context.get("privileged", False) is privileged
            assert privileged or context["capabilities"] == {"drop": ["ALL"]}
            assert privileged or context["allowPrivilegeEscalation"] is False
            assert "memory" in container["resources"]["limits"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@pytest.mark.promise("up-7")
def test_every_option_reaches_every_workload(render: Render) -> None:
    """Pull secrets, node selector, affinity and priority reach all workloads; tolerations all but the monitors."""
    found = pods(render("every option"), *OURS)

    assert set(found) == {f"gpu-scheduler{part}" for part in ("", "-webhook", "-controller", "-monitor", "-renewer")}
    selector = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "quoted": "true"}
    for name, pod in found.items():
        monitor = name == "gpu-scheduler-monitor"
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
        assert pod["nodeSelector"] == selector | ({"agentaflow.gpu/enabled": "true"} if monitor else {})
        assert pod["affinity"] == AFFINITY
        assert pod["priorityClassName"] == "important"
        assert pod["tolerations"] == (EVERY_TAINT if monitor else TOLERATIONS)
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 1000


def test_resources_of_a_role_are_merged_over_its_own(render: Render) -> None:
    """A role gets what the inventory says of it and keeps the rest; another role keeps all of its own."""
    found = pods(render("every option"), "Deployment")
    webhook, controller = (found[f"gpu-scheduler-{name}"]["containers"][0] for name in ("webhook", "controller"))

    assert webhook["resources"] == {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    assert controller["resources"] == {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


@pytest.mark.promise("up-7")
def test_check_pods_tolerate_taints_and_pull_with_the_secrets(render: Render) -> None:
    """StatefulSet and bare pods have the tolerations of check pods, and the same pull secrets as our workloads."""
    found = pods(render("every option"), "StatefulSet", "Pod")

    assert len(found) == 4
    for pod in found.values():
        assert pod["tolerations"] == CHECK_TOLERATIONS
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
        assert "nodeSelector" not in pod


def test_options_without_values_are_the_defaults(render: Render) -> None:
    """Pods run on all Linux nodes with the role's own priority, and only monitors tolerate taints."""
    own = {"gpu-scheduler-monitor": "system-node-critical", "gpu-scheduler-renewer": None}
    for name, pod in pods(render("the nodes' network"), *OURS).items():
        monitor = name == "gpu-scheduler-monitor"
        labels = {"agentaflow.gpu/enabled": "true"} if monitor else {}
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"} | labels
        assert pod.get("priorityClassName") == own.get(name, "system-cluster-critical")
        assert pod.get("tolerations") == (EVERY_TAINT if monitor else None)
        assert {"imagePullSecrets", "affinity"} & set(pod) == set()


@pytest.mark.promise("safe-5")
@pytest.mark.parametrize("case", ["OpenShift", "the nodes' network"])
def test_no_pod_names_a_user_on_openshift(render: Render, case: str) -> None:
    """The namespace's range gives user and group to every workload and check pod."""
    found = pods(render(case), *WORKLOADS)

    assert len(found) == 9
    for pod in found.values():
        assert set(pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}
        assert all("runAsUser" not in container["securityContext"] for container in pod["containers"])


@pytest.mark.promise("safe-5")
def test_monitor_with_nvml_may_be_privileged_on_openshift(render: Render) -> None:
    """Its account, and no other, may use the SecurityContextConstraints `privileged`."""
    bindings = [one for one in render("OpenShift") if "openshift" in one.get("roleRef", {}).get("name", "")]

    (binding,) = bindings
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "gpu-scheduler-monitor")
    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "gpu-scheduler-monitor", "namespace": "gpu-scheduler-monitor"}
    ]


def test_image_is_taken_by_its_digest(render: Render) -> None:
    """All workloads run the very image, which a node pulls only where it has none."""
    for pod in pods(render("OpenShift"), *WORKLOADS).values():
        (container,) = pod["containers"]
        assert container["image"] == DIGEST
        assert container["imagePullPolicy"] == "IfNotPresent"


def test_webhook_serves_on_the_given_ports(render: Render) -> None:
    """Process, container and Service agree, and the Service keeps 443."""
    found = render("the nodes' network")
    (container,) = pods(found, "Deployment")["gpu-scheduler-webhook"]["containers"]
    (port,) = named(found, "Service", "gpu-scheduler-webhook")["spec"]["ports"]

    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"https": 10260, "http": 10261}
    assert {"name": "WEBHOOK_PORT", "value": "10260"} in container["env"]
    assert {"name": "HTTP_PORT", "value": "10261"} in container["env"]
    assert (port["port"], port["targetPort"]) == (443, "https")


def test_webhook_in_the_nodes_network_can_roll_and_is_admitted(render: Render) -> None:
    """Old and new replicas need the same port of a node, and the namespace must admit the network of nodes."""
    found = render("the nodes' network")
    deployment = named(found, "Deployment", "gpu-scheduler-webhook")
    pod = deployment["spec"]["template"]["spec"]
    levels = {
        value
        for key, value in named(found, "Namespace", "gpu-scheduler-system")["metadata"]["labels"].items()
        if key.startswith("pod-security.kubernetes.io/")
    }

    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert levels == {"privileged"}
    assert named(found, "RoleBinding", "gpu-scheduler-webhook-host-network")["roleRef"]["name"] == (
        "system:openshift:scc:hostnetwork-v2"
    )
    others = {name for name, one in pods(found, *WORKLOADS).items() if "hostNetwork" in one}
    assert others == {"gpu-scheduler-webhook"}
