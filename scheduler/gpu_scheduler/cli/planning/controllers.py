"""Reads controllers of the cluster: those that make evicted pods anew, and those that `--scale` names.

LAW: reads only, one GET for each object.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.cli.manifests.controllers import is_indexed_job, pods_of, pods_with_indices
from gpu_scheduler.cli.manifests.documents import Manifest
from gpu_scheduler.cli.options import FailedError, RefusedInputError
from gpu_scheduler.cli.planning.existing import distinguished_by, maker_of
from gpu_scheduler.cli.planning.what_ifs import SCALABLE
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import UnlistedError, get_one, list_all
from gpu_scheduler.kube.objects.storage import read_default_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_scheduler.cli.manifests.controllers import ExpectedPod, Object
    from gpu_scheduler.cli.planning.existing import Maker
    from gpu_scheduler.cli.planning.planner import Planner
    from gpu_scheduler.cli.planning.what_ifs import Scale
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.refs import Owner
    from gpu_scheduler.kube.http.client import ApiClient

_RESOURCES: Final = {
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "Job": ("batch/v1", "jobs"),
    names.WORKLOAD_KIND: ("agentaflow.io/v1", "gpuworkloads"),
    names.PYTORCH_JOB: ("kubeflow.org/v1", "pytorchjobs"),
    names.MPI_JOB: ("kubeflow.org/v1", "mpijobs"),
    names.TF_JOB: ("kubeflow.org/v1", "tfjobs"),
}
"""API and resource of the controllers whose pods are known, by kind."""
_INDEX_IN_PREFIX: Final = re.compile(r"-([0-9]{1,10})-$")
"""How the generateName of an Indexed Job's pod ends. An index is an int32."""
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"


async def read_controller(api: ApiClient, namespace: str, kind: str, name: str) -> Manifest | None:
    """Return a controller as a manifest; None if it does not exist. FailedError if it may not be read."""
    version, resource = _RESOURCES[kind]
    body = await read_object(api, kind, version, resource, namespace, name)
    if body is None:
        return None
    return Manifest(1, "the cluster", version, kind, name, namespace, body)


async def read_object(  # noqa: PLR0913, PLR0917 - what its path has
    api: ApiClient, kind: str, version: str, resource: str, namespace: str, name: str
) -> Object | None:
    """Return an object; None if it does not exist. FailedError if it may not be read."""
    path = f"/apis/{version}/namespaces/{segment(namespace)}/{resource}/{segment(name)}"
    try:
        return await get_one(api, f"{kind} {namespace}/{name}", path, json.loads)
    except UnlistedError as error:
        right = f"get {resource}.{version.partition('/')[0]} -n {namespace}"
        raise FailedError(missing_right(error, right)) from error


async def read_scaled(api: ApiClient, namespace: str, scale: Scale) -> Manifest:
    """Return the controller of the cluster that `scale` means. RefusedInputError if there is none, or several."""
    kinds = (scale.kind,) if scale.kind else SCALABLE
    read = [await read_controller(api, namespace, kind, scale.name) for kind in kinds]
    found = [manifest for manifest in read if manifest is not None]
    if len(found) == 1:
        return found[0]
    if found:
        several = " and a ".join(manifest.kind for manifest in found)
        rule, example = f"namespace {namespace} has a {several} of this name", f"{found[0].kind}/{scale.name}"
    else:
        rule = f"neither the manifests nor namespace {namespace} have a {' or '.join(kinds)} of this name"
        example = "statefulset/train"
    raise RefusedInputError(
        f"cannot use --scale {quote(f'{scale}={scale.replicas}')}: {rule}; "
        f"name one that there is (example: --scale {example}={scale.replicas})"
    )


async def add_returning(api: ApiClient, planner: Planner, evicted: Sequence[Pod], planned: set[Maker]) -> None:
    """Decide on the pods that the controllers of evicted pods make in their place.

    Those of `planned` are left out: these controllers are part of the plan with all of their pods.
    """
    left: dict[Maker, list[ExpectedPod] | None] = {}
    for pod in evicted:
        if maker_of(pod) in planned:
            continue
        owner, namespace = pod.owner, pod.ref.namespace
        if owner is None:
            planner.add_returning(pod, None, "it does not come back: no controller makes it anew")
            continue
        if owner.kind not in _RESOURCES:
            why = f"nobody knows whether it comes back: pods of {owner.kind} {owner.name} are not planned"
            planner.add_returning(pod, None, why)
            continue
        key = (namespace, owner.kind, owner.name)
        if key not in left:
            manifest = await read_controller(api, *key)
            left[key] = None if manifest is None else _made_by(manifest, namespace, evicted)
        planner.add_returning(pod, *_successor(pod, owner, left[key]))


def _made_by(manifest: Manifest, namespace: str, evicted: Iterable[Pod]) -> list[ExpectedPod]:
    """Return the pods that a controller makes: of an Indexed Job those with the indices of its evicted pods.

    Which indices run at the moment depends on those that are done.
    """
    if not is_indexed_job(manifest):
        return list(pods_of(manifest, namespace) or ())
    job = namespace, "Job", manifest.name
    prefixes = (_INDEX_IN_PREFIX.search(pod.generate_name or "") for pod in evicted if maker_of(pod) == job)
    return pods_with_indices(manifest, namespace, sorted({int(found[1]) for found in prefixes if found is not None}))


def _successor(pod: Pod, owner: Owner, expected: list[ExpectedPod] | None) -> tuple[ExpectedPod | None, str]:
    """Return the pod that is made in place of `pod`, and take it from `expected`; or why there is none."""
    if expected is None:
        return None, f"it does not come back: its controller, {owner.kind} {owner.name}, does not exist"
    distinguished = distinguished_by(owner.kind, pod.ref.name, pod.generate_name)
    for position, each in enumerate(expected):
        meta = each.body["metadata"]
        if distinguished_by(owner.kind, meta["name"], meta.get("generateName")) == distinguished:
            return expected.pop(position), ""
    return None, f"it does not come back: its controller, {owner.kind} {owner.name}, has fewer replicas"


async def read_default(api: ApiClient) -> str:
    """Return the name of the default storage class, the newest if there are several; empty if there is none."""
    found = await list_all(api, "storage classes", _CLASSES, read_default_class)
    return max(filter(None, found), default=("", ""))[1]
