"""Wrong values of inventory variables, with the message of preflight for each."""

from __future__ import annotations

from typing import Any, Final

DNS: Final = "it must be up to 63 lower-case letters, digits and hyphens, a letter or digit at both ends"
PATH: Final = "it must be one absolute path without a colon"
FLAG: Final = "set it to true or false."
WHOLE: Final = "it must be a whole number from"
IMAGE: Final = "it must be an image with a tag or a digest of 64"
LABEL: Final = "a label's value must be quoted text"
NO_SUCH_VARIABLE: Final = "no inventory, role or playbook has such a variable, the nearest is"
NO_SUCH_TAG: Final = "no task of this playbook has this tag, set it to"
NO_TAGS: Final = "this playbook has no tags, so leave --tags out."
NOTHING_CHANGED: Final = "Nothing was changed. The inputs need a look:"
_UUID: Final = "GPU-00000000-0000-0000-0000-000000000000"
_GROUP: Final = {"count": 4, "model": "L4", "memoryTotalMiB": 24576}
_EXISTING: Final = {"cluster_provider": "existing", "kube_context": "somewhere"}

# variable → case → (the values, the rule in the words of the message); unit_tests/core has the faults of a map
WRONG: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "project_dir": {
        "a relative path": ({"project_dir": "."}, PATH),
    },
    "cluster_provider": {
        "an unknown one": ({"cluster_provider": "cloud"}, "set it to kind or existing."),
    },
    "cluster_name": {
        "capitals": ({"cluster_name": "Gpu"}, "it must be text, up to 49 lower-case letters"),
        "too long for a host name": ({"cluster_name": "a" * 50}, "it must be text, up to 49 lower-case letters"),
    },
    "kubeconfig": {
        "several": ({"kubeconfig": "/a/config:/b/config"}, PATH),
    },
    "kube_context": {
        "none for an existing cluster": (
            {"cluster_provider": "existing", "kube_context": ""},
            "name the context to install on, the current one is never taken by chance",
        ),
        "another than kind makes": ({"kube_context": "production"}, "kind calls the context of cluster"),
    },
    "kubectl_program": {
        "a relative path": ({"kubectl_program": "bin/kubectl"}, "it must be the name of a program on the PATH or"),
        "a command with an option": ({"kubectl_program": "kubectl -v"}, "it must be the name of a"),
    },
    "tools_dir": {
        "a relative path": ({"tools_dir": "bin"}, PATH),
    },
    "cache_dir": {
        "a home that no shell has filled in": ({"cache_dir": "~/cache"}, PATH),
    },
    "engine_dir": {
        "a relative path": ({"engine_dir": "engine"}, "it must be an absolute path of at most 95"),
        "too long for a socket": ({"engine_dir": f"/{'a' * 95}"}, "it must be an absolute path of at most 95"),
    },
    "worker_nodes": {
        "text": ({"worker_nodes": "node1"}, "it must be a list of names (example: [node1, node2])."),
        "none": ({"worker_nodes": []}, "name at least one worker (example: [node1])."),
        "a name twice": ({"worker_nodes": ["node1", "node1"]}, "names a node twice: node1, node1"),
        "an invalid name": ({"worker_nodes": ["Node_1"]}, "a node's name must be up to 63"),
        "the control plane's name": ({"worker_nodes": ["gpu-scheduler-control-plane"]}, "the control plane's"),
    },
    "node_image_source": {
        "an unknown one": ({"node_image_source": "sometimes"}, "set it to auto, pull or build."),
    },
    "cert_mode": {
        "an unknown one": ({"cert_mode": "none"}, "set it to managed or cert-manager."),
    },
    "injection": {
        "an unknown one": ({"injection": "none"}, "set it to webhook or policy."),
    },
    "isolation": {
        "an unknown one": ({"isolation": "cdi"}, "set it to env or dra."),
        "without the webhook": ({"isolation": "dra", "injection": "policy"}, "injection is 'policy': only the"),
    },
    "isolation_namespaces": {
        "a namespace": ({"isolation_namespaces": "team-a"}, "set it to all or labelled."),
    },
    "scheduler_users": {
        "text": ({"scheduler_users": "me"}, "it must be a list of user names (example: ["),
        "an empty name": ({"scheduler_users": [""]}, "a user's name must be text of printable"),
        "a line break": ({"scheduler_users": ["a\nb"]}, "a user's name must be text of printable"),
        "a number": ({"scheduler_users": [7]}, "a user's name must be text of printable"),
    },
    "monitor_source": {
        "an unknown one": ({"monitor_source": "dcgm"}, "set it to none, nvml or simulated."),
    },
    "monitor_simulated_inventory": {
        "text": ({"monitor_simulated_inventory": "node1"}, "it must be nodes with groups of GPUs (example: node1:"),
        "none where they are asked for": (
            {"monitor_source": "simulated", "monitor_simulated_inventory": {}},
            "monitor_source is simulated: declare some GPUs",
        ),
        "a group that is no list": ({"monitor_simulated_inventory": {"node1": _GROUP}}, "groups are a"),
        "no memory": (
            {"monitor_simulated_inventory": {"node1": [{"count": 4, "model": "L4"}]}},
            "a group needs count, model and memoryTotalMiB",
        ),
        "a negative count": (
            {"monitor_simulated_inventory": {"node1": [{**_GROUP, "count": -1}]}},
            "count must be a number up to 256, and memoryTotalMiB one of MiB",
        ),
        "no model": (
            {"monitor_simulated_inventory": {"node1": [{**_GROUP, "model": ""}]}},
            "model must be text of 1 to 63 printable ASCII characters",
        ),
        "fewer GPUs than the map names": (
            {"monitor_simulated_inventory": {"node4": [{**_GROUP, "count": 2}]}},
            "monitor_simulated_inventory declares 2 there: let both fit",
        ),
        "an unknown key": (
            {"monitor_simulated_inventory": {"node1": [_GROUP, {**_GROUP, "colour": "red"}]}},
            "a group has no colour",
        ),
    },
    "kind_cluster_api_port": {
        "too high": ({"kind_cluster_api_port": 65536}, "it must be a port from 1"),
        "text": ({"kind_cluster_api_port": "https"}, "it must be a port from 1 to 65535"),
    },
    "image_registry": {
        "a scheme": ({"image_registry": "https://h/team"}, "it must be HOST[:PORT]"),
        "a slash at its end": ({"image_registry": "h/team/"}, "it must be HOST[:PORT][/PATH]"),
    },
    "pod_options": {
        "text": ({"pod_options": "linux"}, "it must be a dictionary with some of the keys"),
        "an unknown key": ({"pod_options": {"tolerances": []}}, "pod_options has tolerances: its keys are"),
        "a pull policy that is none": (
            {"pod_options": {"image_pull_policy": "Sometimes"}},
            "it must be IfNotPresent, Always, Never (example: Always).",
        ),
        "one pull secret as text": ({"pod_options": {"image_pull_secrets": "registry"}}, "it must be a list of"),
        "a pull secret as pods have it": (
            {"pod_options": {"image_pull_secrets": [{"name": "registry"}]}},
            "'registry'}': a Secret's name must be lower-case letters",
        ),
        "a label's value that YAML reads as a boolean": (
            {"pod_options": {"node_selector": {"gpu": True}}},
            f"pod_options.node_selector has gpu: True: {LABEL}",
        ),
        "nodes that run no Linux": (
            {"pod_options": {"node_selector": {"kubernetes.io/os": "windows"}}},
            "pod_options.node_selector has kubernetes.io/os: windows: our images are for linux",
        ),
        "a toleration without a key or operator Exists": (
            {"pod_options": {"tolerations": [{"effect": "NoSchedule"}]}},
            "'NoSchedule'}': without a key operator must be Exists",
        ),
        "a list of labels": ({"pod_options": {"node_selector": ["gpu"]}}, "it must be labels with their values"),
        "one toleration": ({"pod_options": {"tolerations": {"key": "a"}}}, "it must be a list of tolerations"),
        "a priority as a number": ({"pod_options": {"priority_class": 1000}}, "the name of a PriorityClass"),
        "resources as a list": ({"pod_options": {"resources": ["scheduler"]}}, "it must be roles with their resources"),
        "an affinity of no kind": ({"pod_options": {"affinity": {"nodes": {}}}}, "it must be a pod's affinity"),
        "resources of no role": (
            {"pod_options": {"resources": {"limits": {"memory": "1Gi"}}}},
            "pod_options.resources has limits: the roles with pods are scheduler, webhook, controller, monitor,",
        ),
        "resources that are no amounts": (
            {"pod_options": {"resources": {"scheduler": {"limits": {"memory": "1 GB"}}}}},
            "{'memory': '1 GB'}}: a role has requests and limits, each",
        ),
    },
    "openshift": {
        "a version": ({"openshift": "4.20"}, FLAG),
    },
    "webhook_port": {
        "one that only root may open": ({"webhook_port": 443}, "it must be a port from 1024 to 65535, because the"),
        "the port of probes": ({"webhook_port": 8080}, "so is webhook_http_port: let them differ (example: 8443)."),
        "the kubelet's, in the nodes' network": (
            {"webhook_port": "10250", "webhook_host_network": True},
            "webhook_host_network is true: that port of every node is the kubelet's",
        ),
    },
    "webhook_http_port": {
        "text": ({"webhook_http_port": "http"}, "it must be a port from 1024 to 65535"),
    },
    "webhook_host_network": {
        "a word": ({"webhook_host_network": "host"}, FLAG),
    },
    "check_tolerations": {
        "text": ({"check_tolerations": "nvidia.com/gpu"}, "it must be a list of tolerations (example: [{key:"),
        "a taint's key alone": ({"check_tolerations": ["nvidia.com/gpu"]}, "a toleration has some of the keys key,"),
        "a value that nothing compares": (
            {"check_tolerations": [{"key": "sku", "operator": "Exists", "value": "gpu"}]},
            "operator Exists has no value (example: [{key: nvidia.com/gpu, operator: Exists}]).",
        ),
        "an unknown operator": (
            {"check_tolerations": [{"key": "sku", "operator": "In"}]},
            "operator must be Exists or Equal",
        ),
        "an unknown effect": ({"check_tolerations": [{"key": "sku", "effect": "NoRun"}]}, "effect must be one of"),
    },
    "system_namespace": {
        "dots": ({"system_namespace": "a.b"}, DNS),
        "Kubernetes' own": ({"system_namespace": "kube-system"}, "system_namespace is 'kube-system', a namespace"),
        "another one's": ({"system_namespace": "gpu-scheduler-tests"}, "so is another: each must be of its own"),
    },
    "tests_namespace": {
        "too long": ({"tests_namespace": "a" * 64}, DNS),
    },
    "check_namespace": {
        "a hyphen at its end": ({"check_namespace": "check-"}, DNS),
    },
    "evidence_dir": {
        "a relative path": ({"evidence_dir": "evidence"}, PATH),
    },
    "gpu_scheduling_map": {
        "a list": ({"gpu_scheduling_map": ["0=node1:0"]}, "it must be text, a line for each replica"),
        "nothing": ({"gpu_scheduling_map": ""}, "cannot read placement map: it must have"),
        "an index left out": ({"gpu_scheduling_map": "0=node1:0\n2=node1:1"}, "they must begin with 0 and leave"),
        "an unknown node": ({"gpu_scheduling_map": "0=node9:0"}, "worker_nodes is node1, node2, node3, node4"),
    },
}

# The same for variables that the inventory computes where the user gives none.
WRONG_COMPUTED: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "scheduler_image": {
        "no tag and no digest": (
            {"scheduler_image": "registry.example.com/gpu-scheduler"},
            IMAGE,
        ),
        "a short digest": ({"scheduler_image": "h/gpu@sha256:0123"}, "it must be an image with"),
    },
    "check_image": {
        "capitals": ({"check_image": "h/Check:1"}, "it must be an image with"),
    },
}

RIGHT: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "an existing cluster": _EXISTING,
    "nodes of an existing cluster": {**_EXISTING, "gpu_scheduling_map": "0=gpu-a.example.com:0"},
    "another cluster": {"cluster_name": "b"},
    "a port given on the command line": {"kind_cluster_api_port": "6443"},
    "images of a registry, with digests": {
        "scheduler_image": f"registry.example.com:5000/team/gpu-scheduler:v1@sha256:{'0123456789abcdef' * 4}",
        "check_image": f"docker.io/team/check@sha256:{'a' * 64}",
    },
    "a kubectl of a path": {"kubectl_program": "/opt/my tools/kubectl"},
    "a registry with port and path": {"image_registry": "localhost:5000/team/gpu"},
    "injection by policy, and a scheduler outside": {
        "injection": "policy",
        "scheduler_users": ["Ada O'Hara <ada@example.com>"],
    },
    "claims for pods of some namespaces": {"isolation": "dra", "isolation_namespaces": "labelled"},
    "no declared GPUs where none are asked for": {"monitor_source": "nvml", "monitor_simulated_inventory": {}},
    "declared GPUs in groups": {
        "monitor_simulated_inventory": {
            f"node{number}": [_GROUP, {**_GROUP, "health": {5: "degraded"}}] for number in range(1, 5)
        }
    },
    "an engine of our own": {"engine_dir": "/srv/engine"},
    "every option of pods": {
        "pod_options": {
            "image_pull_secrets": ["registry"],
            "node_selector": {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}, {"key": "sku", "value": "gpu", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {}},
            "priority_class": "important",
            "resources": {"webhook": {"requests": {"cpu": 1, "memory": "128Mi"}, "limits": {"memory": "1.5Gi"}}},
        },
        "check_tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "openshift": True,
    },
    "options of pods without values": {"pod_options": {"node_selector": None, "priority_class": ""}},
    "the port that private clusters of GKE open": {"webhook_port": "10250", "webhook_host_network": "false"},
    "the nodes' network": {"webhook_host_network": True, "webhook_port": 10260, "webhook_http_port": 10261},
    "UUIDs, blanks, comments and a line without GPUs": {
        "gpu_scheduling_map": f"# ours\n\n 0 = node1 : {_UUID}\r\n1=node2:\n"
    },
}
