"""The ResourceClaims that pods of manifests bring of their own: those of manifests, and those made from templates.

LAW: a claim is added as its author wrote it. Claims of ours are added by admission.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.planning.controllers import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_scheduler.cli.manifests.controllers import ExpectedPod, Object
    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.kube.http.client import ApiClient

_VERSION: Final = "resource.k8s.io/v1"
_CLAIM: Final = (_VERSION, "ResourceClaim")
_TEMPLATE: Final = (_VERSION, "ResourceClaimTemplate")
KINDS: Final = frozenset({_CLAIM, _TEMPLATE})
_LONGEST: Final = 253


class GpuClaims:
    """Claims, and templates by namespace and name."""

    def __init__(self, manifests: Iterable[tuple[Manifest, str]]) -> None:
        """Take claims and templates of these manifests, each with its namespace."""
        self.claims: list[Object] = []
        """The claims of the manifests."""
        self._templates: dict[tuple[str, str], Object] = {}
        for manifest, namespace in manifests:
            kind = manifest.api_version, manifest.kind
            if kind == _CLAIM:
                self.claims.append(_claim(namespace, manifest.name, manifest.body))
            elif kind == _TEMPLATE:
                self._templates[namespace, manifest.name] = manifest.body

    async def read_templates(self, api: ApiClient, pods: Iterable[ExpectedPod]) -> None:
        """Read the templates that pods name and no manifest has. FailedError if they may not be read."""
        named = {(_namespace(pod), template) for pod in pods for _, template in _templated(pod)}
        for namespace, name in sorted(named - self._templates.keys()):
            kind = "ResourceClaimTemplate"
            found = await read_object(api, kind, _VERSION, "resourceclaimtemplates", namespace, name)
            if found is not None:
                self._templates[namespace, name] = found

    def complete(self, pod: ExpectedPod) -> ExpectedPod:
        """Return the pod as it is when kube-controller-manager has made its claims, with these claims."""
        statuses: list[Object] = []
        made: list[Object] = []
        for entry, name in _templated(pod):
            template = self._templates.get((_namespace(pod), name))
            inner = None if template is None else template.get("spec")
            if isinstance(inner, dict):
                claim = f"{pod.body['metadata']['name']}-{entry}"[:_LONGEST]
                made.append(_claim(_namespace(pod), claim, inner))
                statuses.append({"name": entry, "resourceClaimName": claim})
        if not made:
            return pod
        return replace(pod, body={**pod.body, "status": {"resourceClaimStatuses": statuses}}, gpu_claims=tuple(made))


def _claim(namespace: str, name: str, body: Object) -> Object:
    metadata = {"namespace": namespace, "name": name, "uid": f"planned-claim-{namespace}-{name}"}
    return {"metadata": metadata, "spec": body.get("spec")}


def _namespace(pod: ExpectedPod) -> str:
    return str(pod.body["metadata"]["namespace"])


def _templated(pod: ExpectedPod) -> Iterator[tuple[str, str]]:
    """Yield the entries of a pod's claims that name a template. What is no text, the decoder of pods refuses."""
    spec = pod.body.get("spec")
    entries = spec.get("resourceClaims") if isinstance(spec, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            name, template = entry.get("name"), entry.get("resourceClaimTemplateName")
            if isinstance(name, str) and isinstance(template, str):
                yield name, template
