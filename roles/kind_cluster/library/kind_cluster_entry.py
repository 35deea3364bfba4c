"""Ansible module: the entry of a kind cluster in a kubeconfig: where it leads, or the entry taken out.

The file may be the user's own. What else is in it stays as it is, down to the quotes of a password: the nodes of the
YAML document are written as they were read.
"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kind_cluster_entry
short_description: A kind cluster's context, cluster and user in a kubeconfig
description:
  - With state read it only tells where the entry leads.
  - With state absent it takes out the context C(kind-NAME), and the cluster and the user of that name
    unless another context names them. C(current-context) is emptied where it was that context.
  - A file in which nothing is left is removed.
  - An entry that leads elsewhere than to the cluster stays, and I(kept) says why.
options:
  kubeconfig:
    description: The kubeconfig; it need not exist.
    type: path
    required: true
  name:
    description: The kind cluster's name.
    type: str
    required: true
  state:
    description: Whether to read the entry or to take it out.
    type: str
    choices: [read, absent]
    default: read
  server:
    description:
      - The address that the cluster had when it was removed.
      - Empty where it was gone already; then an entry is out of date whose address is of this host and does not answer.
    type: str
    default: ""
author: gpu-scheduler
"""

RETURN = r"""
server:
  description: Where the entry leads; empty where there is none.
  type: str
  returned: always
kept:
  description: Why the entry stays; empty where it does not, or where there is none.
  type: str
  returned: always
"""

# section → the key of an item's body
SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}
# Seconds in which a port of this host answers, if anybody listens.
TIMEOUT = 2

Items = dict[str, yaml.Node]


def fields(node: yaml.Node | None) -> Items:
    """The fields of a mapping; none of anything else."""
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def text(node: yaml.Node | None) -> str:
    """A scalar's text; empty for anything else."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def entries(document: yaml.Node | None, section: str) -> Items:
    """The items of a section by their names."""
    listed = fields(document).get(section)
    found = listed.value if isinstance(listed, yaml.SequenceNode) else []
    return {text(fields(item).get("name")): item for item in found}


def body(document: yaml.Node | None, section: str, name: str) -> Items:
    """The fields of the item of this name; none where there is no such item."""
    return fields(fields(entries(document, section).get(name)).get(SECTIONS[section]))


def server_of(document: yaml.Node | None, name: str) -> str:
    """The address that the context leads to; empty where there is no such context, or it names no cluster."""
    return text(body(document, "clusters", text(body(document, "contexts", name).get("cluster"))).get("server"))


def listens(server: str) -> bool:
    """Whether anybody listens at this address of this host."""
    address = urlsplit(server)
    try:
        with socket.create_connection((str(address.hostname), address.port or 443), TIMEOUT):
            return True
    except OSError:
        return False


def reason_to_keep(document: yaml.Node | None, name: str, removed: str) -> str:
    """Why the context is not that of the cluster that was removed; empty where it is, or where there is none."""
    if name not in entries(document, "contexts"):
        return ""
    context, server = body(document, "contexts", name), server_of(document, name)
    if {text(context.get("cluster")), text(context.get("user"))} != {name}:
        return f"its cluster and user are not both called {name}"
    if removed:
        return "" if server == removed else f"it leads to {server}, and the cluster was at {removed}"
    if urlsplit(server).hostname not in ("127.0.0.1", "localhost", "::1"):
        return f"it leads to {server}, which is not on this host"
    return f"somebody answers at {server}" if listens(server) else ""


def take_out(document: yaml.Node, name: str) -> None:
    """Take out the context, and the cluster and the user of its name unless another context names them."""
    others = [
        fields(fields(item).get("context")) for other, item in entries(document, "contexts").items() if other != name
    ]
    for section, kind in SECTIONS.items():
        item = entries(document, section).get(name)
        if item is not None and name not in [text(other.get(kind)) for other in others]:
            fields(document)[section].value.remove(item)
    current = fields(document).get("current-context")
    if current is not None and text(current) == name:
        current.value, current.style = "", '"'


def write(module: AnsibleModule, path: Path, document: yaml.Node) -> None:
    """Replace the file in one step, owner and mode as they were; remove it where nothing is left in it."""
    # A link is followed: it may lead into a folder that the user keeps under version control.
    target = path.resolve()
    if not any(entries(document, section) for section in SECTIONS):
        target.unlink()
        return
    written = yaml.serialize(document, Dumper=yaml.SafeDumper, width=float("inf"), allow_unicode=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, encoding="utf-8", delete=False) as partial:
        partial.write(written)
    module.atomic_move(partial.name, str(target))


def run(module: AnsibleModule) -> dict[str, Any]:
    """The module's answer; raises OSError and YAMLError."""
    path, name = Path(module.params["kubeconfig"]), f"kind-{module.params['name']}"
    document = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader) if path.is_file() else None
    answer = {"changed": False, "kept": "", "server": server_of(document, name)}
    if document is None or module.params["state"] == "read" or name not in entries(document, "contexts"):
        return answer
    kept = reason_to_keep(document, name, module.params["server"])
    if not kept and not module.check_mode:
        take_out(document, name)
        write(module, path, document)
    return answer | {"changed": not kept, "kept": kept}


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "kubeconfig": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["read", "absent"], "default": "read"},
            "server": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except (OSError, UnicodeError, yaml.YAMLError, ValueError) as error:
        module.fail_json(
            msg=f"cannot read the kubeconfig {module.params['kubeconfig']}: {error}. It must be YAML as kubectl"
            " writes it: see `kubectl config view`, or name another file (kubeconfig)."
        )


if __name__ == "__main__":
    main()
