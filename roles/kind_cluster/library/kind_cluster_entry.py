"""Ansible module: reads or removes the entry of a kind cluster in a kubeconfig.

The file may be the user's own. Everything else in it stays unchanged, even the quotes of a password: the nodes of the
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
  - With state read it only returns the server address of the entry.
  - With state absent it removes the context C(kind-NAME), and the cluster and the user of that name
    unless another context names them. C(current-context) is emptied if it was that context.
  - A file in which nothing is left is removed.
  - An entry of another cluster stays, and I(kept) says why.
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
    description: Whether to read the entry or to remove it.
    type: str
    choices: [read, absent]
    default: read
  server:
    description:
      - The address that the cluster had when it was removed.
      - Empty if the cluster did not exist any more. Then an entry is out of date if its address is of this host and
        does not answer.
    type: str
    default: ""
author: gpu-scheduler
"""

RETURN = r"""
server:
  description: The server address of the entry; empty without an entry.
  type: str
  returned: always
kept:
  description: Why the entry stays; empty if it was removed, or does not exist.
  type: str
  returned: always
"""

# section → the key of an item's body
SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}
# Seconds within which a port of this host answers.
TIMEOUT = 2

Items = dict[str, yaml.Node]


def fields(node: yaml.Node | None) -> Items:
    """Return the fields of a mapping; empty for anything else."""
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def text(node: yaml.Node | None) -> str:
    """Return a scalar's text; empty for anything else."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def entries(document: yaml.Node | None, section: str) -> Items:
    """Return the items of a section by their names."""
    listed = fields(document).get(section)
    found = listed.value if isinstance(listed, yaml.SequenceNode) else []
    return {text(fields(item).get("name")): item for item in found}


def body(document: yaml.Node | None, section: str, name: str) -> Items:
    """Return the fields of the item of this name; empty without such an item."""
    return fields(fields(entries(document, section).get(name)).get(SECTIONS[section]))


def server_of(document: yaml.Node | None, name: str) -> str:
    """Return the server address of the context; empty if the context does not exist or names no cluster."""
    return text(body(document, "clusters", text(body(document, "contexts", name).get("cluster"))).get("server"))


def is_open(server: str) -> bool:
    """Return whether a program listens at this address of this host."""
    address = urlsplit(server)
    try:
        with socket.create_connection((str(address.hostname), address.port or 443), TIMEOUT):
            return True
    except OSError:
        return False


def reason_to_keep(document: yaml.Node | None, name: str, removed: str) -> str:
    """Return why the context does not belong to the removed cluster; empty if it does, or does not exist."""
    if name not in entries(document, "contexts"):
        return ""
    context, server = body(document, "contexts", name), server_of(document, name)
    if {text(context.get("cluster")), text(context.get("user"))} != {name}:
        return f"its cluster and user are not both called {name}"
    if removed:
        return "" if server == removed else f"it leads to {server}, and the cluster was at {removed}"
    if urlsplit(server).hostname not in ("127.0.0.1", "localhost", "::1"):
        return f"it leads to {server}, which is not on this host"
    return f"somebody answers at {server}" if is_open(server) else ""


def take_out(document: yaml.Node, name: str) -> None:
    """Remove the context, and the cluster and the user of its name unless another context names them."""
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
    """Replace the file atomically, with its owner and mode; remove it if nothing is left in it."""
    # A link is followed: its target may be in a folder that the user keeps under version control.
    target = path.resolve()
    if not any(entries(document, section) for section in SECTIONS):
        target.unlink()
        return
    written = yaml.serialize(document, Dumper=yaml.SafeDumper, width=float("inf"), allow_unicode=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, encoding="utf-8", delete=False) as partial:
        partial.write(written)
    module.atomic_move(partial.name, str(target))


def run(module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result; raises OSError and YAMLError."""
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
    """Return the result to Ansible."""
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
