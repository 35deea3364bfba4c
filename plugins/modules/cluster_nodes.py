"""Ansible module: the nodes of a cluster, their devices, and which of these pods hold. Changes nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kube_context import Context  # type: ignore[import-untyped]  # ours: ansible.cfg says where
from ansible.module_utils.kubectl import ClusterError  # type: ignore[import-untyped]  # likewise
from ansible.module_utils.node_facts import holders, node_facts  # type: ignore[import-untyped]  # likewise

DOCUMENTATION = """
module: cluster_nodes
short_description: nodes of a cluster with their devices and what is held of them
description:
  - Reads all nodes, and the pods that run on them.
options:
  program: {description: "The user's kubectl, a name on the PATH or an absolute path.", type: str, required: true}
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
    program: kubectl
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
            "program": {"type": "str", "required": True},
            "kubeconfig": {"type": "path", "required": True},
            "context": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        cluster = Context(module.params["program"], module.params["kubeconfig"], module.params["context"])
        held = holders(cluster.items("v1", "Pod", fieldSelector=RUNNING))
        nodes = [
            {**node_facts(body), "holders": held.get(body["metadata"]["name"], [])}
            for body in cluster.items("v1", "Node")
        ]
    except ClusterError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, nodes=nodes)


if __name__ == "__main__":
    main()
