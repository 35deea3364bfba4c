"""The manifests of the kubelet's drivers, and which pods keep the role from removing them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gpu_scheduler import names
from tests.contracts import roles
from tests.contracts.rendering import once_rendered, only, pod_of

Json = dict[str, Any]

CASES: Final[dict[str, dict[str, object]]] = {
    "simulated": {"isolation": "dra"},
    "nvidia": {"isolation": "dra", "monitor_source": "nvml", "driver_kubelet_dir": "/data/kubelet"},
    "OpenShift": {"isolation": "dra", "openshift": True},
    "options": {
        "isolation": "dra",
        "pod_options": {
            "node_selector": {"pool": "gpus"},
            "tolerations": [{"key": "ours"}],
            "priority_class": "ours",
            "resources": {"driver": {"limits": {"memory": "1Gi"}}},
        },
    },
}


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that renders a case once."""
    return once_rendered(tmp_path_factory, ["driver"], CASES)


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_labelled_as_part_of_the_product(render: Any, case: str) -> None:
    """Removal deletes only what has this label or our field manager."""
    for manifest in render(case):
        assert manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gpu-scheduler"


def test_names_are_those_of_the_program(render: Any) -> None:
    """Of namespace, account and DaemonSet, and of the driver, which the kubelet finds by its directory."""
    found = render("simulated")
    paths = [volume["hostPath"]["path"] for volume in pod_of(only(found, "DaemonSet"))["volumes"]]

    assert {only(found, kind)["metadata"]["name"] for kind in ("Namespace", "ServiceAccount", "DaemonSet")} == {
        names.DRIVER
    }
    assert only(found, "DeviceClass")["metadata"]["name"] == names.DRA_DRIVER
    assert f"/var/lib/kubelet/plugins/{names.DRA_DRIVER}" in paths


@pytest.mark.parametrize("case", CASES)
def test_the_rights_are_the_least(render: Any, case: str) -> None:
    """One role, for all nodes; tests/integration/test_driver.py runs the driver with it."""
    found = render(case)
    given = {
        (group, resource): set(rule["verbs"])
        for rule in only(found, "ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    assert given == {
        ("", "nodes"): {"list", "watch"},
        ("agentaflow.io", "gpunodes"): {"list", "watch"},
        ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
    }
    (subject,) = only(found, "ClusterRoleBinding")["subjects"]
    assert (subject["namespace"], subject["name"]) == (names.DRIVER, names.DRIVER)


@pytest.mark.parametrize("case", CASES)
def test_user_0_has_no_capability(render: Any, case: str) -> None:
    """Only directories of the node need the namespace's standard; the root is read-only, with the default seccomp."""
    found = render(case)
    pod = pod_of(only(found, "DaemonSet"))
    (container,) = pod["containers"]
    labels = only(found, "Namespace")["metadata"]["labels"]

    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (0, 0)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@pytest.mark.parametrize(
    ("case", "kubelet_dir", "writable"),
    [
        ("simulated", "/var/lib/kubelet", {"plugin", "registry", "cdi"}),
        ("nvidia", "/data/kubelet", {"plugin", "registry"}),
    ],
)
def test_directories_have_the_paths_of_the_node(render: Any, case: str, kubelet_dir: str, writable: set[str]) -> None:
    """The driver names its socket to the kubelet, and devices to the runtime. What it only reads, it cannot write."""
    pod = pod_of(only(render(case), "DaemonSet"))
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    env = {each["name"]: each.get("value") for each in container["env"]}

    assert mounts == {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
    assert {each["name"] for each in container["volumeMounts"] if not each.get("readOnly")} == writable
    assert mounts["registry"] == f"{kubelet_dir}/plugins_registry"
    assert (env["KUBELET_DIR"], env["DRIVER_SOURCE"]) == (kubelet_dir, case)


def test_drivers_run_where_the_monitors_do(render: Any) -> None:
    """On GPU nodes with any taint, whatever other pods tolerate."""
    pod, chosen = pod_of(only(render("simulated"), "DaemonSet")), pod_of(only(render("options"), "DaemonSet"))

    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "agentaflow.gpu/enabled": "true"}
    assert pod["priorityClassName"] == "system-node-critical"
    assert chosen["nodeSelector"] == {**pod["nodeSelector"], "pool": "gpus"}
    assert chosen["priorityClassName"] == "ours"
    assert chosen["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert pod["tolerations"] == chosen["tolerations"] == [{"operator": "Exists"}]


def test_the_account_may_use_directories_of_the_node_on_openshift(render: Any) -> None:
    """By the SecurityContextConstraints `privileged`, in the drivers' namespace alone."""
    binding = only(render("OpenShift"), "RoleBinding")

    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert binding["metadata"]["namespace"] == names.DRIVER
    assert "RoleBinding" not in {each["kind"] for each in render("simulated")}


APPLIED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "by default": ({}, "none"),
    "isolation dra": ({"isolation": "dra"}, "simulated"),
    "isolation dra, and NVIDIA's driver": ({"isolation": "dra", "monitor_source": "nvml"}, "nvidia"),
    # Nobody lists the devices.
    "isolation dra without monitors": ({"isolation": "dra", "monitor_source": "none"}, "none"),
}


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that renders a row, with the roles that know the drivers' namespace."""
    rows = {name: given for name, (given, _) in APPLIED.items()}
    return once_rendered(tmp_path_factory, ["driver", "policies", "observability"], rows)


@pytest.mark.parametrize("row", APPLIED)
def test_drivers_run_only_with_isolation_dra(applied: Any, row: str) -> None:
    """The inventory's wiring decides it. The other roles then know the drivers' namespace."""
    found, (_, source) = applied(row), APPLIED[row]
    (container,) = pod_of(only(found, "DaemonSet"))["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    (controllers,) = (
        each
        for each in found
        if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "gpu-scheduler-controller")
    )
    scraped = {each["metadata"]["name"] for each in found if each["kind"] == "PodMonitor"}

    assert env["DRIVER_SOURCE"] == source
    assert (names.DRIVER in str(controllers)) == (names.DRIVER in scraped) == (source != "none")


def test_the_role_removes_no_driver_before_it_has_asked_for_pods() -> None:
    """`main` and the removal of everything ask first."""
    tasks = roles.read("roles", "driver", "tasks", "main.yml")
    (play,) = roles.read("playbooks", "uninstall.yml")
    key = "ansible.builtin.import_role"
    order = [task[key]["tasks_from"] for task in play["tasks"] if task.get(key, {}).get("name") == "driver"]
    first = next(task[key] for task in play["tasks"] if task.get(key, {}).get("tasks_from") in {"remove", "unused"})

    assert [task.get("ansible.builtin.include_tasks") for task in tasks[:2]] == [None, "unused.yml"]
    assert order == ["unused", "remove"]
    assert first == {"name": "driver", "tasks_from": "unused"}
