"""Controllers of pods with a map, as users write them, and the webhook's registration that warns about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.objects import MAP
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.kube_client import KubeClient
    from tests.objects import Object

REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
APPS: Final = ("StatefulSet", "Deployment", "ReplicaSet", "DaemonSet")
KINDS: Final = (*APPS, "Job", "CronJob")
THREE: Final = "0=node1:0\n1=node1:1\n2=node1:2\n"
_NAME: Final = "gpu-scheduler-webhook-warnings"


class Warned:
    """The registration of our role that warns, which calls the webhook's process instead of a Service."""

    def __init__(self, kube: KubeClient, registered: RegisteredWebhook) -> None:
        """Create it, and wait until the API server asks."""
        self._kube = kube
        webhooks = (one for _, body in registered.registrations() for one in body["webhooks"])
        webhook = next(one for one in webhooks if one["name"].startswith("warn."))
        kube.create(REGISTRATIONS, {"metadata": {"name": _NAME}, "webhooks": [webhook]})
        path = f"{collection('default', 'Job')}?dryRun=All"
        eventually("the API server asks", lambda: kube.create_with_warnings(path, controller("Job", "probe", "none")))

    def remove(self) -> None:
        """Delete the registration."""
        self._kube.delete(f"{REGISTRATIONS}/{_NAME}")


def collection(namespace: str, kind: str) -> str:
    """Return the API path of the controllers of a kind."""
    return f"/apis/{'apps' if kind in APPS else 'batch'}/v1/namespaces/{namespace}/{kind.lower()}s"


def delete_controllers(kube: KubeClient) -> None:
    """Delete all controllers of all namespaces, so that Kubernetes' programs make no pods of earlier tests."""
    for kind in KINDS:
        everywhere = f"/apis/{'apps' if kind in APPS else 'batch'}/v1/{kind.lower()}s"
        for each in kube.call("GET", everywhere)[1]["items"]:
            path = f"{collection(each['metadata']['namespace'], kind)}/{each['metadata']['name']}"
            kube.call("DELETE", path, {"propagationPolicy": "Background"})


def controller(
    kind: str, name: str = "train", lines: str | None = THREE, scheduler: str | None = "gpu-scheduler", **spec: Any
) -> Object:
    """Return a controller whose pods have a map."""
    labels = {"app": name}
    pod: Object = {"containers": [{"name": "main", "image": "registry.invalid/none"}]}
    if scheduler is not None:
        pod["schedulerName"] = scheduler
    template = {"metadata": {"labels": labels, "annotations": {} if lines is None else {MAP: lines}}, "spec": pod}
    metadata: Object = {"name": name}
    if kind in APPS:
        selected = {"selector": {"matchLabels": labels}, "template": template, **spec}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": selected}
    pod["restartPolicy"] = "Never"
    job = {"template": template, **spec}
    whole = {"schedule": "0 0 * * *", "jobTemplate": {"spec": job}} if kind == "CronJob" else job
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": whole}
