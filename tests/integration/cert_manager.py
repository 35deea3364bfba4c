"""A stand-in of cert-manager, which issues what Certificates of a namespace ask for. The real one is an image."""

from __future__ import annotations

import base64
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from gpu_scheduler.certificates.issuing import Terms, issue, read_authority
from gpu_scheduler.names import CA_SECRET
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kube_client import KubeClient
    from tests.objects import Object

GROUP: Final = "cert-manager.io"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ISSUED_FOR: Final = "cert-manager.io/certificate-name"
POLL: Final = 0.2
OK: Final = 200
READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def define(kube: KubeClient) -> None:
    """Create the two kinds of cert-manager that we use, without their schemas."""
    for kind in ("Certificate", "Issuer"):
        plural = f"{kind.lower()}s"
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
        spec = {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]}
        kube.create(DEFINITIONS, {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec})
    for plural in ("certificates", "issuers"):
        eventually(f"{plural} are served", partial(_is_served, kube, plural))


def _is_served(kube: KubeClient, plural: str) -> bool:
    return kube.call("GET", f"/apis/{GROUP}/v1/{plural}")[0] == OK


class CertManager:
    """Issues in a thread: a Secret that was not issued for its Certificate is written over, as cert-manager does."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        """Start."""
        self._kube = kube
        self._objects = f"/apis/{GROUP}/v1/namespaces/{namespace}"
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(POLL):
            for path in (f"{self._objects}/issuers", f"{self._objects}/certificates"):
                for found in self._kube.call("GET", path)[1]["items"]:
                    if path.endswith("/certificates"):
                        self._issue(found)
                    self._kube.merge(f"{path}/{found['metadata']['name']}/status", READY)

    def _issue(self, certificate: Object) -> None:
        spec, name = certificate["spec"], certificate["metadata"]["name"]
        path = f"{self._secrets}/{spec['secretName']}"
        stored = self._kube.get(path) or {"metadata": {}}
        if (stored["metadata"].get("annotations") or {}).get(ISSUED_FOR) == name or spec.get("isCA"):
            return
        ca = (self._kube.get(f"{self._secrets}/{CA_SECRET}") or {}).get("data", {})
        decoded = {key: base64.b64decode(value) for key, value in ca.items() if key in {"tls.crt", "tls.key"}}
        # It knows of no other CA.
        authority = read_authority({**decoded, "ca.crt": decoded["tls.crt"]})
        hours = int(spec["duration"].removesuffix("h"))
        terms = Terms(tuple(spec["dnsNames"]), timedelta(hours=hours), timedelta())
        pair = issue(authority, terms, datetime.now(UTC))
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": spec["secretName"], "annotations": {ISSUED_FOR: name}},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in pair.items()},
        }
        query = "?fieldManager=cert-manager-certificates-issuing&force=true"
        self._kube.call("PATCH", path + query, body, "application/apply-patch+yaml")
