"""Random clusters and manifests for `plan`, and the pods that real controllers would create of the manifests.

It shares no code with the package: pods are written down here as Kubernetes' controllers create them.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.objects import IMAGE, MAP, gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.objects import Object

NODES: Final = ("node1", "node2", "node3", "node4")
ALIAS: Final = "small"
HASH: Final = "6c8f9d7b54"
STRATEGIES: Final = ("least_utilized", "best_fit", "priority", "round_robin")
_SUFFIXES: Final = "bcdfghjklmnpqrstvwxz"


@dataclass
class PlannedObject:
    """An object of a manifest, and the pods that its controller creates, in their order."""

    manifest: Object
    pods: list[Object]
    claims: list[Object] = field(default_factory=list)


class RandomCase:
    """One random cluster, and objects that are planned in it. Names are in the order of creation."""

    def __init__(self, random: Random, storage_class: str) -> None:
        """`storage_class` exists, and its volumes wait for their first consumer."""
        self._random = random
        self._storage_class = storage_class
        self._numbers = itertools.count()
        self.maps = [self._map() for _ in range(2)]

    def chance(self, share: float) -> bool:
        """Return True in this share of the calls."""
        return self._random.random() < share

    def nodes(self) -> Iterator[Object]:
        """Return the nodes, with all kinds of inventories and obstacles."""
        for name in NODES:
            chance = self._random.random
            room = {"cpu": self._random.choice(("2", "4", "64"))}
            annotations = (
                objects.inventory(*map(self._device, range(self._random.choice((2, 4, 4))))) if chance() < 0.75 else {}
            )
            if chance() < 0.15:
                room["nvidia.com/gpu"] = self._random.choice(("1", "2", "4"))
            taints = ({"key": "gpu", "value": "only", "effect": "NoSchedule"},) if chance() < 0.1 else ()
            labels = {"gpu-node-name": ALIAS} if name == "node3" else {}
            yield objects.node(
                name,
                ready=chance() > 0.05,
                unschedulable=chance() < 0.07,
                labels={"zone": self._random.choice("ab"), **labels},
                annotations=annotations,
                taints=taints,
                room=room,
            )

    def existing(self) -> list[Object]:
        """Return the pods that are created before, in this order."""
        makers = (self._stateful_set, self._stateful_set, self._deployment, self._job, self._bare, self._bare)
        made = [pod for _ in range(self._random.randrange(2, 6)) for pod in self._random.choice(makers)().pods]
        foreign = [self._foreign() for _ in range(self._random.randrange(3))]
        return [*foreign, *made[:12]]

    def planned(self) -> list[PlannedObject]:
        """Return the objects of the manifests."""
        makers: tuple[Callable[[], PlannedObject], ...] = (
            self._stateful_set,
            self._stateful_set,
            self._deployment,
            self._deployment,
            self._replica_set,
            self._indexed_job,
            self._job,
            self._bare,
            self._bare,
            self._bare,
            self._pytorch_job,
            self._workload,
        )
        return [self._random.choice(makers)() for _ in range(self._random.randrange(2, 5))]

    def again(self, pods: list[Object]) -> PlannedObject | None:
        """Return a StatefulSet that exists already, with another number of replicas; None if there is none."""
        owners = {pod["metadata"]["ownerReferences"][0]["name"]: pod for pod in pods if _owned_by(pod, "StatefulSet")}
        if not owners:
            return None
        name = self._random.choice(sorted(owners))
        pod = owners[name]
        labels = {"app": pod["metadata"]["labels"]["app"]}
        template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
        return self._stateful_set(name, template)

    def limits(self, namespace: str) -> str:
        """Return the text of the limits; mostly empty."""
        if self._random.random() < 0.85:
            return ""
        return f"{namespace}: devices={self._random.choice((2, 4, 8))} priority=5"

    def _device(self, index: int) -> Object:
        health = self._random.choice(("healthy",) * 8 + ("degraded", "unhealthy"))
        used, busy = self._random.choice((0, 512, 20000)), self._random.choice((0, 0, 30, 95))
        load = {"memoryTotalMiB": 40960, "memoryUsedMiB": used, "utilization": busy, "model": "NVIDIA A100"}
        return {**objects.device(index), "health": health, **load}

    def _map(self) -> str:
        lines = []
        for index in range(self._random.choice((2, 2, 3, 5))):
            node = self._random.choice((*NODES, *NODES, *NODES, ALIAS, "node9"))
            known = self._random.choice((2, 2, 2, 4))
            devices = sorted(self._random.sample(range(known), self._random.choice((0, 1, 1, 2))))
            ids = map(gpu, devices) if self._random.random() < 0.1 else map(str, devices)
            lines.append(f"{index}={node}:{','.join(ids)}\n")
        return "".join(lines)

    def _template(self) -> Object:
        chance = self._random.random
        annotations: dict[str, str] = {}
        container: Object = {"name": "main", "image": IMAGE}
        spec: Object = {"schedulerName": "gpu-scheduler", "containers": [container]}
        resources: Object = {"requests": {"cpu": self._random.choice(("100m", "500m", "2"))}, "limits": {}}
        kind = chance()
        if kind < 0.55:
            annotations[MAP] = self._random.choice(self.maps)
        elif kind < 0.95:
            self._count(annotations, resources)
        elif kind < 0.975:
            annotations["agentaflow.gpu/counts"] = "1"
        else:
            container["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "all"}]
            annotations[MAP] = self.maps[0]
        if chance() < 0.15:
            annotations["agentaflow.gpu/sharing"] = "any"
        if chance() < 0.1:
            annotations["agentaflow.gpu/observer"] = "true"
        if chance() < 0.1:
            spec["nodeSelector"] = {"zone": "a"}
        if chance() < 0.1:
            container["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        if chance() < 0.3:
            spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        if chance() < 0.03:
            spec["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            ]
        container["resources"] = resources
        return {"metadata": {"labels": {"app": "a"}, "annotations": annotations}, "spec": spec}

    def _count(self, annotations: dict[str, str], resources: Object) -> None:
        chance = self._random.random
        if chance() < 0.2:
            resources["limits"]["nvidia.com/gpu"] = self._random.choice(("1", "2"))
            annotations["agentaflow.gpu/scheduling-strategy"] = self._random.choice(STRATEGIES)
            return
        annotations["agentaflow.gpu/count"] = self._random.choice(("1", "1", "2", "3", "9"))
        if chance() < 0.4:
            annotations["agentaflow.gpu/scheduling-strategy"] = self._random.choice(STRATEGIES)
        if chance() < 0.3:
            annotations["agentaflow.gpu/memory"] = self._random.choice(("1024", "30000", "90000"))
        if chance() < 0.3:
            annotations |= {"agentaflow.gpu/exclusive": "false", "agentaflow.gpu/memory": "12000"}
        if chance() < 0.3:
            annotations["agentaflow.gpu/priority"] = self._random.choice(("1", "9"))

    def _name(self, stem: str) -> str:
        return f"s{next(self._numbers):02}-{stem}"

    def _stateful_set(self, name: str = "", template: Object | None = None) -> PlannedObject:
        template = template or self._template()
        new = not name
        name = name or self._name("sts")
        replicas, start = self._random.randrange(1, 5), 1 if new and self._random.random() < 0.1 else 0
        spec: Object = {"replicas": replicas, "serviceName": name, "template": template}
        if start:
            spec["ordinals"] = {"start": start}
        pods, claims = [], []
        claimed = new and self._random.random() < 0.15
        if claimed:
            asked = objects.claim("data", self._storage_class)
            spec["volumeClaimTemplates"] = [asked]
        for index in range(start, start + replicas):
            labels = objects.in_stateful_set(name, index)["labels"]
            pod = _pod(f"{name}-{index}", template, ("StatefulSet", name), labels=labels, prefix=f"{name}-")
            if claimed:
                claim = f"data-{name}-{index}"
                pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
                claims.append(objects.claim(claim, self._storage_class))
            pods.append(pod)
        return PlannedObject(_manifest("apps/v1", "StatefulSet", name, spec), pods, claims)

    def _deployment(self) -> PlannedObject:
        name, template, replicas = self._name("deploy"), self._template(), self._random.randrange(1, 6)
        owner = f"{name}-{HASH}"
        pods = [
            _pod(
                f"{owner}-{suffix}",
                template,
                ("ReplicaSet", owner),
                labels={"pod-template-hash": HASH},
                prefix=f"{owner}-",
            )
            for suffix in self._suffixes(replicas)
        ]
        return PlannedObject(
            _manifest("apps/v1", "Deployment", name, {"replicas": replicas, "template": template}), pods
        )

    def _replica_set(self) -> PlannedObject:
        name, template, replicas = self._name("rs"), self._template(), self._random.randrange(1, 3)
        pods = [
            _pod(f"{name}-{suffix}", template, ("ReplicaSet", name), prefix=f"{name}-")
            for suffix in self._suffixes(replicas)
        ]
        return PlannedObject(
            _manifest("apps/v1", "ReplicaSet", name, {"replicas": replicas, "template": template}), pods
        )

    def _job(self) -> PlannedObject:
        name, template, many = self._name("job"), self._template(), self._random.randrange(1, 3)
        pods = [_pod(f"{name}-{suffix}", template, ("Job", name), prefix=f"{name}-") for suffix in self._suffixes(many)]
        spec = {"parallelism": many, "completions": many, "template": template}
        return PlannedObject(_manifest("batch/v1", "Job", name, spec), pods)

    def _indexed_job(self) -> PlannedObject:
        name, template, many = self._name("ijob"), self._template(), self._random.randrange(1, 4)
        pods = []
        for index, suffix in enumerate(self._suffixes(many)):
            mark = {"batch.kubernetes.io/job-completion-index": str(index)}
            prefix = f"{name}-{index}-"
            pods.append(
                _pod(f"{prefix}{suffix}", template, ("Job", name), labels=mark, annotations=mark, prefix=prefix)
            )
        spec = {"parallelism": many, "completions": many, "completionMode": "Indexed", "template": template}
        return PlannedObject(_manifest("batch/v1", "Job", name, spec), pods)

    def _bare(self) -> PlannedObject:
        template, chance = self._template(), self._random.random()
        name, marks, prefix = self._name("pod"), {}, ""
        if chance < 0.3:
            name = f"{name}-{self._random.randrange(4)}"
        elif chance < 0.6:
            marks = {"agentaflow.gpu/index": self._random.choice(("0", "1", "x"))}
        else:
            prefix, name = f"{name}-", f"{name}-bbbbb"
        pod = _pod(name, template, None, annotations=marks, prefix=prefix)
        meta = {key: text for key, text in pod["metadata"].items() if not prefix or key != "name"}
        return PlannedObject({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": meta}, [pod])

    def _pytorch_job(self) -> PlannedObject:
        name, template, workers = self._name("torch"), self._template(), self._random.randrange(1, 3)
        pods = []
        for kind, many in (("Master", 1), ("Worker", workers)):
            for number in range(many):
                marks = {
                    "training.kubeflow.org/replica-type": kind.lower(),
                    "training.kubeflow.org/replica-index": str(number),
                }
                pods.append(_pod(f"{name}-{kind.lower()}-{number}", template, ("PyTorchJob", name), labels=marks))
        replicas = {"Master": {"template": template}, "Worker": {"replicas": workers, "template": template}}
        spec = {"pytorchReplicaSpecs": replicas}
        return PlannedObject(_manifest("kubeflow.org/v1", "PyTorchJob", name, spec), pods)

    def _workload(self) -> PlannedObject:
        name, many = self._name("work"), self._random.randrange(1, 4)
        template = objects.pod_template()
        body = objects.gpu_workload(name, template, gpuRequirements={"gpuCount": many}, schedulingStrategy="best_fit")
        marks = {"agentaflow.gpu/count": str(many), "agentaflow.gpu/scheduling-strategy": "best_fit"}
        spec = {"spec": {**template["spec"], "schedulerName": "gpu-scheduler"}}
        return PlannedObject(body, [_pod(f"{name}-0", spec, ("GPUWorkload", name), annotations=marks)])

    def _foreign(self) -> Object:
        limits = {"nvidia.com/gpu": "1"} if self._random.random() < 0.3 else {}
        name, node = self._name("foreign"), self._random.choice(NODES)
        return objects.pod(
            name, None, [], scheduler="another", requests={"cpu": "1", **limits}, limits=limits, nodeName=node
        )

    @staticmethod
    def _suffixes(many: int) -> Iterator[str]:
        """Return suffixes as the API server generates them, in the order of creation."""
        return (f"bbbb{each}" for each in _SUFFIXES[:many])


def _manifest(version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _pod(  # noqa: PLR0913 - what controllers write
    name: str,
    template: Object,
    owner: tuple[str, str] | None,
    *,
    labels: Any = None,
    annotations: Any = None,
    prefix: str = "",
) -> Object:
    # A copy, because tests and the API server's defaults must not reach the manifest.
    given = json.loads(json.dumps(template))
    old = given.get("metadata", {})
    made = objects.pod(
        name,
        labels={**old.get("labels", {}), **(labels or {})},
        annotations={**old.get("annotations", {}), **(annotations or {})},
        owner=owner,
        generate_name=prefix or None,
    )
    return {"metadata": made["metadata"], "spec": given["spec"]}


def _owned_by(pod: Object, kind: str) -> bool:
    return any(owner["kind"] == kind for owner in pod["metadata"].get("ownerReferences", []))
