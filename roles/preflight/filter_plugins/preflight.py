"""Checks the inventory's values, of any type: a sentence for each problem, with variable, value, rule and example.

Pure functions of the values as the user gave them. The scheduler's own parser reads the map, so the messages are its
own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

Given = dict[str, Any]

NAMESPACES: Final = ("system_namespace", "tests_namespace", "check_namespace")
PATHS: Final = ("project_dir", "kubeconfig", "tools_dir", "cache_dir", "evidence_dir")

LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LABEL_RULE: Final = "up to 63 lower-case letters, digits and hyphens, a letter or digit at both ends"
# kind appends -control-plane to it, and a host name ends at 63 characters.
LONGEST_CLUSTER: Final = 49
# A socket's path has at most 107 bytes, and this one ends in /docker.sock.
LONGEST_ENGINE: Final = 95
HIGHEST_PORT: Final = 65535
# GPUs of one node. So many simulated ones still fit into an annotation.
MOST_GPUS: Final = 256
GROUP: Final = "(example: node1: [{count: 4, model: A100-40GB, memoryTotalMiB: 40960}])"
OVERRIDES: Final = ("utilization", "temperature", "power", "health", "uuid")
DIGEST: Final = "@sha256:[0-9a-f]{64}"
# Where an image is: [HOST[:PORT]/]PATH, then a tag, a digest or both.
IMAGE: Final = rf"([-A-Za-z0-9.]+(:[0-9]+)?/)?[a-z0-9._/-]+((:[\w][-\w.]{{0,127}})?{DIGEST}|:[\w][-\w.]{{0,127}})"
REGISTRY: Final = r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"

# The scheduler's package is not installed in the tool environment; its core needs nothing but Python.
PAYLOAD: Final = Path(__file__).resolve().parents[3] / "scheduler"


def fits(value: object, pattern: str) -> bool:
    """Return whether the value is text that matches the whole pattern."""
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def cert_mode(given: Given) -> Iterator[str]:
    """Who issues the webhook's certificate; role certificates has one word more, for installations without webhook."""
    if given["cert_mode"] not in ("managed", "cert-manager"):
        yield f"cert_mode is '{given['cert_mode']}': set it to managed or cert-manager."


def isolation(given: Given) -> Iterator[str]:
    """What ResourceClaims need."""
    if given["isolation"] == "dra" and given["injection"] == "policy":
        yield (
            "isolation is 'dra', and injection is 'policy': only the webhook adds ResourceClaims to pods, so set"
            " injection to webhook, or isolation to env (example: -e injection=webhook)."
        )


def cluster_name(given: Given) -> Iterator[str]:
    """The name from which containers and nodes get their names."""
    name = given["cluster_name"]
    if not fits(name, LABEL) or len(name) > LONGEST_CLUSTER:
        rule = LABEL_RULE.replace("63", str(LONGEST_CLUSTER))
        yield f"cluster_name is '{name}': it must be text, {rule} (example: gpu-scheduler)."


def kube_context(given: Given) -> Iterator[str]:
    """The context of the cluster."""
    context, cluster = given["kube_context"], given["cluster_name"]
    if given["cluster_provider"] == "kind" and context != f"kind-{cluster}":
        yield (
            f"kube_context is '{context}': kind calls the context of cluster {cluster} kind-{cluster}, so leave"
            " kube_context as it is, or set cluster_provider to existing."
        )
    if given["cluster_provider"] == "existing" and not fits(context, r".+"):
        yield (
            f"kube_context is '{context}': name the context to install on, the current one is never taken by chance"
            " (example: -e kube_context=my-cluster; kubectl config get-contexts lists them)."
        )


def worker_nodes(given: Given) -> Iterator[str]:
    """The names of the workers."""
    workers = given["worker_nodes"]
    if not isinstance(workers, list):
        yield f"worker_nodes is '{workers}': it must be a list of names (example: [node1, node2])."
        return
    if not workers:
        yield "worker_nodes is empty: name at least one worker (example: [node1])."
    if any(workers.count(worker) > 1 for worker in workers):
        yield f"worker_nodes names a node twice: {', '.join(map(str, workers))} (example: [node1, node2])."
    for worker in workers:
        if not fits(worker, LABEL):
            yield f"worker_nodes has '{worker}': a node's name must be {LABEL_RULE} (example: node1)."
    if f"{given['cluster_name']}-control-plane" in workers:
        yield (
            f"worker_nodes has {given['cluster_name']}-control-plane, which is the control plane's name:"
            " choose another (example: node1)."
        )


def namespaces(given: Given) -> Iterator[str]:
    """Three namespaces. Two get a Pod Security level that Kubernetes' own pods do not meet."""
    named = [given[name] for name in NAMESPACES]
    for name, value in zip(NAMESPACES, named, strict=True):
        example = f"(example: gpu-scheduler-{name.partition('_')[0]})"
        if not fits(value, LABEL):
            yield f"{name} is '{value}': it must be {LABEL_RULE} {example}."
        elif name != "check_namespace" and fits(value, "default|kube-.*"):
            yield f"{name} is '{value}', a namespace of Kubernetes' own: choose another {example}."
        elif named.count(value) > 1:
            yield f"{name} is '{value}', and so is another: each must be of its own {example}."


def paths(given: Given) -> Iterator[str]:
    """Files and folders, without a colon: it would separate them in PATH and KUBECONFIG."""
    for name in PATHS:
        if not fits(given[name], r"/[^:\n]*"):
            example = f"/srv/gpu-scheduler/{name}"
            yield f"{name} is '{given[name]}': it must be one absolute path without a colon (example: {example})."


def engine_dir(given: Given) -> Iterator[str]:
    """The folder of an engine of our own, with its socket."""
    folder = given["engine_dir"]
    if folder != "" and not (fits(folder, r"/[^:\n]*") and len(folder) <= LONGEST_ENGINE):
        yield (
            f"engine_dir is '{folder}': it must be an absolute path of at most {LONGEST_ENGINE} characters without a"
            " colon, as the engine's socket stands in it, or empty for the host's engine (example: /srv/engine)."
        )


def api_port(given: Given) -> Iterator[str]:
    """The port of kind's API server; a number, or its digits as the command line gives them."""
    port = str(given["kind_cluster_api_port"])
    if not fits(port, "[0-9]{1,5}") or int(port) > HIGHEST_PORT:
        rule = f"it must be a port from 1 to {HIGHEST_PORT}, or 0 for any free one (example: 6443)"
        yield f"kind_cluster_api_port is '{port}': {rule}."


def image_registry(given: Given) -> Iterator[str]:
    """The prefix of our images' names."""
    registry = given["image_registry"]
    if registry != "" and not fits(registry, REGISTRY):
        yield (
            f"image_registry is '{registry}': it must be HOST[:PORT][/PATH] in lower case, without a scheme and"
            " without a slash at its end, or empty (example: registry.example.com/team)."
        )


def images(given: Given) -> Iterator[str]:
    """Our images, where the user gives them; the inventory computes them otherwise."""
    if any(image_registry(given)):
        # Their names begin with it.
        return
    for name in ("scheduler_image", "check_image"):
        if not fits(given[name], IMAGE):
            yield (
                f"{name} is '{given[name]}': it must be an image with a tag or a digest of 64 hexadecimal digits"
                f" (example: registry.example.com/team/gpu-scheduler@sha256:{'0' * 64})."
            )


def kubectl_program(given: Given) -> Iterator[str]:
    """The program that reads the cluster for proof and reports."""
    program = given["kubectl_program"]
    if not fits(program, r"/[^\n]+|[^/\s]+"):
        yield (
            f"kubectl_program is '{program}': it must be the name of a program on the PATH or an absolute path"
            " (example: /usr/local/bin/kubectl)."
        )


def scheduler_users(given: Given) -> Iterator[str]:
    """Other users that may write assignments; their names become part of a policy's expression."""
    users = given["scheduler_users"]
    example = "(example: [system:serviceaccount:ml:gpu-scheduler])"
    if not isinstance(users, list):
        yield f"scheduler_users is '{users}': it must be a list of user names {example}."
        return
    for user in users:
        if not fits(user, "[ -~]+"):
            yield f"scheduler_users has '{user}': a user's name must be text of printable ASCII {example}."


def _parser() -> ModuleType:
    """Return the scheduler's own parser of maps."""
    if str(PAYLOAD) not in sys.path:
        sys.path.append(str(PAYLOAD))
    from gpu_scheduler.core.pods import placement_map  # noqa: PLC0415 - found just now

    return placement_map


def gpu_scheduling_map(given: Given) -> Iterator[str]:
    """The map of the check pods."""
    parser = _parser()
    text = given["gpu_scheduling_map"]
    if not isinstance(text, str):
        yield f"gpu_scheduling_map is '{text}': it must be text, a line for each replica (example: 0=node1:0,1)."
        return
    try:
        slots = parser.parse_placement_map(text).slots
    except parser.MapError as error:
        yield f"gpu_scheduling_map: {error}"
        return
    indices = [slot.index for slot in slots]
    if indices != list(range(len(indices))):
        yield (
            f"gpu_scheduling_map has the indices {', '.join(map(str, indices))}: they must begin with 0 and leave none"
            " out, because the check service has a replica for each (example: 0=node1:0,1)."
        )
    workers = given["worker_nodes"] if isinstance(given["worker_nodes"], list) else []
    unknown = sorted({slot.node for slot in slots} - {*map(str, workers)})
    if unknown and workers and given["cluster_provider"] == "kind":
        yield (
            f"gpu_scheduling_map names {', '.join(unknown)}, and worker_nodes is {', '.join(map(str, workers))}:"
            " let both name the same nodes (example: 0=node1:0,1 and [node1])."
        )


def simulated_inventory(given: Given) -> Iterator[str]:
    """The declared GPUs: node to groups."""
    inventory = given["monitor_simulated_inventory"]
    if not isinstance(inventory, dict):
        yield f"monitor_simulated_inventory is '{inventory}': it must be nodes with groups of GPUs {GROUP}."
        return
    if not inventory and given["monitor_source"] == "simulated":
        yield f"monitor_simulated_inventory is empty, and monitor_source is simulated: declare some GPUs {GROUP}."
    for node, groups in inventory.items():
        for group in groups if isinstance(groups, list) else [groups]:
            problem = _group_problem(group)
            if problem or not isinstance(groups, list):
                yield f"monitor_simulated_inventory has {node}: {groups}: {problem or 'groups are a list'} {GROUP}."
                break


def declared_gpus(given: Given) -> Iterator[str]:
    """The map and the declared GPUs together; other functions report problems of either alone."""
    faults = [*gpu_scheduling_map(given), *simulated_inventory(given)]
    if faults or given["monitor_source"] != "simulated":
        return
    inventory = given["monitor_simulated_inventory"]
    for slot in _parser().parse_placement_map(given["gpu_scheduling_map"]).slots:
        # The number of GPUs of an undeclared node is unknown.
        declared = sum(group["count"] for group in inventory.get(slot.node, [{"count": MOST_GPUS}]))
        strange = [device for device in slot.devices if device.isdigit() and int(device) >= declared]
        if strange:
            yield (
                f"gpu_scheduling_map names GPU {', '.join(strange)} of {slot.node}, and monitor_simulated_inventory"
                f" declares {declared} there: let both fit, or set monitor_source to none {GROUP}."
            )


def _group_problem(group: object) -> str:
    """Return the rule that a group of GPUs breaks; empty if it breaks none."""
    if not isinstance(group, dict) or not {"count", "model", "memoryTotalMiB"} <= set(group):
        return "a group needs count, model and memoryTotalMiB"
    if not _number(group["count"], MOST_GPUS) or not _number(group["memoryTotalMiB"], 2**40):
        return f"count must be a number up to {MOST_GPUS}, and memoryTotalMiB one of MiB"
    if not fits(group["model"], "[ -~]{1,63}"):
        return "model must be text of 1 to 63 printable ASCII characters"
    strange = set(group) - {"count", "model", "memoryTotalMiB", *OVERRIDES}
    return f"a group has no {', '.join(sorted(map(str, strange)))}" if strange else ""


def _number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


CHECKS: Final[tuple[Callable[[Given], Iterator[str]], ...]] = (
    cert_mode,
    isolation,
    cluster_name,
    kube_context,
    worker_nodes,
    namespaces,
    paths,
    engine_dir,
    api_port,
    image_registry,
    images,
    kubectl_program,
    scheduler_users,
    gpu_scheduling_map,
    simulated_inventory,
    declared_gpus,
)


def preflight_problems(given: Given) -> list[str]:
    """Return all problems of these values: variable → value."""
    return [sentence for check in CHECKS for sentence in check(given)]


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return name → filter."""
        return {"preflight_problems": preflight_problems}
