"""What NetworkPolicies allow, by the rules of kubernetes.io/docs/concepts/services-networking/network-policies.

An `ipBlock` is compared with the address of every peer, a pod's too, as the most permissive network plugins do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from tests.contracts.rendering import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Manifest = dict[str, Any]

NAME: Final = "kubernetes.io/metadata.name"
"""The API server gives each namespace this label, with its name."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a connection's receiver."""

    number: int
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True)
class Peer:
    """One end of a connection: a pod, or anything else that has an address."""

    address: str
    namespace: str = ""
    """Empty for anything but a pod."""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """The named ports of a pod's containers."""


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels; an empty one selects all."""
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        _meets(expression, labels) for expression in selector.get("matchExpressions", [])
    )


def _meets(expression: Manifest, labels: Mapping[str, str]) -> bool:
    # Our policies have no other.
    assert expression["operator"] == "In", expression
    return labels.get(expression["key"]) in expression["values"]


def isolating(policies: Iterable[Manifest], pod: Peer, direction: str) -> list[Manifest]:
    """Return the policies that isolate the pod for Ingress or Egress; without one everything is allowed."""
    return [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and selects(policy["spec"]["podSelector"], pod.labels)
        and direction in policy["spec"]["policyTypes"]
    ]


def connects(policies: Iterable[Manifest], source: Peer, target: Peer, port: Port) -> bool:
    """Return whether a connection is allowed: by the policies of its source, and by those of its target."""
    policies = list(policies)
    return all(
        _allowed(isolating(policies, pod, direction), direction, pod.namespace, other, _Receiver(target, port))
        for pod, other, direction in ((source, target, "Egress"), (target, source, "Ingress"))
        if pod.namespace
    )


@dataclass(frozen=True, slots=True)
class _Receiver:
    """The end of the connection whose ports count."""

    peer: Peer
    port: Port

    def receives(self, entry: Manifest) -> bool:
        """Whether an entry of `ports` names the port: by number or name, or as any of its protocol."""
        if entry.get("protocol", "TCP") != self.port.protocol:
            return False
        assert "endPort" not in entry, entry
        port = entry.get("port", self.port.number)
        return bool(self.port.number == (self.peer.ports.get(port) if isinstance(port, str) else port))


def _allowed(policies: list[Manifest], direction: str, namespace: str, other: Peer, receiver: _Receiver) -> bool:
    """Return whether one rule of the policies allows it; without policies everything is."""
    key = "from" if direction == "Ingress" else "to"
    rules = [rule for policy in policies for rule in policy["spec"].get(direction.lower()) or []]
    return not policies or any(
        (not rule.get(key) or any(_is_peer(entry, namespace, other) for entry in rule[key]))
        and (not rule.get("ports") or any(receiver.receives(entry) for entry in rule["ports"]))
        for rule in rules
    )


def _is_peer(entry: Manifest, namespace: str, other: Peer) -> bool:
    if "ipBlock" in entry:
        address, block = ip_address(other.address), entry["ipBlock"]
        return address in ip_network(block["cidr"]) and not any(
            address in ip_network(each) for each in block.get("except", [])
        )
    if not other.namespace:
        return False
    within = (
        selects(entry["namespaceSelector"], {NAME: other.namespace})
        if "namespaceSelector" in entry
        else other.namespace == namespace
    )
    return within and selects(entry.get("podSelector", {}), other.labels)


def pods_of(manifests: Iterable[Manifest]) -> dict[str, Peer]:
    """Return a pod of each workload, by the workload's kind and name. All have one address of the pod network."""
    found = {}
    for one in of_kind(manifests, "Pod", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob"):
        template = one["spec"]["jobTemplate"] if one["kind"] == "CronJob" else one
        pod = one if one["kind"] == "Pod" else template["spec"]["template"]
        containers = pod["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for container in containers for each in container.get("ports", [])}
        labels = pod["metadata"].get("labels", {})
        found[f"{one['kind']} {one['metadata']['name']}"] = Peer(
            "10.244.1.7", one["metadata"]["namespace"], labels, ports
        )
    return found


def policies_of(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the NetworkPolicies among these objects."""
    return of_kind(manifests, "NetworkPolicy")
