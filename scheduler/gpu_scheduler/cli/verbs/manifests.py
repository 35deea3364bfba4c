"""The GPUWorkloads of a file, for `submit`. A fault is reported in one sentence that names the document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.manifests.documents import read_manifests
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote
from gpu_scheduler.names import WORKLOAD_KIND

if TYPE_CHECKING:
    from gpu_scheduler.cli.manifests.documents import Manifest

API_VERSION: Final = "agentaflow.io/v1"
_EXAMPLE: Final = "example: gpu-scheduler generate-template"


@immutable
class SubmittedWorkload:
    """One GPUWorkload to submit."""

    number: int
    source: str
    namespace: str | None
    name: str
    body: dict[str, Any]

    def __str__(self) -> str:
        """Return the document's name in error messages."""
        return f"document {self.number} ({WORKLOAD_KIND} {self.name}) of {self.source}"

    def sent(self, namespace: str) -> bytes:
        """Return the JSON that is sent to the API server."""
        metadata = {**self.body["metadata"], "namespace": namespace}
        return json.dumps({**self.body, "metadata": metadata}, allow_nan=False).encode()


def read_documents(text: str, source: str) -> list[SubmittedWorkload]:
    """Read all documents that are not empty. RefusedInputError if one is no GPUWorkload, or if there is none."""
    found = [_document(each) for each in read_manifests(text, source, _EXAMPLE)]
    if not found:
        raise RefusedInputError(f"cannot submit {source}: it has no document; write one ({_EXAMPLE})")
    return found


def _document(manifest: Manifest) -> SubmittedWorkload:
    for key, given, wanted in (
        ("apiVersion", manifest.api_version, API_VERSION),
        ("kind", manifest.kind, WORKLOAD_KIND),
    ):
        if given != wanted:
            rule = f"{key} is {quote(given)}, and must be {wanted}"
            raise _invalid(manifest, rule, "other kinds are kubectl's to apply")
    if not manifest.name:
        raise _invalid(manifest, "it has no metadata.name", "write one, by which it can be submitted again")
    return SubmittedWorkload(manifest.number, manifest.source, manifest.namespace, manifest.name, manifest.body)


def _invalid(manifest: Manifest, rule: str, remedy: str) -> RefusedInputError:
    return RefusedInputError(
        f"cannot submit document {manifest.number} of {manifest.source}: {rule}; {remedy} ({_EXAMPLE})"
    )
