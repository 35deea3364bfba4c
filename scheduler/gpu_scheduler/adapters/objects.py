"""The fields of Kubernetes' objects that we read, as msgspec Structs; whatever else an object carries is never built.

Every field that the API server may send as null or leave out says so here, so nobody further in has to ask again.
Parts that many pods have in common stay Raw: translation reads each distinct text once, and one that cannot be read
costs that part alone.
"""

from __future__ import annotations

import msgspec

from gpu_scheduler import names


class _Read(msgspec.Struct, rename="camel", gc=False):
    """Base of everything that is only read."""


class Identity(_Read):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Identified(_Read):
    """Which object it is, and which version: all that is read of one that cannot be read, or need not be."""

    metadata: Identity


class OwnerReference(_Read):
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(_Read):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generate_name: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodLabels(_Read):
    """Those that a decision reads; a pod may have thousands of others."""

    pod_index: str | None = msgspec.field(default=None, name=names.POD_INDEX)
    completion_index: str | None = msgspec.field(default=None, name=names.COMPLETION_INDEX)
    pod_template_hash: str | None = msgspec.field(default=None, name=names.POD_TEMPLATE_HASH)
    replica_type: str | None = msgspec.field(default=None, name=names.REPLICA_TYPE)


class PodMeta(_Read):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generate_name: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: PodLabels | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = msgspec.Raw()


class FieldRef(_Read):
    field_path: str | None = None


class EnvSource(_Read):
    field_ref: FieldRef | None = None


class Env(_Read):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class Consumer(_Read):
    """What a container takes of its node."""

    resources: msgspec.Raw = msgspec.Raw()
    ports: msgspec.Raw = msgspec.Raw()
    restart_policy: str | None = None


class Container(Consumer, kw_only=True):
    name: str
    env: msgspec.Raw = msgspec.Raw()


class PodSpec(_Read):
    scheduler_name: str | None = None
    node_name: str | None = None
    scheduling_gates: msgspec.Raw = msgspec.Raw()
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()
    volumes: msgspec.Raw = msgspec.Raw()
    node_selector: msgspec.Raw = msgspec.Raw()
    affinity: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    resource_claims: msgspec.Raw = msgspec.Raw()


class SelectorRequirement(_Read):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SelectorTerm(_Read):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Read):
    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(_Read):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinity(_Read):
    required: list[msgspec.Raw] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(_Read):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Read):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class TopologySpreadConstraint(_Read):
    when_unsatisfiable: str | None = None


class Condition(_Read):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(_Read):
    phase: str | None = None
    reason: str | None = None
    container_statuses: msgspec.Raw = msgspec.Raw()
    conditions: list[Condition] | None = None


class Pod(_Read):
    metadata: PodMeta
    spec: PodSpec
    status: PodStatus | None = None


class ResidentSpec(_Read):
    node_name: str | None = None
    containers: list[Consumer] | None = None
    init_containers: list[Consumer] | None = None
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()


class Resident(_Read):
    """A pod of another scheduler: of the thousands that there may be, only what they take is read."""

    metadata: Identity
    spec: ResidentSpec


class Taint(_Read):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(_Read):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(_Read):
    conditions: list[Condition] | None = None
    allocatable: dict[str, object] | None = None
    capacity: dict[str, object] | None = None


class Node(_Read):
    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ListMeta(_Read):
    resource_version: str | None = None
    # `continue` is a keyword in Python.
    continue_: str | None = msgspec.field(name="continue", default=None)


class ObjectList(_Read):
    """One page of a list; the items stay undecoded so that one odd object cannot cost the whole page."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(_Read):
    type: str
    object: msgspec.Raw


class Version(_Read):
    resource_version: str | None = None


class Bookmark(_Read):
    """Of every event its version is read, whatever its object is."""

    metadata: Version


class Status(_Read):
    """What the API server answers instead of an object."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str | None = None


class Lease(msgspec.Struct, rename="camel"):
    metadata: LeaseMeta
    spec: LeaseSpec


class AdmissionKind(_Read):
    group: str = ""
    kind: str = ""


class AdmissionRequest(_Read):
    uid: str
    kind: AdmissionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    # msgspec can't tell Raw from null: an absent object is empty, a null one is the word.
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class AdmissionReview(_Read):
    request: AdmissionRequest
