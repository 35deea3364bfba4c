"""Builds AdmissionReviews as an API server sends them for the creation of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster_objects import MappedPods, Object

_KIND: Final = {"group": "", "version": "v1", "kind": "Pod"}
_RESOURCE: Final = {"group": "", "version": "v1", "resource": "pods"}
_USER: Final = {
    "username": "system:serviceaccount:kube-system:statefulset-controller",
    "uid": "c4b8a6f2-6d1b-4a52-9a73-2f7a3c1d9e05",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
}
_CONTAINER: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "tolerations": [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ],
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_FIELDS: Final = {
    "f:metadata": {
        "f:annotations": {".": {}, "f:gpu-scheduling-map": {}},
        "f:labels": {".": {}, "f:apps.kubernetes.io/pod-index": {}},
        "f:ownerReferences": {".": {}, 'k:{"uid":"63548be8-f1a2-58b7-aaf1-fe97e2e44bed"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"main"}': {
                ".": {},
                "f:image": {},
                "f:imagePullPolicy": {},
                "f:name": {},
                "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                "f:terminationMessagePath": {},
                "f:terminationMessagePolicy": {},
            }
        },
        "f:dnsPolicy": {},
        "f:enableServiceLinks": {},
        "f:restartPolicy": {},
        "f:schedulerName": {},
        "f:securityContext": {},
        "f:terminationGracePeriodSeconds": {},
    },
}
_MANAGED: Final = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": _FIELDS,
}


def reviews(objects: MappedPods, scheduler: str) -> Iterator[str]:
    """Yield a review for each pod of these objects, as the scheduler's pod."""
    for number, (path, body) in enumerate(objects.pod_requests(scheduler, admitted=False)):
        pod = _defaulted(path.split("/")[-2], body)
        request = {
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "kind": _KIND,
            "resource": _RESOURCE,
            "requestKind": _KIND,
            "requestResource": _RESOURCE,
            "name": pod["metadata"]["name"],
            "namespace": pod["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": _USER,
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        yield msgspec.json.encode(review).decode()


def _defaulted(namespace: str, body: Object) -> Object:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**body["metadata"], "namespace": namespace, "managedFields": [_MANAGED]},
        "spec": {
            **body["spec"],
            "containers": [{**container, **_CONTAINER} for container in body["spec"]["containers"]],
            **_SPEC,
        },
        "status": {},
    }
