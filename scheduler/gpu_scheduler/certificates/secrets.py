"""The two Secrets: their manifests, and how they are read and written in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.certificates.issuing import IssuingError
from gpu_scheduler.kube.http.client import MERGE, segment
from gpu_scheduler.kube.objects.secrets import Secret, new_secret, patch_secret, read_secret
from gpu_scheduler.kube.resource import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

NOT_FOUND: Final = 404
CONFLICT: Final = 409

# As role certificates labels them, without managed-by: whoever installs next may use them.
_LABELS: Final = {
    "app.kubernetes.io/name": names.SCHEDULER_NAME,
    "app.kubernetes.io/component": "certificates",
    "app.kubernetes.io/part-of": names.SCHEDULER_NAME,
}
_TYPES: Final = {names.CA_SECRET: "Opaque", names.SERVING_SECRET: "kubernetes.io/tls"}


def manifest(name: str, namespace: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the manifest of the Secret `name`, one of the two."""
    return new_secret({"name": name, "namespace": namespace, "labels": dict(_LABELS)}, _TYPES[name], data)


class SecretClient:
    """Reads and writes the two Secrets of one namespace. IssuingError if the API server refuses."""

    def __init__(self, api: ApiClient, namespace: str, manager: str) -> None:
        """`manager`: the field manager of what is written."""
        self._api = api
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{segment(namespace)}/secrets"
        self._query = {"fieldManager": manager}

    async def read(self, name: str) -> Secret | None:
        """Return the Secret; None if there is none."""
        answer = await self._api.call("GET", f"{self._path}/{name}")
        if answer.status == NOT_FOUND:
            return None
        if not answer.ok:
            raise IssuingError(f"cannot read Secret {name}: {RefusedError(answer)}")
        try:
            return read_secret(answer.body)
        except msgspec.DecodeError as error:
            raise IssuingError(f"cannot read Secret {name}: {error}") from error

    async def create(self, name: str, data: Mapping[str, bytes]) -> bool:
        """Create the Secret; return False if another client has created it since it was read."""
        body = msgspec.json.encode(manifest(name, self._namespace, data))
        answer = await self._api.call("POST", self._path, query=self._query, body=body)
        return _is_written(answer, f"create Secret {name} in namespace {self._namespace}")

    async def replace(self, name: str, version: str | None, data: Mapping[str, bytes]) -> bool:
        """Write these keys of the Secret; return False if another client has written it since `version`."""
        body = patch_secret(version, data)
        answer = await self._api.call("PATCH", f"{self._path}/{name}", query=self._query, body=body, content_type=MERGE)
        return _is_written(answer, f"write Secret {name}")


def busy(name: str) -> str:
    """Return the sentence about a Secret that others write again and again."""
    return f"cannot write Secret {name}: other clients write it at the same time; run this again"


def _is_written(answer: ApiResponse, action: str) -> bool:
    if answer.ok:
        return True
    refused = RefusedError(answer)
    if refused.status != CONFLICT:
        raise IssuingError(f"cannot {action}: {refused}") from refused
    return False
