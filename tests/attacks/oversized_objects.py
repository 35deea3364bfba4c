"""Builds objects of the largest size that the API server accepts, each large in another field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.objects import MAP, gpu_workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects import Object

MOST: Final = 1_400_000
"""Bytes of one text: etcd accepts requests of 1.5 MiB."""
ANNOTATIONS: Final = 250_000
"""Bytes of all annotations of an object: the API server accepts 256 KiB."""
_LINE: Final = "0=node1:0\n"


def _spec(**spec: Any) -> Callable[[str], Object]:
    return lambda name: objects.pod(name, _LINE, objects.literal("0"), **spec)


def _containers(**fields: Any) -> Object:
    return {"name": "main", "image": "registry.invalid/none", **fields}


UNKNOWN: Final = {f"agentaflow.gpu/{number:06}{'x' * 57}": "1" for number in range(1_000)}
"""Annotations with keys of the longest length that the API server accepts; no program reads them."""


def _env(value: str) -> Callable[[str], Object]:
    return lambda name: objects.pod(name, _LINE, objects.literal(value))


def _annotated(key: str, text: str) -> Callable[[str], Object]:
    return lambda name: objects.pod(name, _LINE, objects.literal("0"), annotations={key: text})


def _labelled(name: str) -> Object:
    return objects.pod(name, _LINE, objects.literal("0"), labels={f"a{number}": "" for number in range(12_000)})


def _owned(name: str) -> Object:
    body = objects.pod(name, _LINE, objects.literal("0"))
    owners = [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": str(number)} for number in range(15_000)]
    body["metadata"]["ownerReferences"] = owners
    return body


def _with_container(**fields: Any) -> Callable[[str], Object]:
    def make(name: str) -> Object:
        body = objects.pod(name, _LINE, objects.literal("0"))
        body["spec"]["containers"][0] |= fields
        return body

    return make


def _many_containers(name: str) -> Object:
    body = objects.pod(name, _LINE, objects.literal("0"))
    body["spec"]["containers"] += [{"name": f"c{number}", "image": "i"} for number in range(8_000)]
    return body


def _counted(number: int) -> dict[str, str]:
    return {f"a.b/c{each}": "1" for each in range(number)}


def _affinity(values: int) -> Object:
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * values}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


_ENTRIES: Final = [{"name": "A"}] * 60_000
_CUDA_ENTRIES: Final = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}] * 45_000
_PORTS: Final = [{"containerPort": 1, "hostPort": number} for number in range(1, 20_000, 2)]
_VOLUMES: Final = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": "a"}} for number in range(20_000)]

PODS: Final[dict[str, Callable[[str], Object]]] = {
    "a value": _env("0," * (MOST // 2)),
    "a value that JSON escapes to six times its length": _env("<" * MOST),
    "a map": _annotated(MAP, "#" * ANNOTATIONS),
    "a map that is not ASCII": _annotated(MAP, "\u2603" * (ANNOTATIONS // 3)),
    "an annotation of ours": _annotated("agentaflow.gpu/sharing", "x" * ANNOTATIONS),
    "an annotation of others": _annotated("example.com/notes", "x" * ANNOTATIONS),
    "a thousand unknown annotations of ours": lambda name: objects.pod(name, annotations=UNKNOWN),
    "labels": _labelled,
    "owners": _owned,
    "variables": _with_container(env=_ENTRIES),
    "variables of ours": _with_container(env=_CUDA_ENTRIES),
    "containers": _many_containers,
    "ports": _with_container(ports=_PORTS),
    "resources": _with_container(resources={"requests": _counted(12_000), "limits": _counted(12_000)}),
    "arguments": _with_container(args=["x" * MOST]),
    "tolerations": _spec(tolerations=[{"operator": "Exists"}] * 80_000),
    "affinity": _spec(affinity=_affinity(400_000)),
    "selector": _spec(nodeSelector={f"a{number}": "" for number in range(80_000)}),
    "volumes": _spec(volumes=_VOLUMES),
    "gates": _spec(schedulingGates=[{"name": f"a.b/c{number}"} for number in range(20_000)]),
}
"""Pods of ours by their oversized field, with the variables that the webhook would set."""


def foreign(body: Object, node: str) -> Object:
    """Return the pod as a bound pod of another scheduler: of other schedulers, ours watches bound pods only."""
    body["spec"] |= {"schedulerName": "other", "nodeName": node}
    return body


def _template(**fields: Any) -> Object:
    return {"spec": {"containers": [_containers(**fields)]}}


WORKLOADS: Final[dict[str, Callable[[str], Object]]] = {
    "arguments": lambda name: gpu_workload(name, _template(args=["x" * MOST])),
    "arguments that JSON escapes": lambda name: gpu_workload(name, _template(args=["<" * (MOST // 6)])),
    "variables": lambda name: gpu_workload(name, _template(env=[{"name": "A"}] * 90_000)),
    "annotations": lambda name: gpu_workload(name, {"metadata": {"annotations": {"a": "x" * MOST}}, **_template()}),
    "annotations of its own": lambda name: {
        **gpu_workload(name, _template()),
        "metadata": {"name": name, "annotations": {"a": "x" * ANNOTATIONS}},
    },
}
"""GPUWorkloads by their oversized field. The API server stores podTemplate without checking its fields."""


def body_of(value: Object) -> bytes:
    """Encode the object without spaces, because spaces count towards the size of the request."""
    return json.dumps(value, separators=(",", ":")).encode()
