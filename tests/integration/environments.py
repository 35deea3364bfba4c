"""Environment variables of containers: those that the ledger can hold with keep-env, and those that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.messages import text_of

if TYPE_CHECKING:
    from tests.objects import Object

GPU: Final = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
MIG: Final = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"


def visible(value: str) -> Object:
    """Return CUDA_VISIBLE_DEVICES with this value."""
    return {"name": "CUDA_VISIBLE_DEVICES", "value": value}


def _from(**source: Object) -> Object:
    return {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": source}


BOOKED: Final[dict[str, Object]] = {
    "a number": visible("3"),
    "numbers": visible("2,0"),
    "the largest number": visible("2147483647"),
    "a UUID": visible(GPU),
    "UUIDs": visible(f"{GPU},{GPU[:-1]}0"),
    "a MIG device": visible(MIG),
    "minus one, which means no GPU": visible("-1"),
    "an empty value": visible(""),
}

_VALUES: Final = {
    "an expansion": "$(FOO)",
    "an expansion behind a number": "0,$(FOO)",
    "an escaped expansion": "$$(FOO)",
    "a UUID without its last character": GPU[:-1],
    "an abbreviated UUID": GPU[:12],
    "the prefix of a UUID alone": "GPU-",
    "a UUID in capitals": GPU.upper(),
    "the older name of a MIG device": f"MIG-{GPU}/1/0",
    "a plus sign": "+0,+1",
    "minus two": "-2",
    "minus one before a number": "-1,0",
    "minus one after a number": "0,-1",
    "a leading zero": "00",
    "a space before": " 0",
    "a space after": "0 ",
    "a space between": "0, 1",
    "a newline": "0\n",
    "text after a number and a comma": "0,x",
    "text after a number": "0x",
    "an empty part": "0,,1",
    "a comma at the end": "0,",
    "an Arabic digit": "\u0661",
    "a number and a UUID": f"0,{GPU}",
    "all, as in NVIDIA_VISIBLE_DEVICES": "all",
    "a number that is too large": "2147483648",
    "a number of 100 digits": "9" * 100,
}

NOT_BOOKED: Final[dict[str, Object]] = {
    **{name: visible(value) for name, value in _VALUES.items()},
    "a config map's key": _from(configMapKeyRef={"name": "devices", "key": "devices"}),
    "a secret's key": _from(secretKeyRef={"name": "devices", "key": "devices"}),
    "an annotation of the user": _from(fieldRef={"fieldPath": "metadata.annotations['mine']"}),
    "another annotation of ours": _from(fieldRef={"fieldPath": "metadata.annotations['agentaflow.gpu/index']"}),
    "a label of the user": _from(fieldRef={"fieldPath": "metadata.labels['mine']"}),
    "the pod's name": _from(fieldRef={"fieldPath": "metadata.name"}),
    "a limit": _from(resourceFieldRef={"containerName": "stubborn", "resource": "limits.cpu"}),
    "another device order": {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"},
    "a device order without a value": {"name": "CUDA_DEVICE_ORDER"},
    "a device order from a config map": {
        "name": "CUDA_DEVICE_ORDER",
        "valueFrom": {"configMapKeyRef": {"name": "devices", "key": "order"}},
    },
}

TOO_LONG: Final[dict[str, Object]] = {
    "a value of 4,097 characters": visible(",".join(["10", *map(str, range(1000, 1819))])),
    "a value of 100 kB": visible(",".join(["0"] * 50_000)),
}
"""Webhook and scheduler name the length in their message. The policies refuse them like any other spelling."""

ALL: Final[dict[str, Object]] = {**BOOKED, **NOT_BOOKED}

LIMITED: Final = (
    *("index", "count", "memory", "exclusive", "type", "scheduling-strategy", "priority", "sharing", "observer"),
    "keep-env",
)
TOO_LARGE: Final = "what a pod has is too large to be read"


def too_long(key: str, size: int, prefix: str = "agentaflow.gpu/") -> str:
    """Return the message about an annotation of this many bytes."""
    reason = "IndexUnknown" if key.endswith("index") else "RequestInvalid"
    return text_of(TOO_LARGE, reason=reason, what=f"annotation {prefix}{key}", size=f"{size} bytes", most=63)


EXCESS: Final[dict[str, tuple[Object, str]]] = {
    **{
        f"annotation {key}": ({"annotations": {f"agentaflow.gpu/{key}": "1" * 64}}, too_long(key, 64))
        for key in LIMITED
    },
    "the completion index": (
        {"annotations": {"batch.kubernetes.io/job-completion-index": "1" * 64}},
        too_long("job-completion-index", 64, "batch.kubernetes.io/"),
    ),
    "a map of too many bytes in few characters": (
        {"annotations": {"gpu-scheduling-map": "0=node1:0\n#" + "\u00e9" * 32768}},
        text_of("a map is too large"),
    ),
    "a thousand and one containers": (
        {"containers": [{"name": f"c-{n}", "image": "none"} for n in range(600)]}
        | {"initContainers": [{"name": f"i-{n}", "image": "none"} for n in range(401)]},
        text_of("a policy refuses a pod with too many containers"),
    ),
    "more than 4,000 entries of our variables": (
        {"containers": [{"name": "main", "image": "none", "env": [visible("")] * 4001}]},
        text_of("a policy refuses a pod with too many entries of our variables"),
    ),
}
"""Pods that exceed a bound: the fields of the pod, and the message by which a policy refuses it."""
