"""The fields of a pod that are decoded.

Parts that many pods have in common stay Raw: translation decodes each distinct text once, and a part that cannot be
decoded does not affect the others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.objects.meta import ConditionObject, Identity, ReadStruct


class OwnerReference(ReadStruct):
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    api_version: str = ""


class PodLabels(ReadStruct):
    """The labels that a decision reads. A pod may have thousands of others."""

    pod_index: str | None = msgspec.field(default=None, name=names.POD_INDEX)
    completion_index: str | None = msgspec.field(default=None, name=names.COMPLETION_INDEX)
    pod_template_hash: str | None = msgspec.field(default=None, name=names.POD_TEMPLATE_HASH)
    replica_type: str | None = msgspec.field(default=None, name=names.REPLICA_TYPE)


class PodMeta(ReadStruct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generate_name: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: PodLabels | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = msgspec.Raw()


class FieldRef(ReadStruct):
    field_path: str | None = None


class EnvSource(ReadStruct):
    field_ref: FieldRef | None = None


class Env(ReadStruct):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class Consumer(ReadStruct):
    """The parts of a container that say what it takes of its node: resources and ports."""

    resources: msgspec.Raw = msgspec.Raw()
    ports: msgspec.Raw = msgspec.Raw()
    restart_policy: str | None = None


class ContainerObject(Consumer, kw_only=True):
    name: str
    env: msgspec.Raw = msgspec.Raw()


class PodSpec(ReadStruct):
    scheduler_name: str | None = None
    node_name: str | None = None
    priority: int | None = None
    scheduling_gates: msgspec.Raw = msgspec.Raw()
    termination_grace_period_seconds: msgspec.Raw = msgspec.Raw()
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    ephemeral_containers: list[ContainerObject] | None = None
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()
    volumes: msgspec.Raw = msgspec.Raw()
    node_selector: msgspec.Raw = msgspec.Raw()
    affinity: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    resource_claims: msgspec.Raw = msgspec.Raw()


class SelectorRequirement(ReadStruct):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SelectorTerm(ReadStruct):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(ReadStruct):
    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(ReadStruct):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinity(ReadStruct):
    required: list[msgspec.Raw] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(ReadStruct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TolerationObject(ReadStruct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class TopologySpreadConstraint(ReadStruct):
    when_unsatisfiable: str | None = None


class PodStatus(ReadStruct):
    phase: str | None = None
    reason: str | None = None
    container_statuses: msgspec.Raw = msgspec.Raw()
    resource_claim_statuses: msgspec.Raw = msgspec.Raw()
    conditions: list[ConditionObject] | None = None


class PodObject(ReadStruct):
    metadata: PodMeta
    spec: PodSpec
    status: PodStatus | None = None


class ForeignPodSpec(ReadStruct):
    node_name: str | None = None
    containers: list[Consumer] | None = None
    init_containers: list[Consumer] | None = None
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()


class ForeignPodObject(ReadStruct):
    """A pod of another scheduler. There may be thousands, so only its resource request is decoded."""

    metadata: Identity
    spec: ForeignPodSpec


def _named(key: str) -> Any:
    """Return an optional field with this name in JSON."""
    return msgspec.field(name=key, default=msgspec.UNSET)


class Counted(ReadStruct):
    """The resources that nodes report by themselves. A container may name thousands of others."""

    cpu: object = msgspec.UNSET
    memory: object = msgspec.UNSET
    ephemeral_storage: object = _named("ephemeral-storage")
    gpu: object = _named(names.GPU_RESOURCE)


class LongRequirements(ReadStruct):
    """Requirements whose text is too long: only the resources of `Counted` are decoded."""

    requests: Counted | None = None
    limits: Counted | None = None


class ResourceRequirements(ReadStruct):
    """Requests and limits of a container or of a pod."""

    requests: dict[str, object] | None = None
    limits: dict[str, object] | None = None


class ContainerPort(ReadStruct):
    """A port of a container."""

    host_port: int | None = None
    protocol: str | None = None
    # The API spells it `hostIP`, and the base class would make it `hostIp`.
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


class PodResourceClaim(ReadStruct):
    """An entry of a pod's `spec.resourceClaims`."""

    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ResourceClaimStatus(ReadStruct):
    """The claim that kube-controller-manager made for an entry with a template."""

    name: str | None = None
    resource_claim_name: str | None = None


class UsedClaim(ReadStruct):
    """An entry of a container's `resources.claims`."""

    name: str | None = None
    request: str | None = None


class ClaimUser(ReadStruct):
    """The claims in a container's `resources`."""

    claims: msgspec.Raw = msgspec.Raw()


class ClaimSource(ReadStruct):
    """The PersistentVolumeClaim that a volume mounts."""

    claim_name: str | None = None


class EphemeralSource(ReadStruct):
    """Only its presence matters: the claim's name follows from the names of pod and volume."""


class PodVolumeObject(ReadStruct):
    """A volume of a pod."""

    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
