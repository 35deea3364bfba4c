"""The record of what a role applied, and how one knows that an object is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.kubectl import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    MANAGER,
    Cluster,
    ClusterError,
    Reference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Json = dict[str, Any]

KINDS: Final = (
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "CronJob",
    "Job",
    "StatefulSet",
    "Deployment",
    "DaemonSet",
    "Pod",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "AlertmanagerConfig",
    "PrometheusRule",
    "ServiceMonitor",
    "PodMonitor",
    "Service",
    "Certificate",
    "Issuer",
    "Lease",
    "ConfigMap",
    "Secret",
    "ResourceQuota",
    "DeviceClass",
    "RoleBinding",
    "ClusterRoleBinding",
    "Role",
    "ClusterRole",
    "FlowSchema",
    "ServiceAccount",
    "CustomResourceDefinition",
    "Namespace",
)
"""Every kind that a role applies, in the order of removal; of no other kind anything is deleted."""
PART_OF: Final = "app.kubernetes.io/part-of"
PRODUCT: Final = "gpu-scheduler"
LABELS: Final = {
    "app.kubernetes.io/name": PRODUCT,
    "app.kubernetes.io/component": "record",
    PART_OF: PRODUCT,
    "app.kubernetes.io/managed-by": "ansible",
}


def in_order(references: Iterable[Reference]) -> list[Reference]:
    """Return the references in the order of removal."""
    return sorted(references, key=lambda each: (KINDS.index(each.kind), each))


def managers_of(body: Json) -> set[str]:
    """Return the field managers of an object."""
    return {str(entry.get("manager", "")) for entry in body["metadata"].get("managedFields", [])}


def is_ours(body: Json) -> bool:
    """Whether the object carries our label or our field manager."""
    return body["metadata"].get("labels", {}).get(PART_OF) == PRODUCT or MANAGER in managers_of(body)


class Record:
    """The ConfigMap that lists what a role applied, a line for each object."""

    def __init__(self, cluster: Cluster, role: str, namespace: str) -> None:
        """Read it."""
        self._cluster = cluster
        self.reference = Reference("v1", "ConfigMap", namespace, f"gpu-scheduler-applied-{role.replace('_', '-')}")
        self._stored = cluster.get(self.reference.path)
        text = (self._stored or {}).get("data", {}).get("objects", "")
        self.objects = dict(self._entries(text))

    def _entries(self, text: str) -> Iterator[tuple[Reference, str]]:
        for line in text.splitlines():
            words = line.split()
            if len(words) != 4 or words[1] not in KINDS:  # noqa: PLR2004 - apiVersion, kind, name, uid
                raise ClusterError(
                    f"cannot read ConfigMap {self.reference.where}: the line {line[:100]!r} is not `apiVersion kind"
                    " namespace/name uid` (example: `v1 Service gpu-scheduler-system/gpu-scheduler 0b1f…`); "
                    "delete the ConfigMap, and the next run writes it anew"
                )
            namespace, _, name = words[2].rpartition("/")
            yield Reference(words[0], words[1], namespace, name), words[3]

    @staticmethod
    def text_of(objects: Mapping[Reference, str]) -> str:
        """Return the lines of the record."""
        return "".join(f"{each.api_version} {each.kind} {each.where} {objects[each]}\n" for each in in_order(objects))

    def write(self, objects: Mapping[Reference, str]) -> None:
        """Store these objects, or delete the record where there are none."""
        if not objects:
            self.delete()
            return
        metadata = {"name": self.reference.name, "namespace": self.reference.namespace, "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self._cluster.write({**body, "data": {"objects": self.text_of(objects)}})

    @property
    def exists(self) -> bool:
        """Whether it was there when it was read."""
        return self._stored is not None

    def delete(self) -> None:
        """Delete it."""
        if self._stored:
            self._cluster.delete(self.reference, self._stored["metadata"]["uid"])
