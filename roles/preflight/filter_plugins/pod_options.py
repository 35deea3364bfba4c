"""Checks what the inventory asks of our pods: options, tolerations and ports, with a sentence for each problem.

Pure functions of the values as the user gave them. Only what the API server would refuse late, or accept and never
schedule, is checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Given = dict[str, Any]

OPTIONS: Final = (
    "image_pull_policy",
    "image_pull_secrets",
    "node_selector",
    "tolerations",
    "affinity",
    "priority_class",
    "resources",
)
ROLES: Final = ("scheduler", "webhook", "controller", "monitor", "driver", "certificates")
PORTS: Final = ("webhook_port", "webhook_http_port")
LOWEST_PORT: Final = 1024
HIGHEST_PORT: Final = 65535
KUBELET_PORT: Final = "10250"

SUBDOMAIN: Final = r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
SUBDOMAIN_RULE: Final = "must be lower-case letters, digits, hyphens and dots, a letter or digit at both ends"
LABEL_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
QUANTITY: Final = r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"
PULL_POLICIES: Final = ("IfNotPresent", "Always", "Never")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
AFFINITIES: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
TOLERATION: Final = "(example: [{key: nvidia.com/gpu, operator: Exists}])"


def fits(value: object, pattern: str) -> bool:
    """Return whether the value is text that matches the whole pattern."""
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def pod_options(given: Given) -> Iterator[str]:
    """The options that all our workloads share."""
    options = given["pod_options"]
    if not isinstance(options, dict):
        yield (
            f"pod_options is '{options}': it must be a dictionary with some of the keys {', '.join(OPTIONS)}"
            " (example: {image_pull_secrets: [registry]})."
        )
        return
    for key in sorted(map(str, set(options) - {*OPTIONS})):
        yield f"pod_options has {key}: its keys are {', '.join(OPTIONS)} (example: {{image_pull_secrets: [registry]}})."
    policy = options.get("image_pull_policy") or "IfNotPresent"
    if policy not in PULL_POLICIES:
        yield f"pod_options.image_pull_policy is '{policy}': it must be {', '.join(PULL_POLICIES)} (example: Always)."
    yield from _pull_secrets(options.get("image_pull_secrets") or [])
    yield from _node_selector(options.get("node_selector") or {})
    yield from _tolerations("pod_options.tolerations", options.get("tolerations") or [])
    yield from _affinity(options.get("affinity") or {})
    yield from _resources(options.get("resources") or {})
    priority = options.get("priority_class") or ""
    if priority != "" and not fits(priority, SUBDOMAIN):
        yield (
            f"pod_options.priority_class is '{priority}': it must be the name of a PriorityClass, or empty for each"
            " role's own (example: system-cluster-critical)."
        )


def _pull_secrets(names: object) -> Iterator[str]:
    example = "(example: [registry])"
    if not isinstance(names, list):
        yield f"pod_options.image_pull_secrets is '{names}': it must be a list of names of Secrets {example}."
        return
    for name in names:
        if not fits(name, SUBDOMAIN):
            yield f"pod_options.image_pull_secrets has '{name}': a Secret's name {SUBDOMAIN_RULE} {example}."


def _node_selector(selector: object) -> Iterator[str]:
    example = '(example: {kubernetes.io/arch: amd64, gpu: "true"})'
    if not isinstance(selector, dict):
        yield f"pod_options.node_selector is '{selector}': it must be labels with their values {example}."
        return
    for label, value in selector.items():
        if not fits(value, LABEL_VALUE):
            yield f"pod_options.node_selector has {label}: {value}: a label's value must be quoted text {example}."
        elif label == "kubernetes.io/os" and value != "linux":
            yield f"pod_options.node_selector has {label}: {value}: our images are for linux {example}."


def _tolerations(variable: str, tolerations: object) -> Iterator[str]:
    if not isinstance(tolerations, list):
        yield f"{variable} is '{tolerations}': it must be a list of tolerations {TOLERATION}."
        return
    for toleration in tolerations:
        problem = _toleration_problem(toleration)
        if problem:
            yield f"{variable} has '{toleration}': {problem} {TOLERATION}."


def _toleration_problem(toleration: object) -> str:
    """Return the rule that a toleration breaks; empty if it breaks none."""
    known = ("key", "operator", "value", "effect", "tolerationSeconds")
    if not isinstance(toleration, dict) or not toleration or set(toleration) - {*known}:
        return f"a toleration has some of the keys {', '.join(known)}"
    operator = toleration.get("operator", "Equal")
    if operator not in ("Exists", "Equal"):
        return "operator must be Exists or Equal"
    if operator == "Exists" and toleration.get("value"):
        return "operator Exists has no value"
    if operator == "Equal" and not toleration.get("key"):
        return "without a key operator must be Exists"
    if toleration.get("effect", "") not in ("", *EFFECTS):
        return f"effect must be one of {', '.join(EFFECTS)}"
    return ""


def _affinity(affinity: object) -> Iterator[str]:
    if not isinstance(affinity, dict) or set(affinity) - {*AFFINITIES}:
        yield (
            f"pod_options.affinity is '{affinity}': it must be a pod's affinity, with some of the keys"
            f" {', '.join(AFFINITIES)} (kubectl explain pod.spec.affinity)."
        )


def _resources(resources: object) -> Iterator[str]:
    example = "(example: {scheduler: {limits: {memory: 512Mi}}})"
    if not isinstance(resources, dict):
        yield f"pod_options.resources is '{resources}': it must be roles with their resources {example}."
        return
    for role, asked in resources.items():
        if role not in ROLES:
            yield f"pod_options.resources has {role}: the roles with pods are {', '.join(ROLES)} {example}."
        elif not _has_amounts(asked):
            yield (
                f"pod_options.resources has {role}: {asked}: a role has requests and limits, each of them amounts of"
                f" cpu, memory or ephemeral-storage {example}."
            )


def _has_amounts(asked: object) -> bool:
    if not isinstance(asked, dict) or set(asked) - {"requests", "limits"}:
        return False
    return all(
        isinstance(amounts, dict)
        and set(amounts) <= {"cpu", "memory", "ephemeral-storage"}
        and all(fits(str(amount), QUANTITY) for amount in amounts.values())
        for amounts in asked.values()
    )


def check_tolerations(given: Given) -> Iterator[str]:
    """The taints that check pods tolerate."""
    yield from _tolerations("check_tolerations", given["check_tolerations"])


def webhook_ports(given: Given) -> Iterator[str]:
    """The ports of the webhook's container; numbers, or their digits as the command line gives them."""
    example = "(example: 8443)"
    wrong = False
    for name in PORTS:
        port = str(given[name])
        if not fits(port, "[0-9]{4,5}") or not LOWEST_PORT <= int(port) <= HIGHEST_PORT:
            wrong = True
            yield (
                f"{name} is '{port}': it must be a port from {LOWEST_PORT} to {HIGHEST_PORT}, because the process is"
                f" not root {example}."
            )
    host_network = str(given["webhook_host_network"]).lower() == "true"
    if not wrong and int(given["webhook_port"]) == int(given["webhook_http_port"]):
        yield f"webhook_port is '{given['webhook_port']}', and so is webhook_http_port: let them differ {example}."
    for name in PORTS if host_network else ():
        if str(given[name]) == KUBELET_PORT:
            yield (
                f"{name} is '{KUBELET_PORT}', and webhook_host_network is true: that port of every node is the"
                " kubelet's, so choose another (example: 10260)."
            )


CHECKS: Final[tuple[Callable[[Given], Iterator[str]], ...]] = (pod_options, check_tolerations, webhook_ports)


def pod_option_problems(given: Given) -> list[str]:
    """Return all problems of these values: variable → value."""
    return [sentence for check in CHECKS for sentence in check(given)]


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return name → filter."""
        return {"pod_option_problems": pod_option_problems}
