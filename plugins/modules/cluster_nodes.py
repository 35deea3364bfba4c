"""Ansible module: the nodes of a cluster, their devices, and which of these pods hold. Changes nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.cluster_client import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    Cluster,
    ClusterError,
)
from ansible.module_utils.node_facts import holders, node_facts  # type: ignore[import-untyped]  # likewise

DOCUMENTATION = """
module: cluster_nodes
short_description: nodes of a cluster with their devices and what is held of them
description:
  - Reads all nodes, and the pods that run on them.
options:
  kubeconfig: {description: The kubeconfig to use., type: path, required: true}
  context: {description: The context in it., type: str, required: true}
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Read the nodes
  cluster_nodes:
    kubeconfig: ~/.kube/config
    context: my-cluster
"""

RETURN = """
nodes: {description: "Name, alias, state and devices of each node, and their holders.", type: list, elements: dict}
"""

RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def main() -> None:
    """Return the result to Ansible."""
    module = AnsibleModule(
        argument_spec={
            "kubeconfig": {"type": "path", "required": True},
            "context": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        cluster = Cluster(module.params["kubeconfig"], module.params["context"])
        held = holders(cluster.items("/api/v1/pods", fieldSelector=RUNNING))
        nodes = [
            {**node_facts(body), "holders": held.get(body["metadata"]["name"], [])}
            for body in cluster.items("/api/v1/nodes")
        ]
    except ClusterError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, nodes=nodes)


if __name__ == "__main__":
    main()
