"""The program of contender N: a custom scheduler as most are written in Python, with the official client.

It decodes every change of any pod to a model, lists the nodes for each pod, and sends one bind at a time. It does not
decode the answer to a bind, because the client raises on it.
"""

from __future__ import annotations

import sys
from typing import Any

from kubernetes import client, config, watch

MAP = "gpu-scheduling-map"


def main() -> None:
    """Place the pods of the scheduler that the command line names, until stopped."""
    kubeconfig, scheduler = sys.argv[1:]
    config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]  # the client is typed in part
    api = client.CoreV1Api()
    pods = watch.Watch().stream(api.list_pod_for_all_namespaces)  # type: ignore[no-untyped-call]  # the client is typed in part
    for event in pods:
        pod = event["object"]
        if event["type"] == "ADDED" and pod.spec.scheduler_name == scheduler and pod.spec.node_name is None:
            _place(api, pod)


def _place(api: client.CoreV1Api, pod: Any) -> None:
    lines = dict(line.split("=") for line in pod.metadata.annotations[MAP].splitlines())
    node = lines[pod.metadata.name.rpartition("-")[2]].partition(":")[0]
    nodes: Any = api.list_node()
    if any(each.metadata.name == node for each in nodes.items):
        target = client.V1ObjectReference(api_version="v1", kind="Node", name=node)
        body = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.metadata.name), target=target)
        api.create_namespaced_binding(pod.metadata.namespace, body, _preload_content=False)


if __name__ == "__main__":
    main()
