"""The objects that a plan is about: those of the manifests, and those of the cluster that are scaled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.cli.manifests.controllers import pods_of
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.cli.planning.controllers import read_scaled
from gpu_scheduler.cli.planning.gpu_claims import KINDS, GpuClaims
from gpu_scheduler.cli.planning.what_ifs import SCALABLE
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.storage import read_class, read_volume
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.cli.manifests.controllers import ExpectedPod
    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.cli.planning.existing import Maker
    from gpu_scheduler.cli.planning.planner import AdmittedPod, Planner
    from gpu_scheduler.cli.planning.what_ifs import Scale
    from gpu_scheduler.kube.http.client import ApiClient

_CLAIM: Final = ("v1", "PersistentVolumeClaim")
_STORAGE: Final[dict[tuple[str, str], tuple[InputKind, Callable[[bytes], tuple[str, Any]]]]] = {
    ("storage.k8s.io/v1", "StorageClass"): (InputKind.STORAGE_CLASS, read_class),
    ("v1", "PersistentVolume"): (InputKind.VOLUME, read_volume),
}
_WITHOUT_PODS: Final = frozenset({*_STORAGE, _CLAIM, *KINDS})


@immutable
class _Object:
    """An object with its pods; `pods` is None if it makes none."""

    manifest: Manifest
    namespace: str
    pods: tuple[ExpectedPod, ...] | None

    @property
    def maker(self) -> Maker:
        """The controller that its pods have."""
        bare = self.manifest.kind == "Pod"
        return self.namespace, "" if bare else self.manifest.kind, "" if bare else self.manifest.name


class PlannedObjects:
    """Objects in the order in which their pods are decided."""

    def __init__(self, manifests: list[Manifest], namespace: str, *, strict: bool) -> None:
        """Read the pods of all manifests. `namespace` is that of objects which name none.

        If it is `strict`, because the user named it, no object may name another. RefusedInputError if an object is
        wrong.
        """
        self._namespace = namespace
        self._objects = [self._object(each, strict=strict) for each in manifests]
        self._gpu_claims = GpuClaims((each.manifest, each.namespace) for each in self._objects)

    @property
    def makers(self) -> set[Maker]:
        """The controllers that are part of the plan with all of their pods."""
        return {each.maker for each in self._objects if each.maker[1]}

    async def scale(self, api: ApiClient, scale: Scale) -> None:
        """Plan for another number of replicas: of a manifest or, if none has this name, of an object of the cluster."""
        meant = [
            place for place, each in enumerate(self._objects) if scale.means(each.manifest.kind, each.manifest.name)
        ]
        for place in meant:
            self._objects[place] = self._of(
                self._objects[place].manifest, self._objects[place].namespace, scale.replicas
            )
        if not meant:
            manifest = await read_scaled(api, self._namespace, scale)
            self._objects.append(self._of(manifest, self._namespace, scale.replicas))

    async def read_templates(self, api: ApiClient) -> None:
        """Read the ResourceClaimTemplates of the cluster that the pods name."""
        await self._gpu_claims.read_templates(api, (pod for each in self._objects for pod in each.pods or ()))

    def needs_default_class(self) -> bool:
        """Whether a new claim may name no storage class."""
        return any(
            (each.manifest.api_version, each.manifest.kind) == _CLAIM or any(pod.claims for pod in each.pods or ())
            for each in self._objects
        )

    def add_storage(self, planner: Planner) -> None:
        """Add classes and volumes of the manifests, then claims of both kinds: they exist before pods are decided."""
        for each in self._objects:
            kind = each.manifest.api_version, each.manifest.kind
            if kind in _STORAGE:
                input_kind, read = _STORAGE[kind]
                try:
                    _, value = read(msgspec.json.encode(each.manifest.body))
                except UNREADABLE as error:
                    raise RefusedInputError(f"cannot read {each.manifest}: {error}; correct it") from error
                planner.add_storage(input_kind, value)
        for each in self._objects:
            if (each.manifest.api_version, each.manifest.kind) == _CLAIM:
                metadata = {**each.manifest.body["metadata"], "namespace": each.namespace}
                planner.add_claim({**each.manifest.body, "metadata": metadata})
        for claim in self._gpu_claims.claims:
            planner.add_gpu_claim(claim)

    def admit(self, planner: Planner) -> tuple[list[AdmittedPod], list[str]]:
        """Return the pods of all objects, and the names of objects that have no pods of this scheduler."""
        found: list[AdmittedPod] = []
        left_out: list[str] = []
        for each in self._objects:
            manifest = each.manifest
            removes = manifest.kind in SCALABLE and manifest.kind != "Job"
            ours = planner.admit(each.maker, map(self._gpu_claims.complete, each.pods or ()), removes=removes)
            found += ours
            if not ours and each.pods != () and (manifest.api_version, manifest.kind) not in _WITHOUT_PODS:
                left_out.append(f"{manifest.kind} {manifest.name or manifest.generate_name}")
        return found, left_out

    def _object(self, manifest: Manifest, *, strict: bool) -> _Object:
        if strict and manifest.namespace not in {None, self._namespace}:
            raise RefusedInputError(
                f"cannot plan {manifest}: its namespace is {manifest.namespace}, and -n says {self._namespace}; "
                f"leave one of the two out (example: -n {manifest.namespace})"
            )
        return self._of(manifest, manifest.namespace or self._namespace, None)

    @staticmethod
    def _of(manifest: Manifest, namespace: str, replicas: int | None) -> _Object:
        found = pods_of(replace(manifest, namespace=namespace), namespace, replicas)
        return _Object(manifest, namespace, found)
