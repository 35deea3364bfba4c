"""Kubeflow in tests: its job kinds, the webhook's registration for them, and the pods of its operators.

Pods are created as training-operator v1.8.1 makes them (pkg/controller.v1/common/pod.go createNewPod, with
pkg/controller.v1/control/pod_control.go GetPodFromTemplate) and mpi-operator v0.6.0
(pkg/controller/mpi_job_controller.go newWorker) create them: with the template's annotations, labels and spec, the
operator's labels, and the job as controller.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.kube_client import KubeClient
    from tests.objects import Object

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS: Final = {"PyTorchJob": ("v1",), "TFJob": ("v1",), "MPIJob": ("v1", "v2beta1")}
FIELDS: Final = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
_NAME: Final = "gpu-scheduler-webhook-jobs"


class Kubeflow:
    """The CRDs of Kubeflow's job kinds and the webhook's registration for them, from our role."""

    def __init__(self, kube: KubeClient, registered: RegisteredWebhook) -> None:
        """Create both. The registration points to the webhook's process instead of a Service."""
        self._kube = kube
        for kind, versions in KINDS.items():
            kube.create(DEFINITIONS, definition(kind, versions))
        for kind, versions in KINDS.items():
            for version in versions:
                eventually(f"{kind} {version} is served", partial(self._served, kind, version))
        webhooks = (one for _, body in registered.registrations() for one in body["webhooks"])
        webhook = next(one for one in webhooks if one["name"].startswith("mutate-job."))
        kube.create(CONFIGURATIONS, {"metadata": {"name": _NAME}, "webhooks": [webhook]})
        eventually("the API server asks about jobs", self._asked)

    def _served(self, kind: str, version: str) -> bool:
        return self._kube.call("GET", collection("default", kind, version))[0] == 200

    def _asked(self) -> bool:
        probe = job("PyTorchJob", "probe", {"gpu-scheduling-map": "nonsense"})
        return self._kube.call("POST", f"{collection('default', 'PyTorchJob')}?dryRun=All", probe)[0] == 400

    def remove(self) -> None:
        """Delete CRDs and registration."""
        self._kube.delete(f"{CONFIGURATIONS}/{_NAME}")
        for kind in KINDS:
            self._kube.delete(f"{DEFINITIONS}/{kind.lower()}s.kubeflow.org")


def definition(kind: str, versions: tuple[str, ...]) -> Object:
    """Return the CRD of a job kind without a schema for its spec. The last version is the stored one."""
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
    """Return the API path of the jobs of a kind."""
    return f"/apis/kubeflow.org/{version}/namespaces/{namespace}/{kind.lower()}s"


def template(**spec: object) -> Object:
    """Return a pod template with one container, as a user writes it."""
    return {"spec": {"containers": [{"name": "main", "image": "registry.invalid/none"}], **spec}}


def job(
    kind: str, name: str, annotations: dict[str, str] | None, *, version: str = "v1", **types: Object | None
) -> Object:
    """Return a job with these templates by replica type; without any, with one of type Worker."""
    specs = {each: {"replicas": 1, "template": one} for each, one in (types or {"Worker": template()}).items()}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {FIELDS[kind]: specs},
    }


def templates(stored: Object) -> dict[str, Object]:
    """Return the templates of a job by replica type."""
    specs: dict[str, Object] = stored["spec"][FIELDS[stored["kind"]]]
    return {each: one["template"] for each, one in specs.items()}


def replica(stored: Object, type_: str, index: int) -> Object:
    """Return the pod that the job's operator creates from the template of this replica type."""
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
