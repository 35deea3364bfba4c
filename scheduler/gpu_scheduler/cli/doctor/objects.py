"""The fields that `doctor` reads of Kubernetes' objects, and their translation into facts."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from gpu_scheduler.cli.doctor.facts import Workload
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ConditionObject, ReadStruct


class Meta(ReadStruct):
    """The name of an object, and who applied it."""

    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Port(ReadStruct):
    container_port: int
    name: str | None = None


class _Variable(ReadStruct):
    name: str


class _Container(ReadStruct):
    image: str | None = None
    ports: list[_Port] | None = None
    env: list[_Variable] | None = None


class _PodSpec(ReadStruct):
    containers: list[_Container]


class _Template(ReadStruct):
    spec: _PodSpec


class _WorkloadSpec(ReadStruct):
    template: _Template
    replicas: int | None = None


class _WorkloadStatus(ReadStruct):
    available_replicas: int | None = None
    desired_number_scheduled: int | None = None
    number_available: int | None = None


class WorkloadObject(ReadStruct):
    """A Deployment or a DaemonSet."""

    metadata: Meta
    spec: _WorkloadSpec
    status: _WorkloadStatus | None = None

    @property
    def image(self) -> str | None:
        """The image of its first container."""
        return next((each.image for each in self.spec.template.spec.containers), None)

    def deployment(self) -> Workload:
        """Return a Deployment's numbers. Without `replicas` it wants one."""
        wanted, status = self.spec.replicas, self.status
        return Workload(1 if wanted is None else wanted, (status and status.available_replicas) or 0)

    def daemon_set(self) -> Workload:
        """Return a DaemonSet's numbers."""
        status = self.status or _WorkloadStatus()
        return Workload(status.desired_number_scheduled or 0, status.number_available or 0)


class _PodStatus(ReadStruct):
    phase: str | None = None


class OwnPodObject(ReadStruct):
    """A pod of ours, or the answer to the dry run of creating one."""

    metadata: Meta
    spec: _PodSpec
    status: _PodStatus | None = None

    @property
    def component(self) -> str:
        """The component of gpu-scheduler that runs in it; empty if it is another pod."""
        labels = self.metadata.labels or {}
        ours = labels.get("app.kubernetes.io/name") == "gpu-scheduler"
        return labels.get("app.kubernetes.io/component", "") if ours else ""

    @property
    def runs(self) -> bool:
        """Whether its containers run, and it is not being deleted."""
        running = self.status is not None and self.status.phase == "Running"
        return running and self.metadata.deletion_timestamp is None

    @property
    def http_port(self) -> int | None:
        """Its port `http`, with probes and metrics."""
        ports = (port for container in self.spec.containers for port in container.ports or ())
        return next((port.container_port for port in ports if port.name == "http"), None)

    def sets(self, variable: str) -> bool:
        """Whether each container has this variable."""
        return all(any(each.name == variable for each in container.env or ()) for container in self.spec.containers)


class _PolicySpec(ReadStruct):
    failure_policy: str | None = None
    policy_name: str | None = None
    validation_actions: list[str] | None = None


class PolicyObject(ReadStruct):
    """An admission policy or its binding."""

    metadata: Meta
    spec: _PolicySpec


class _KindStatus(ReadStruct):
    conditions: list[ConditionObject] | None = None


class KindObject(ReadStruct):
    """A CustomResourceDefinition."""

    status: _KindStatus | None = None

    @property
    def established(self) -> bool:
        """Whether the API server serves it."""
        conditions = (self.status and self.status.conditions) or ()
        return any(each.type == "Established" and each.status == "True" for each in conditions)


_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\+?$")]


class VersionObject(ReadStruct):
    """The API server's version. Some add a plus sign to the minor one."""

    major: _Number
    minor: _Number

    def numbers(self) -> tuple[int, int]:
        """Return (major, minor)."""
        return int(self.major), int(self.minor.rstrip("+"))


class _Review(ReadStruct):
    allowed: bool = False


class ReviewObject(ReadStruct):
    """A SubjectAccessReview with its answer."""

    status: _Review


_workloads: Final = msgspec.json.Decoder(WorkloadObject)
_pods: Final = msgspec.json.Decoder(OwnPodObject)
_policies: Final = msgspec.json.Decoder(PolicyObject)


def read_workload(raw: bytes | msgspec.Raw) -> WorkloadObject:
    """Decode a Deployment or a DaemonSet."""
    return decode_object(_workloads, raw)


def read_own_pod(raw: bytes | msgspec.Raw) -> OwnPodObject:
    """Decode a pod."""
    return decode_object(_pods, raw)


def read_policy(raw: bytes | msgspec.Raw) -> PolicyObject:
    """Decode an admission policy or its binding."""
    return decode_object(_policies, raw)


read_kind: Final = msgspec.json.Decoder(KindObject).decode
read_version: Final = msgspec.json.Decoder(VersionObject).decode
read_review: Final = msgspec.json.Decoder(ReviewObject).decode
