"""The monitors' manifests, for declared GPUs and for NVIDIA's driver."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.contracts import roles
from tests.contracts.rendering import once_rendered, only, pod_of

Json = dict[str, Any]


CASES: dict[str, dict[str, object]] = {
    "the default inventory": {},
    "all settings for a GPU node": {
        "monitor_source": "nvml",
        "monitor_runtime_class": "nvidia",
        "monitor_driver_dir": "/home/kubernetes/bin/nvidia/lib64",
    },
}


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that renders a case."""
    return once_rendered(tmp_path_factory, ["monitor"], CASES)


@pytest.fixture
def simulated(render: Any) -> list[Json]:
    """Return the manifests with the default inventory."""
    manifests: list[Json] = render("the default inventory")
    return manifests


@pytest.fixture
def nvml(render: Any) -> list[Json]:
    """Return the manifests with all settings for a GPU node."""
    manifests: list[Json] = render("all settings for a GPU node")
    return manifests


def test_declared_gpus_are_mounted_as_a_folder(simulated: list[Json]) -> None:
    """Only a mounted folder gets updates of a ConfigMap, a single file (subPath) does not.

    The content is the inventory's.
    """
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    pod = pod_of(only(simulated, "DaemonSet"))
    (mount,) = pod["containers"][0]["volumeMounts"]
    config = only(simulated, "ConfigMap")

    assert mount == {"name": "inventory", "mountPath": "/etc/gpu-scheduler/inventory", "readOnly": True}
    assert pod["volumes"] == [{"name": "inventory", "configMap": {"name": config["metadata"]["name"]}}]
    assert yaml.safe_load(config["data"]["inventory.yaml"]) == facts["monitor_simulated_inventory"]


def test_every_device_of_the_shown_map_is_declared() -> None:
    """`make up` starts monitors and proves the map, so the monitors must declare the map's devices."""
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    declared = {
        node: sum(group["count"] for group in groups) for node, groups in facts["monitor_simulated_inventory"].items()
    }

    assert declared == dict.fromkeys(facts["worker_nodes"], 4)
    assert facts["monitor_source"] == "simulated"


def test_monitors_run_on_gpu_nodes_with_any_taint(simulated: list[Json]) -> None:
    """Nodes are selected by the label that operators set; each monitor knows its node, namespace and pod name."""
    pod = pod_of(only(simulated, "DaemonSet"))
    env = {
        each["name"]: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        for each in pod["containers"][0]["env"]
    }

    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "agentaflow.gpu/enabled": "true"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert env["NODE_NAME"] == "spec.nodeName"
    assert env["KUBERNETES_NAMESPACE"] == "metadata.namespace"
    assert env["POD_NAME"] == "metadata.name"


def test_the_driver_is_opened_by_an_ordinary_user(nvml: list[Json]) -> None:
    """The only exception is `privileged`, in a namespace of its own; and the monitor reads no other pods."""
    pod = pod_of(only(nvml, "DaemonSet"))
    (container,) = pod["containers"]
    enforced = only(nvml, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    rights = [resource for rule in only(nvml, "ClusterRole")["rules"] for resource in rule["resources"]]
    env = {each["name"]: each.get("value") for each in container["env"]}

    assert enforced == "privileged"
    assert pod["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert rights == ["nodes", "gpunodes", "gpunodes/status"]
    assert pod["runtimeClassName"] == "nvidia"
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert env["LD_LIBRARY_PATH"] == container["volumeMounts"][0]["mountPath"]
    assert pod["volumes"][0]["hostPath"]["path"] == "/home/kubernetes/bin/nvidia/lib64"
