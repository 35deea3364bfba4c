"""Wrong values of inventory variables, with the message of preflight for each."""

from __future__ import annotations

from typing import Any, Final

_DNS: Final = "it must be up to 63 lower-case letters, digits and hyphens, a letter or digit at both ends"
_PATH: Final = "it must be one absolute path without a colon"
_MAP: Final = "gpu_scheduling_map: cannot read placement map"
_UUID: Final = "GPU-00000000-0000-0000-0000-000000000000"
_GROUP: Final = {"count": 4, "model": "L4", "memoryTotalMiB": 24576}
_EXISTING: Final = {"cluster_provider": "existing", "kube_context": "somewhere"}

# variable → case → (the values, a part of the message)
WRONG: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "project_dir": {
        "a relative path": ({"project_dir": "."}, f"project_dir is '.': {_PATH}"),
    },
    "cluster_provider": {
        "an unknown one": ({"cluster_provider": "cloud"}, "cluster_provider is 'cloud': set it to kind or existing."),
        "a list": ({"cluster_provider": ["kind"]}, "cluster_provider is '['kind']': set it to kind or existing."),
    },
    "cluster_name": {
        "capitals": ({"cluster_name": "Gpu"}, "cluster_name is 'Gpu': it must be text, up to 49 lower-case letters"),
        "a number": ({"cluster_name": 7}, "cluster_name is '7': it must be text"),
        "too long for a host name": ({"cluster_name": "a" * 50}, "it must be text, up to 49 lower-case letters"),
        "nothing": ({"cluster_name": ""}, "cluster_name is '': it must be text"),
    },
    "kubeconfig": {
        "a relative path": ({"kubeconfig": "config"}, f"kubeconfig is 'config': {_PATH}"),
        "several": ({"kubeconfig": "/a/config:/b/config"}, f"kubeconfig is '/a/config:/b/config': {_PATH}"),
    },
    "kube_context": {
        "none for an existing cluster": (
            {"cluster_provider": "existing", "kube_context": ""},
            "kube_context is '': name the context to install on, the current one is never taken by chance",
        ),
        "another than kind makes": (
            {"kube_context": "production"},
            "kube_context is 'production': kind calls the context of cluster gpu-scheduler kind-gpu-scheduler",
        ),
    },
    "kubectl_program": {
        "a relative path": (
            {"kubectl_program": "bin/kubectl"},
            "kubectl_program is 'bin/kubectl': it must be the name of a program on the PATH or an absolute path",
        ),
        "a command with an option": ({"kubectl_program": "kubectl -v"}, "kubectl_program is 'kubectl -v': it must be"),
        "nothing": ({"kubectl_program": ""}, "kubectl_program is '': it must be the name of a program on the PATH"),
    },
    "tools_dir": {"a relative path": ({"tools_dir": "bin"}, f"tools_dir is 'bin': {_PATH}")},
    "cache_dir": {
        "a home that no shell has filled in": ({"cache_dir": "~/cache"}, f"cache_dir is '~/cache': {_PATH}"),
        "a list": ({"cache_dir": ["/a"]}, f"cache_dir is '['/a']': {_PATH}"),
    },
    "engine_dir": {
        "a relative path": (
            {"engine_dir": "engine"},
            "engine_dir is 'engine': it must be an absolute path of at most 95",
        ),
        "too long for a socket": (
            {"engine_dir": f"/{'a' * 95}"},
            "it must be an absolute path of at most 95 characters",
        ),
    },
    "worker_nodes": {
        "text": (
            {"worker_nodes": "node1"},
            "worker_nodes is 'node1': it must be a list of names (example: [node1, node2]).",
        ),
        "none": ({"worker_nodes": []}, "worker_nodes is empty: name at least one worker (example: [node1])."),
        "a name twice": ({"worker_nodes": ["node1", "node1"]}, "worker_nodes names a node twice: node1, node1"),
        "an invalid name": ({"worker_nodes": ["Node_1"]}, "worker_nodes has 'Node_1': a node's name must be up to 63"),
        "a number": ({"worker_nodes": ["node1", 2]}, "worker_nodes has '2': a node's name must be up to 63"),
        "the control plane's name": (
            {"worker_nodes": ["gpu-scheduler-control-plane"]},
            "worker_nodes has gpu-scheduler-control-plane, which is the control plane's name: choose another",
        ),
    },
    "node_image_source": {
        "an unknown one": (
            {"node_image_source": "sometimes"},
            "node_image_source is 'sometimes': set it to auto, pull or build.",
        ),
    },
    "cert_mode": {
        "an unknown one": ({"cert_mode": "none"}, "cert_mode is 'none': set it to managed or cert-manager."),
    },
    "injection": {
        "an unknown one": ({"injection": "none"}, "injection is 'none': set it to webhook or policy."),
        "a boolean": ({"injection": True}, "injection is 'True': set it to webhook or policy."),
    },
    "isolation": {
        "an unknown one": ({"isolation": "cdi"}, "isolation is 'cdi': set it to env or dra."),
        "a boolean": ({"isolation": True}, "isolation is 'True': set it to env or dra."),
        "without the webhook": (
            {"isolation": "dra", "injection": "policy"},
            "isolation is 'dra', and injection is 'policy': only the webhook adds ResourceClaims to pods, so set ",
        ),
    },
    "isolation_namespaces": {
        "a namespace": (
            {"isolation_namespaces": "team-a"},
            "isolation_namespaces is 'team-a': set it to all or labelled.",
        ),
    },
    "scheduler_users": {
        "text": ({"scheduler_users": "me"}, "scheduler_users is 'me': it must be a list of user names (example: ["),
        "an empty name": ({"scheduler_users": [""]}, "scheduler_users has '': a user's name must be text of printable"),
        "a line break": ({"scheduler_users": ["a\nb"]}, "scheduler_users has 'a\nb': a user's name must be text"),
        "a number": ({"scheduler_users": [7]}, "scheduler_users has '7': a user's name must be text of printable"),
    },
    "monitor_source": {
        "an unknown one": ({"monitor_source": "dcgm"}, "monitor_source is 'dcgm': set it to none, nvml or simulated."),
    },
    "monitor_simulated_inventory": {
        "text": (
            {"monitor_simulated_inventory": "node1"},
            "monitor_simulated_inventory is 'node1': it must be nodes with groups of GPUs (example: node1: [{count: 4",
        ),
        "none where they are asked for": (
            {"monitor_source": "simulated", "monitor_simulated_inventory": {}},
            "monitor_simulated_inventory is empty, and monitor_source is simulated: declare some GPUs",
        ),
        "a group that is no list": (
            {"monitor_simulated_inventory": {"node1": _GROUP}},
            "monitor_simulated_inventory has node1: {'count': 4, 'model': 'L4', 'memoryTotalMiB': 24576}: groups are a",
        ),
        "text for a group": (
            {"monitor_simulated_inventory": {"node1": ["L4"]}},
            "monitor_simulated_inventory has node1: ['L4']: a group needs count, model and memoryTotalMiB (example:",
        ),
        "no memory": (
            {"monitor_simulated_inventory": {"node1": [{"count": 4, "model": "L4"}]}},
            "a group needs count, model and memoryTotalMiB",
        ),
        "a negative count": (
            {"monitor_simulated_inventory": {"node1": [{**_GROUP, "count": -1}]}},
            "count must be a number up to 256, and memoryTotalMiB one of MiB",
        ),
        "a boolean for memory": (
            {"monitor_simulated_inventory": {"node1": [{**_GROUP, "memoryTotalMiB": True}]}},
            "count must be a number up to 256, and memoryTotalMiB one of MiB",
        ),
        "no model": (
            {"monitor_simulated_inventory": {"node1": [{**_GROUP, "model": ""}]}},
            "model must be text of 1 to 63 printable ASCII characters",
        ),
        "fewer GPUs than the map names": (
            {"monitor_simulated_inventory": {"node4": [{**_GROUP, "count": 2}]}},
            "gpu_scheduling_map names GPU 3 of node4, and monitor_simulated_inventory declares 2 there: let both fit",
        ),
        "an unknown key": (
            {"monitor_simulated_inventory": {"node1": [_GROUP, {**_GROUP, "colour": "red"}]}},
            "a group has no colour",
        ),
    },
    "kind_cluster_api_port": {
        "too high": ({"kind_cluster_api_port": 65536}, "kind_cluster_api_port is '65536': it must be a port from 1"),
        "negative": ({"kind_cluster_api_port": -1}, "kind_cluster_api_port is '-1': it must be a port from 1 to 65535"),
        "text": (
            {"kind_cluster_api_port": "https"},
            "kind_cluster_api_port is 'https': it must be a port from 1 to 65535",
        ),
        "a boolean": (
            {"kind_cluster_api_port": True},
            "kind_cluster_api_port is 'True': it must be a port from 1 to 65535",
        ),
    },
    "image_registry": {
        "a scheme": (
            {"image_registry": "https://h/team"},
            "image_registry is 'https://h/team': it must be HOST[:PORT]",
        ),
        "a slash at its end": (
            {"image_registry": "h/team/"},
            "image_registry is 'h/team/': it must be HOST[:PORT][/PATH]",
        ),
        "capitals": ({"image_registry": "h/Team"}, "image_registry is 'h/Team': it must be HOST[:PORT][/PATH]"),
        "a number": ({"image_registry": 5000}, "image_registry is '5000': it must be HOST[:PORT][/PATH]"),
    },
    "pod_options": {
        "text": ({"pod_options": "linux"}, "pod_options is 'linux': it must be a dictionary with some of the keys"),
        "an unknown key": (
            {"pod_options": {"tolerances": []}},
            "pod_options has tolerances: its keys are image_pull_policy, image_pull_secrets, node_selector,",
        ),
        "a pull policy that is none": (
            {"pod_options": {"image_pull_policy": "Sometimes"}},
            "pod_options.image_pull_policy is 'Sometimes': it must be IfNotPresent, Always, Never (example: Always).",
        ),
        "one pull secret as text": (
            {"pod_options": {"image_pull_secrets": "registry"}},
            (
                "pod_options.image_pull_secrets is 'registry': it must be a list of names of Secrets"
                " (example: [registry])."
            ),
        ),
        "a pull secret as pods have it": (
            {"pod_options": {"image_pull_secrets": [{"name": "registry"}]}},
            "pod_options.image_pull_secrets has '{'name': 'registry'}': a Secret's name must be lower-case letters",
        ),
        "a list of labels": (
            {"pod_options": {"node_selector": ["gpu"]}},
            "pod_options.node_selector is '['gpu']': it must be labels with their values (example: {kubernetes.io/arch",
        ),
        "a label's value that YAML reads as a boolean": (
            {"pod_options": {"node_selector": {"gpu": True}}},
            "pod_options.node_selector has gpu: True: a label's value must be quoted text",
        ),
        "nodes that run no Linux": (
            {"pod_options": {"node_selector": {"kubernetes.io/os": "windows"}}},
            "pod_options.node_selector has kubernetes.io/os: windows: our images are for linux",
        ),
        "one toleration": (
            {"pod_options": {"tolerations": {"key": "a"}}},
            (
                "pod_options.tolerations is '{'key': 'a'}': it must be a list of tolerations (example:"
                " [{key: nvidia.com/gpu"
            ),
        ),
        "a toleration without a key or operator Exists": (
            {"pod_options": {"tolerations": [{"effect": "NoSchedule"}]}},
            "pod_options.tolerations has '{'effect': 'NoSchedule'}': without a key operator must be Exists",
        ),
        "an affinity of no kind": (
            {"pod_options": {"affinity": {"nodes": {}}}},
            "pod_options.affinity is '{'nodes': {}}': it must be a pod's affinity, with some of the keys nodeAffinity,",
        ),
        "a priority as a number": (
            {"pod_options": {"priority_class": 1000}},
            (
                "pod_options.priority_class is '1000': it must be the name of a PriorityClass, or empty"
                " for each role's own"
            ),
        ),
        "resources of no role": (
            {"pod_options": {"resources": {"limits": {"memory": "1Gi"}}}},
            "pod_options.resources has limits: the roles with pods are scheduler, webhook, controller, monitor,",
        ),
        "resources that are no amounts": (
            {"pod_options": {"resources": {"scheduler": {"limits": {"memory": "1 GB"}}}}},
            "pod_options.resources has scheduler: {'limits': {'memory': '1 GB'}}: a role has requests and limits, each",
        ),
        "resources as a list": (
            {"pod_options": {"resources": ["scheduler"]}},
            (
                "pod_options.resources is '['scheduler']': it must be roles with their resources (example:"
                " {scheduler: {lim"
            ),
        ),
    },
    "openshift": {
        "a version": ({"openshift": "4.20"}, "openshift is '4.20': set it to true or false."),
    },
    "webhook_port": {
        "one that only root may open": (
            {"webhook_port": 443},
            (
                "webhook_port is '443': it must be a port from 1024 to 65535, because the process is not"
                " root (example: 8443)"
            ),
        ),
        "too high": ({"webhook_port": 65536}, "webhook_port is '65536': it must be a port from 1024 to 65535"),
        "the port of probes": (
            {"webhook_port": 8080},
            "webhook_port is '8080', and so is webhook_http_port: let them differ (example: 8443).",
        ),
        "the kubelet's, in the nodes' network": (
            {"webhook_port": "10250", "webhook_host_network": True},
            "webhook_port is '10250', and webhook_host_network is true: that port of every node is the kubelet's",
        ),
    },
    "webhook_http_port": {
        "text": ({"webhook_http_port": "http"}, "webhook_http_port is 'http': it must be a port from 1024 to 65535"),
    },
    "webhook_host_network": {
        "a word": ({"webhook_host_network": "host"}, "webhook_host_network is 'host': set it to true or false."),
    },
    "check_tolerations": {
        "text": (
            {"check_tolerations": "nvidia.com/gpu"},
            "check_tolerations is 'nvidia.com/gpu': it must be a list of tolerations (example: [{key: nvidia.com/gpu,",
        ),
        "a taint's key alone": (
            {"check_tolerations": ["nvidia.com/gpu"]},
            "check_tolerations has 'nvidia.com/gpu': a toleration has some of the keys key, operator, value, effect,",
        ),
        "a value that nothing compares": (
            {"check_tolerations": [{"key": "sku", "operator": "Exists", "value": "gpu"}]},
            "operator Exists has no value (example: [{key: nvidia.com/gpu, operator: Exists}]).",
        ),
        "an unknown operator": (
            {"check_tolerations": [{"key": "sku", "operator": "In"}]},
            "operator must be Exists or Equal",
        ),
        "an unknown effect": (
            {"check_tolerations": [{"key": "sku", "effect": "NoRun"}]},
            "effect must be one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
    },
    "system_namespace": {
        "dots": ({"system_namespace": "a.b"}, f"system_namespace is 'a.b': {_DNS} (example: gpu-scheduler-system)"),
        "Kubernetes' own": (
            {"system_namespace": "kube-system"},
            "system_namespace is 'kube-system', a namespace of Kubernetes' own",
        ),
        "another one's": (
            {"system_namespace": "gpu-scheduler-tests"},
            "system_namespace is 'gpu-scheduler-tests', and so is another: each must be of its own",
        ),
    },
    "tests_namespace": {
        "too long": ({"tests_namespace": "a" * 64}, f"tests_namespace is '{'a' * 64}': {_DNS}"),
        "nothing": ({"tests_namespace": ""}, f"tests_namespace is '': {_DNS} (example: gpu-scheduler-tests)"),
    },
    "check_namespace": {
        "a hyphen at its end": ({"check_namespace": "check-"}, f"check_namespace is 'check-': {_DNS}"),
        "a number": ({"check_namespace": 5}, f"check_namespace is '5': {_DNS} (example: gpu-scheduler-check)"),
    },
    "evidence_dir": {"a relative path": ({"evidence_dir": "evidence"}, f"evidence_dir is 'evidence': {_PATH}")},
    "gpu_scheduling_map": {
        "a list": (
            {"gpu_scheduling_map": ["0=node1:0"]},
            "gpu_scheduling_map is '['0=node1:0']': it must be text, a line for each replica",
        ),
        "nothing": ({"gpu_scheduling_map": ""}, f"{_MAP}: it must have at least one line INDEX=NODE:ID,ID"),
        "a line without a node": (
            {"gpu_scheduling_map": "# ours\n0=0,1"},
            f'{_MAP}, line 2: "0=0,1": a line must be INDEX=NODE:ID,ID (example: 1=node2:0,1)',
        ),
        "a node that is no name": (
            {"gpu_scheduling_map": "0=Node1:0"},
            f'{_MAP}, line 1: "0=Node1:0": node must be a DNS',
        ),
        "a leading zero": (
            {"gpu_scheduling_map": "00=node1:0"},
            f'{_MAP}, line 1: "00=node1:0": index must be a number',
        ),
        "a sign": ({"gpu_scheduling_map": "0=node1:-1"}, f'{_MAP}, line 1: "0=node1:-1": GPU must be a number'),
        "an empty part": ({"gpu_scheduling_map": "0=node1:0,,1"}, "GPUs must be separated by single commas"),
        "an index twice": (
            {"gpu_scheduling_map": "0=node1:0\n0=node2:0"},
            f'{_MAP}, line 2: "0=node2:0": index 0 must stand once, and line 1 has it',
        ),
        "a GPU twice": (
            {"gpu_scheduling_map": "0=node1:0,0"},
            "GPU 0 must stand once on a line (example: 1=node2:0,1)",
        ),
        "two kinds": ({"gpu_scheduling_map": f"0=node1:0,{_UUID}"}, "GPUs of one line must be of one kind"),
        "an invalid UUID": (
            {"gpu_scheduling_map": "0=node1:GPU-1"},
            "GPU must be a number, GPU-<uuid> or MIG-<uuid>",
        ),
        "over 64 KiB": ({"gpu_scheduling_map": "#" * 70_000}, f"{_MAP}: it must have at most 65536 bytes"),
        "an index left out": (
            {"gpu_scheduling_map": "0=node1:0\n2=node1:1"},
            "gpu_scheduling_map has the indices 0, 2: they must begin with 0 and leave none out",
        ),
        "an unknown node": (
            {"gpu_scheduling_map": "0=node9:0"},
            "gpu_scheduling_map names node9, and worker_nodes is node1, node2, node3, node4",
        ),
    },
}

# The same for variables that the inventory computes where the user gives none.
WRONG_COMPUTED: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "scheduler_image": {
        "no tag and no digest": (
            {"scheduler_image": "registry.example.com/gpu-scheduler"},
            "scheduler_image is 'registry.example.com/gpu-scheduler': it must be an image with a tag or a digest of 64",
        ),
        "a short digest": ({"scheduler_image": "h/gpu@sha256:0123"}, "scheduler_image is 'h/gpu@sha256:0123': it must"),
        "a scheme": (
            {"scheduler_image": "https://h/gpu:1"},
            "scheduler_image is 'https://h/gpu:1': it must be an image",
        ),
        "a list": (
            {"scheduler_image": ["h/gpu:1"]},
            "scheduler_image is '['h/gpu:1']': it must be an image with a tag",
        ),
    },
    "check_image": {"capitals": ({"check_image": "h/Check:1"}, "check_image is 'h/Check:1': it must be an image with")},
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
