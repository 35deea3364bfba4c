"""Environments that a container may keep, those that nobody could book, and what a pod has too much of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.objects import Object

GPU: Final = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
MIG: Final = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"


def visible(value: str) -> Object:
    """CUDA_VISIBLE_DEVICES with this value."""
    return {"name": "CUDA_VISIBLE_DEVICES", "value": value}


def _from(**source: Object) -> Object:
    return {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": source}


BOOKED: Final[dict[str, Object]] = {
    "a number": visible("3"),
    "numbers": visible("2,0"),
    "the largest number": visible("2147483647"),
    "a UUID": visible(GPU),
    "UUIDs": visible(f"{GPU},{GPU[:-1]}0"),
    "a MIG slice": visible(MIG),
    "the word for no GPU": visible("-1"),
    "nothing": visible(""),
}

_VALUES: Final = {
    "an expansion": "$(FOO)",
    "an expansion behind a number": "0,$(FOO)",
    "an escaped expansion": "$$(FOO)",
    "a UUID cut short": GPU[:-1],
    "a UUID as people abbreviate it": GPU[:12],
    "the beginning of every UUID": "GPU-",
    "a UUID in capitals": GPU.upper(),
    "an older name of a MIG slice": f"MIG-{GPU}/1/0",
    "a plus sign": "+0,+1",
    "a minus sign": "-2",
    "no GPU, then one": "-1,0",
    "a GPU, then none": "0,-1",
    "a leading zero": "00",
    "a space before": " 0",
    "a space behind": "0 ",
    "a space between": "0, 1",
    "a line end": "0\n",
    "text behind a number": "0,x",
    "text at a number": "0x",
    "an empty part": "0,,1",
    "a comma at the end": "0,",
    "other digits": "\u0661",
    "two kinds": f"0,{GPU}",
    "every GPU, as others say it": "all",
    "a number that is too large": "2147483648",
    "a number without end": "9" * 100,
}

NOT_BOOKED: Final[dict[str, Object]] = {
    **{name: visible(value) for name, value in _VALUES.items()},
    "a config map's key": _from(configMapKeyRef={"name": "devices", "key": "devices"}),
    "a secret's key": _from(secretKeyRef={"name": "devices", "key": "devices"}),
    "an annotation of its own": _from(fieldRef={"fieldPath": "metadata.annotations['mine']"}),
    "another annotation of ours": _from(fieldRef={"fieldPath": "metadata.annotations['agentaflow.gpu/index']"}),
    "a label of its own": _from(fieldRef={"fieldPath": "metadata.labels['mine']"}),
    "its name": _from(fieldRef={"fieldPath": "metadata.name"}),
    "a limit": _from(resourceFieldRef={"containerName": "stubborn", "resource": "limits.cpu"}),
    "another order": {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"},
    "an order without a value": {"name": "CUDA_DEVICE_ORDER"},
    "an order from elsewhere": {
        "name": "CUDA_DEVICE_ORDER",
        "valueFrom": {"configMapKeyRef": {"name": "devices", "key": "order"}},
    },
}

TOO_LONG: Final[dict[str, Object]] = {
    "a value of 4,097 characters": visible(",".join(["10", *map(str, range(1000, 1819))])),
    "a value of 100 kB": visible(",".join(["0"] * 50_000)),
}
"""Webhook and scheduler say how long; the policies take them for another spelling."""

ALL: Final[dict[str, Object]] = {**BOOKED, **NOT_BOOKED}

LIMITED: Final = (
    *("index", "count", "memory", "exclusive", "type", "scheduling-strategy", "priority", "sharing", "observer"),
    "keep-env",
)
EXCESS: Final[dict[str, tuple[Object, str]]] = {
    **{
        f"annotation {key}": (
            {"annotations": {f"agentaflow.gpu/{key}": "1" * 64}},
            f"{'IndexUnknown' if key == 'index' else 'RequestInvalid'}: cannot read annotation agentaflow.gpu/{key}: ",
        )
        for key in LIMITED
    },
    "the completion index": (
        {"annotations": {"batch.kubernetes.io/job-completion-index": "1" * 64}},
        "IndexUnknown: cannot read annotation batch.kubernetes.io/job-completion-index: it has 64 bytes",
    ),
    "a map of too many bytes in few characters": (
        {"annotations": {"gpu-scheduling-map": "0=node1:0\n#" + "\u00e9" * 32768}},
        "MapInvalid: cannot read placement map: it must have at most 65536 bytes",
    ),
    "a thousand and one containers": (
        {"containers": [{"name": f"c-{n}", "image": "none"} for n in range(600)]}
        | {"initContainers": [{"name": f"i-{n}", "image": "none"} for n in range(401)]},
        "RequestInvalid: cannot read the pod: it has more than 1000 containers",
    ),
    "more entries of our variables than they could need": (
        {"containers": [{"name": "main", "image": "none", "env": [visible("")] * 4001}]},
        "RequestInvalid: cannot read the pod: it has more than 4000 entries of CUDA_VISIBLE_DEVICES and CUDA_DEVICE",
    ),
}
"""What a pod may have too much of, and how its refusal begins."""
