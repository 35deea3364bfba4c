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


def _containers(**fields: Any) -> Object:
    return {"name": "main", "image": "registry.invalid/none", **fields}


UNKNOWN: Final = {f"agentaflow.gpu/{number:06}{'x' * 57}": "1" for number in range(1_000)}
"""Annotations with keys of the longest length that the API server accepts; no program reads them."""


def _env(value: str) -> Callable[[str], Object]:
    return lambda name: objects.pod(name, _LINE, objects.literal(value))


def _annotated(key: str, text: str) -> Callable[[str], Object]:
    return lambda name: objects.pod(name, _LINE, objects.literal("0"), annotations={key: text})


def _with_arguments(name: str) -> Object:
    body = objects.pod(name, _LINE, objects.literal("0"))
    body["spec"]["containers"][0]["args"] = ["x" * MOST]
    return body


PODS: Final[dict[str, Callable[[str], Object]]] = {
    "a value": _env("0," * (MOST // 2)),
    "a value that JSON escapes to six times its length": _env("<" * MOST),
    "a map": _annotated(MAP, "#" * ANNOTATIONS),
    "a map that is not ASCII": _annotated(MAP, "\u2603" * (ANNOTATIONS // 3)),
    "an annotation of ours": _annotated("agentaflow.gpu/sharing", "x" * ANNOTATIONS),
    "an annotation of others": _annotated("example.com/notes", "x" * ANNOTATIONS),
    "a thousand unknown annotations of ours": lambda name: objects.pod(name, annotations=UNKNOWN),
    "arguments": _with_arguments,
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
