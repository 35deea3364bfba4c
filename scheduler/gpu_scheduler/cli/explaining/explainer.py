"""Explains pods in a dry run: those that exist, and those that the objects of manifests would make."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from gpu_scheduler.cli.explaining.views import PodName, denied_view, explanation_view, named, settled_view
from gpu_scheduler.cli.manifests.admission import admitted
from gpu_scheduler.cli.manifests.controllers import pods_of
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.cli.planning.gpu_claims import GpuClaims
from gpu_scheduler.cli.planning.planner import Planner
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.kube.timestamps import time_of
from gpu_scheduler.scheduler.ports import InputKind
from gpu_scheduler.webhook.review import Deny

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.cli.explaining.views import View
    from gpu_scheduler.cli.live_cluster import LiveCluster
    from gpu_scheduler.cli.manifests.controllers import ExpectedPod
    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.http.client import ApiClient


class Explainer:
    """The cluster as it is, in which pods that do not exist yet are placed one after the other."""

    def __init__(self, live: LiveCluster, ends: Mapping[str, str], default_class: str = "") -> None:
        """`ends` says by uid when pods are expected to end, see `explain` of the core.

        `default_class` is the storage class of new claims that name none.
        """
        self._dry_run = live.dry_run()
        self._now = time_of(datetime.now(UTC))
        self._planner = Planner(self._dry_run, live.inputs, self._now, default_class)
        self._ends = ends
        self._scheduler_name = live.installation.policy.scheduler_name
        self._faults = {
            (name, str(index)): fault for name, node in live.nodes.items() for index, fault in node.faults.items()
        }
        self._numbers = count()

    def explain(self, pod: Pod) -> View | None:
        """Explain a pod that exists; None if it is not in the cluster any more, or needs no decision any more."""
        listed = self._dry_run.pod(pod.ref.uid)
        return None if listed is None else self._explained(listed, named(listed))

    async def explain_manifests(self, api: ApiClient, manifests: Iterable[Manifest], namespace: str) -> list[View]:
        """Explain the pods of manifests in order, each as if those before it were placed.

        `namespace` is that of objects that name none. RefusedInputError if no object makes pods.
        """
        made = [(manifest, pods_of(manifest, namespace)) for manifest in manifests]
        if made and all(pods is None for _, pods in made):
            raise RefusedInputError(
                f"cannot explain {', '.join(str(manifest) for manifest, _ in made)}: it makes no pods; "
                "name a Pod, or an object that makes pods (example: gpu-scheduler explain -f train.yaml)"
            )
        gpu_claims = GpuClaims((manifest, manifest.namespace or namespace) for manifest, _ in made)
        await gpu_claims.read_templates(api, (pod for _, pods in made for pod in pods or ()))
        for claim in gpu_claims.claims:
            self._planner.add_gpu_claim(claim)
        views = []
        for manifest, pods in made:
            if (manifest.api_version, manifest.kind) == ("v1", "PersistentVolumeClaim"):
                given = manifest.body["metadata"]
                self._planner.add_claim({**manifest.body, "metadata": {"namespace": namespace, **given}})
            views += [self._explain_expected(gpu_claims.complete(pod)) for pod in pods or ()]
        return views

    def _explain_expected(self, expected: ExpectedPod) -> View:
        uid = f"expected-{next(self._numbers)}"
        self._planner.add_claims_of(expected)
        pod = admitted(expected, uid, self._now, self._scheduler_name)
        namespace = expected.body["metadata"]["namespace"]
        shown = PodName(f"{namespace}/{expected.shown}", namespace, expected.shown, None)
        if isinstance(pod, Deny):
            return denied_view(shown, pod)
        settled = settled_view(pod, {}, self._scheduler_name)
        if settled is not None:
            return settled
        self._replace(pod)
        view = self._explained(pod, shown)
        self._planner.decide(uid)
        return view or {}

    def _explained(self, pod: Pod, shown: PodName) -> View | None:
        found = explain(pod, self._dry_run.cluster, self._ends)
        return None if found.decision is None else explanation_view(shown, found.decision, found, self._faults)

    def _replace(self, pod: Pod) -> None:
        """Apply the pod. A pod of its name that exists counts as gone: both cannot exist at once."""
        name = (pod.ref.namespace, pod.ref.name)
        for each in [other for other in self._dry_run.pods if (other.ref.namespace, other.ref.name) == name]:
            self._dry_run.evict(each)
        self._dry_run.apply(InputKind.POD, pod)
