"""Kubeflow as far as it matters here: its kinds of job, the webhook's registration for them, and its operators' pods.

Pods are made as training-operator v1.8.1 makes them (pkg/controller.v1/common/pod.go createNewPod, with
pkg/controller.v1/control/pod_control.go GetPodFromTemplate) and mpi-operator v0.6.0
(pkg/controller/mpi_job_controller.go newWorker): the template's annotations, labels and specification, the operator's
labels, and the job as controller.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.served import Served
    from tests.kube_client import KubeClient
    from tests.objects import Object

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS: Final = {"PyTorchJob": ("v1",), "TFJob": ("v1",), "MPIJob": ("v1", "v2beta1")}
FIELDS: Final = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
_NAME: Final = "gpu-scheduler-webhook-jobs"


class Kubeflow:
    """The definitions of its kinds and our registration for them, as the role ships it."""

    def __init__(self, kube: KubeClient, served: Served) -> None:
        """Make both; the registration leads to the webhook's process instead of a Service."""
        self._kube = kube
        for kind, versions in KINDS.items():
            kube.create(DEFINITIONS, definition(kind, versions))
        for kind, versions in KINDS.items():
            for version in versions:
                eventually(f"{kind} {version} is served", partial(self._served, kind, version))
        webhooks = (one for _, body in served.registrations() for one in body["webhooks"])
        webhook = next(one for one in webhooks if one["name"].startswith("mutate-job."))
        kube.create(CONFIGURATIONS, {"metadata": {"name": _NAME}, "webhooks": [webhook]})
        eventually("the API server asks about jobs", self._asked)

    def _served(self, kind: str, version: str) -> bool:
        return self._kube.call("GET", collection("default", kind, version))[0] == 200

    def _asked(self) -> bool:
        probe = job("PyTorchJob", "probe", {"gpu-scheduling-map": "nonsense"})
        return self._kube.call("POST", f"{collection('default', 'PyTorchJob')}?dryRun=All", probe)[0] == 400

    def remove(self) -> None:
        """Take all of it away."""
        self._kube.delete(f"{CONFIGURATIONS}/{_NAME}")
        for kind in KINDS:
            self._kube.delete(f"{DEFINITIONS}/{kind.lower()}s.kubeflow.org")


def definition(kind: str, versions: tuple[str, ...]) -> Object:
    """A kind of job whose specification may be anything; the last version is stored."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    plural = f"{kind.lower()}s"
    return {
        "metadata": {"name": f"{plural}.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "schema": schema,
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


def collection(namespace: str, kind: str, version: str = "v1") -> str:
    """Where jobs of a kind are."""
    return f"/apis/kubeflow.org/{version}/namespaces/{namespace}/{kind.lower()}s"


def template(**spec: object) -> Object:
    """A template as an author writes it: one container."""
    return {"spec": {"containers": [{"name": "main", "image": "registry.invalid/none"}], **spec}}


def job(
    kind: str, name: str, annotations: dict[str, str] | None, *, version: str = "v1", **types: Object | None
) -> Object:
    """A job with these templates by type; one of type Worker where none is given."""
    specs = {each: {"replicas": 1, "template": one} for each, one in (types or {"Worker": template()}).items()}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {FIELDS[kind]: specs},
    }


def templates(stored: Object) -> dict[str, Object]:
    """The templates of a job by type."""
    specs: dict[str, Object] = stored["spec"][FIELDS[stored["kind"]]]
    return {each: one["template"] for each, one in specs.items()}


def replica(stored: Object, type_: str, index: int) -> Object:
    """A pod as the job's operator makes it of its template."""
    made = copy.deepcopy(templates(stored)[type_])
    name, role = stored["metadata"]["name"], type_.lower()
    labels = {
        "training.kubeflow.org/operator-name": f"{stored['kind'].lower()}-controller",
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-index": str(index),
    }
    if stored["apiVersion"] == "kubeflow.org/v2beta1":
        labels.update({"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": role})
    else:
        labels["training.kubeflow.org/replica-type"] = role
        if role == "master":
            labels["training.kubeflow.org/job-role"] = role
    given = made.get("metadata", {})
    owner = {key: stored[key] for key in ("apiVersion", "kind")}
    owner.update({key: stored["metadata"][key] for key in ("name", "uid")})
    metadata = {
        "name": f"{name}-{role}-{index}",
        "labels": {**given.get("labels", {}), **labels},
        "annotations": given.get("annotations", {}),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"metadata": metadata, "spec": made["spec"]}
