"""Translates Kubeflow's jobs to the values of `job_review`; pure.

A template that names another scheduler is not read further, so no fault in it can make the review fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ObjectMeta
from gpu_scheduler.webhook.job_review import Job, Replicas
from gpu_scheduler.webhook.pod_templates import read_text, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPLICAS: Final = {
    names.PYTORCH_JOB: "pytorchReplicaSpecs",
    names.MPI_JOB: "mpiReplicaSpecs",
    names.TF_JOB: "tfReplicaSpecs",
}
"""By kind of job, the field of `spec` that has its replicas by type."""

_ABSENT: Final = frozenset({b"", b"null"})


class _Metadata(msgspec.Struct, gc=False):
    metadata: ObjectMeta


class _Job(_Metadata):
    spec: dict[str, msgspec.Raw] | None = None


class _ReplicaSpec(msgspec.Struct, gc=False):
    template: msgspec.Raw = msgspec.Raw()


_metas = msgspec.json.Decoder(_Metadata)
_jobs = msgspec.json.Decoder(_Job)
_replica_specs = msgspec.json.Decoder(dict[str, _ReplicaSpec | None])


def read_job(raw: msgspec.Raw, kind: str, namespace: str, scheduler_name: str) -> Job | None:
    """Read the fields of a job that a review needs; None if there is no job. msgspec.ValidationError on a fault."""
    if bytes(raw) in _ABSENT:
        return None
    job = decode_object(_jobs, raw)
    meta, spec = job.metadata, job.spec or {}
    field = REPLICAS[kind]
    specs = spec.get(field, msgspec.Raw())
    return Job(
        kind=kind,
        name=meta.name or meta.generate_name or "",
        field=field,
        annotations=meta.annotations or {},
        replicas=tuple(_replicas(specs, namespace, scheduler_name)),
        launcher_works=bytes(spec.get("runLauncherAsWorker", b"")) == b"true",
    )


def read_annotations(raw: msgspec.Raw) -> Mapping[str, str] | None:
    """Read the annotations of the job before an update; None if there was none. Its old specification is not read."""
    return None if bytes(raw) in _ABSENT else decode_object(_metas, raw).metadata.annotations or {}


def _replicas(raw: msgspec.Raw, namespace: str, scheduler_name: str) -> Iterator[Replicas]:
    specs = {} if bytes(raw) in _ABSENT else decode_object(_replica_specs, raw)
    for name, spec in specs.items():
        if spec is None:
            continue
        chosen = scheduler_of(spec.template)
        if chosen is not None and (chosen or scheduler_name) == scheduler_name:
            yield Replicas(name, *read_text(spec.template, namespace))
