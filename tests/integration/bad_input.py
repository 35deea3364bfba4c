"""Invalid input in pods and nodes that the API server accepts, one row each.

A row of PODS names the reason that refuses the pod. An empty reason means that the pod is placed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.objects import device, literal, node, pod, reading

if TYPE_CHECKING:
    from tests.objects import Object

GOOD: Final = "0=node1:\n"
PREFIX: Final = "agentaflow.gpu/"
DEEP: Final = 9000


def of_map(text: str) -> Object:
    """Return a pod with this placement map."""
    return pod("bad-0", text, literal(""))


def of_annotation(name: str, value: str) -> Object:
    """Return a pod with a valid map and one annotation of ours."""
    return pod("bad-0", GOOD, literal(""), annotations={PREFIX + name: value})


def of_spec(**spec: object) -> Object:
    """Return a pod with a valid map and these fields in its spec."""
    return pod("bad-0", GOOD, literal(""), **spec)


def of_container(**more: object) -> Object:
    """Return a pod with a valid map and these fields in its container."""
    body = of_spec()
    body["spec"]["containers"][0].update(more)
    return body


def deep(name: str) -> bytes:
    """Return the JSON of a pod whose managedFields are nested DEEP levels, which the API server still accepts."""
    body = of_spec()
    body["metadata"]["name"] = name
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    body["metadata"]["managedFields"] = [{**entry, "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}]
    return json.dumps(body).replace('"DEEP"', '{"f:x":' * DEEP + "{}" + "}" * DEEP).encode()


def renamed(name: str, body: Object) -> Object:
    """Return the object with another name."""
    return {**body, "metadata": {**body["metadata"], "name": name}}


MAPS: Final = {
    "an empty map": "",
    "a map of white space": " \t\r\n \n",
    "a NUL byte": "0=node1:0\x00\n",
    "a zero-width space": "0=node1:\u200b0\n",
    "right-to-left marks": "\u202e0=node1:0\u202c\n",
    "full-width digits": "\uff10=node1:0\n",
    "an emoji": "0=\U0001f525:0\n",
    "5,000 combining marks": "0=node1:0" + "\u0301" * 5000 + "\n",
    "control characters and escape sequences": "0=node1:\x1b[31m0\x07\n",
    "a line separator": "0=node1:0\u20281=node1:1\n",
    "a carriage return alone": "0=node1:0\r1=node1:1",
    "a number of five thousand digits": f"{'9' * 5000}=node1:0\n",
    "a device beyond every integer": "0=node1:99999999999999999999\n",
    "JSON": '{"0": "node1:0"}',
    "a name of 254 letters": f"0={'n' * 254}:0\n",
    "two hundred kilobytes": "0=node1:0\n" + "x" * 200_000,
    "sixty thousand commas": "0=node1:" + "," * 60_000,
}
PODS: Final[tuple[tuple[str, str, Object], ...]] = (
    *((name, "MapInvalid", of_map(text)) for name, text in MAPS.items()),
    ("an index below zero", "IndexUnknown", of_annotation("index", "-1")),
    ("an empty index", "IndexUnknown", of_annotation("index", "")),
    ("an index of five thousand digits", "IndexUnknown", of_annotation("index", "9" * 5000)),
    ("an index in another script", "IndexUnknown", of_annotation("index", "\u0663")),
    ("an index that the map does not have", "IndexNotInMap", of_annotation("index", "2147483647")),
    ("observer in upper case", "RequestInvalid", of_annotation("observer", "TRUE")),
    ("observer with a zero-width space", "RequestInvalid", of_annotation("observer", "\u200btrue")),
    ("sharing with an unknown value", "RequestInvalid", of_annotation("sharing", "some\x1b[31m")),
    ("a number for keep-env", "RequestInvalid", of_annotation("keep-env", "1")),
    ("a resource claim", "Unsupported", of_spec(resourceClaims=[{"name": "x", "resourceClaimName": "y"}])),
    ("a value that contradicts the map", "EnvConflict", of_container(env=literal("7"))),
    ("nulls where lists belong", "", of_spec(tolerations=None, initContainers=None, volumes=None, affinity=None)),
    ("unknown fields", "", of_spec(nonsense={"a": [1, None]}, Affinity="x")),
    ("250 kB of other annotations", "", pod("bad-0", GOOD, literal(""), annotations={"x": "y" * 250_000})),
    ("labels of every shape", "", pod("bad-0", GOOD, literal(""), labels={"a": "", "b.c/d": "E_f.g"})),
    ("the longest name", "", renamed("a" * 60 + "." + "b" * 180 + "-0", of_spec())),
    ("a name of digits", "IndexNotInMap", renamed("4-99", of_spec())),
    ("an affinity that matches nothing", "NodeAffinityMismatch", of_spec(affinity={
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    })),
    ("the largest request of memory", "InsufficientResources", of_container(
        resources={"requests": {"memory": "9223372036854775807", "cpu": "1e15"}}
    )),
    ("the largest limit of GPUs", "RequestInvalid", pod(
        "bad-0", "0=node1:0\n", reading(), limits={"nvidia.com/gpu": "9223372036854775807"}
    )),
    ("a claim that does not exist", "VolumeNotBound", pod("bad-0", GOOD, literal(""), claims=("nobody-made-it",))),
)  # fmt: skip

INVENTORIES: Final = {
    "truncated JSON": "[{",
    "an object": "{}",
    "null": "null",
    "a list of null": "[null]",
    "an index as text": '[{"index":"0"}]',
    "an index below zero": '[{"index":-1}]',
    "an index beyond every integer": '[{"index":99999999999999999999}]',
    "null for UUID and MIG devices": '[{"index":0,"uuid":null,"migDevices":null}]',
    "one device twice": json.dumps([device(0), device(0)]),
    "20,000 opening brackets": "[" * 20_000,
    "2,400 devices": json.dumps([device(number) for number in range(2400)]),
    "unicode": '[{"index":0,"uuid":"\u202eGPU"}]',
    "NaN": '[{"index":NaN}]',
}


def odd_node(inventory: str) -> Object:
    """Return the node `odd` with this text as its inventory annotation."""
    annotations = {"agentaflow.gpu/devices": inventory}
    return node("odd", annotations=annotations, labels={"gpu-node-name": "odd"}, room={"nvidia.com/gpu": "0"})
