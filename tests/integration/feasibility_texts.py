"""Rows of messages: what a pod's own text asks for. The webhook did not review these pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests import objects
from tests.integration.feasibility_case import LINE, Case, asker, cluster, counting, plain
from tests.integration.remedies import Remedy, anew, gone
from tests.objects import device, inventory, literal, node, pod, reading

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace
    from tests.objects import Object

KEEP: Final = {"agentaflow.gpu/keep-env": "true"}
ONE: Final = {"nvidia.com/gpu": "1"}
BOTH: Final = {"nvidia.com/gpu": "2"}
DEVICES: Final = node("node1", annotations=inventory(device(0), device(1)))
SPREAD: Final = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
ORDER: Final = {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}


def _visible(**entry: object) -> list[Object]:
    return [{"name": "CUDA_VISIBLE_DEVICES", **entry}, {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}]


def ours(**annotations: str) -> Object:
    """Return annotations of ours. An underscore in a name stands for a hyphen."""
    return {f"agentaflow.gpu/{key.replace('_', '-')}": text for key, text in annotations.items()}


def of_strategy(env: list[Object] | None = None, **more: object) -> Object:
    """Return a pod without a map."""
    return pod("asker-0", None, reading() if env is None else env, **more)


def in_two(first: str, second: str | None) -> Object:
    """Return a pod with two containers that have these limits of GPUs."""
    body = asker("0=node1:0,1\n", reading(), limits={"nvidia.com/gpu": first})
    sidecar = {**body["spec"]["containers"][0], "name": "second"}
    limited = {"resources": {"limits": {"nvidia.com/gpu": second}}} if second else {"resources": {}}
    body["spec"]["containers"].append({**sidecar, **limited})
    return body


def _of_another_scheduler(namespace: Namespace) -> None:
    """Make the pod anew without schedulerName. The tests' API server has no scheduler of its own, so bind it here."""
    body = pod("asker-0", None, [])
    del body["spec"]["schedulerName"]
    anew(body)(namespace)
    assert namespace.read("asker-0")["spec"]["schedulerName"] == "default-scheduler"
    namespace.kube.create(f"{namespace.pods}/asker-0/binding", objects.binding("asker-0"))


MAPS: Final = (
    Case(
        "a pod with an invalid map waits until it is made anew",
        ("map-6", "text-7"),
        (
            'MapInvalid: cannot read placement map, line 2: "1=node9:x": GPU must be a number, GPU-<uuid> or '
            "MIG-<uuid> (example: 1=node2:0,1); correct annotation gpu-scheduling-map in the pod's template or "
            "manifest, and make the pod anew"
        ),
        plain(),
        asker("0=node1:0\n1=node9:x\n"),
        (Remedy("correct annotation gpu-scheduling-map", anew(asker())),),
    ),
    Case(
        "a map with one index on two lines names both lines",
        ("map-6", "text-7"),
        (
            'MapInvalid: cannot read placement map, line 2: "0=node1:1": index 0 must stand once, and line 1 has it '
            "(example: 1=node2:0,1); correct annotation gpu-scheduling-map in the pod's template or manifest, and "
            "make the pod anew"
        ),
        plain(),
        asker("0=node1:0\n0=node1:1\n"),
        (Remedy("correct annotation gpu-scheduling-map", anew(asker())),),
    ),
    Case(
        "a pod whose index is no number waits until it is made anew",
        ("text-7", "index-1"),
        (
            'IndexUnknown: cannot read annotation agentaflow.gpu/index: "first": an index must be a number without '
            'sign or leading zero, at most 2147483647; correct it (example: agentaflow.gpu/index: "0") in the pod\'s '
            "template or manifest, and make the pod anew"
        ),
        plain(),
        asker(annotations=ours(index="first")),
        (Remedy('correct it (example: agentaflow.gpu/index: "0")', anew(asker(annotations=ours(index="0")))),),
    ),
    Case(
        "an annotated index without a line waits until one of them is corrected",
        ("text-7", "index-1"),
        (
            "IndexNotInMap: cannot find index 4 in the map: it has lines for 0; correct annotation "
            "agentaflow.gpu/index or add a line (example: 4=node1:0) in the pod's template or manifest, and make the "
            "pod anew"
        ),
        plain(),
        asker(annotations=ours(index="4")),
        (
            Remedy("correct annotation agentaflow.gpu/index", anew(asker(annotations=ours(index="0")))),
            Remedy(
                "add a line (example: 4=node1:0)",
                anew(asker("0=node1:1\n4=node1:0\n", annotations=ours(index="4"))),
            ),
        ),
    ),
    Case(
        "a replica without a line waits until there are fewer replicas or more lines",
        ("text-7", "index-1"),
        (
            "IndexNotInMap: cannot find index 1 in the map: it has lines for 0; run fewer replicas, or add a line "
            "(example: 1=node1:0) in the pod's template or manifest, and make the pod anew"
        ),
        plain(pod("train-0", LINE, literal("0"), owner=("StatefulSet", "train"))),
        pod("train-1", LINE, literal("1"), owner=("StatefulSet", "train")),
        (
            Remedy("run fewer replicas", gone("train-1"), pod="train-0"),
            Remedy(
                "add a line (example: 1=node1:0)",
                anew(
                    pod("train-1", "0=node1:0\n1=node1:1\n", literal("1"), owner=("StatefulSet", "train")),
                    name="train-1",
                ),
                given="1",
            ),
        ),
    ),
)

REQUESTS: Final = (
    Case(
        "a pod with an invalid annotation waits until it is made anew",
        ("text-7",),
        (
            'RequestInvalid: cannot read annotation agentaflow.gpu/observer: "yes": it must be "true" or "false"; '
            'correct it (example: agentaflow.gpu/observer: "true") or leave it out in the pod\'s template or manifest, '
            "and make the pod anew"
        ),
        plain(),
        asker(annotations=ours(observer="yes")),
        (
            Remedy(
                'correct it (example: agentaflow.gpu/observer: "true")', anew(asker(annotations=ours(observer="true")))
            ),
            Remedy("leave it out", anew(asker())),
        ),
    ),
    Case(
        "a limit of GPUs in two containers is refused",
        ("limit-3", "text-7"),
        (
            'RequestInvalid: cannot read limit nvidia.com/gpu: 1 of container "second": one container of a pod must '
            'have that limit, and "main" has it; leave it out of all but one (example: nvidia.com/gpu: 2 in "main") '
            "in the pod's template or manifest, and make the pod anew"
        ),
        cluster(node("node1", room={"nvidia.com/gpu": "8"})),
        in_two("2", "1"),
        (Remedy('leave it out of all but one (example: nvidia.com/gpu: 2 in "main")', anew(in_two("2", None))),),
        "0,1",
    ),
    Case(
        "a limit that is not the number of GPUs of the line is refused",
        ("text-7",),
        (
            'RequestInvalid: cannot read limit nvidia.com/gpu: 2 of container "main": it must be as many as the map\'s '
            "line for index 0 names, which are 1; correct it (example: nvidia.com/gpu: 1) or correct the line in the "
            "pod's template or manifest, and make the pod anew"
        ),
        plain(),
        asker(LINE, reading(), limits=BOTH),
        (
            Remedy("correct it (example: nvidia.com/gpu: 1)", anew(asker(LINE, reading(), limits=ONE))),
            Remedy("correct the line", anew(asker("0=node1:0,1\n", reading(), limits=BOTH)), given="0,1"),
        ),
    ),
    Case(
        "a count that is no number is refused",
        ("text-7",),
        (
            'RequestInvalid: cannot read annotation agentaflow.gpu/count: "two": it must be a number from 1 to 1024, '
            'without plus sign or leading zero; correct it (example: agentaflow.gpu/count: "1") or write a map '
            "instead in the pod's template or manifest, and make the pod anew"
        ),
        cluster(DEVICES),
        of_strategy(annotations=ours(count="two")),
        (
            Remedy('correct it (example: agentaflow.gpu/count: "1")', anew(of_strategy(annotations=ours(count="1")))),
            Remedy("write a map instead", anew(asker())),
        ),
    ),
    Case(
        "a pod that shares GPUs must say how much memory it takes",
        ("text-7",),
        (
            'RequestInvalid: cannot share GPUs by annotation agentaflow.gpu/exclusive: "false": annotation '
            "agentaflow.gpu/memory must say how many MiB of each the pod takes; write it (example: "
            'agentaflow.gpu/memory: "8192") or leave out agentaflow.gpu/exclusive in the pod\'s template or manifest, '
            "and make the pod anew"
        ),
        cluster(node("node1", annotations=inventory({**device(0), "memoryTotalMiB": 40960}))),
        of_strategy(annotations=ours(count="1", exclusive="false")),
        (
            Remedy(
                'write it (example: agentaflow.gpu/memory: "8192")',
                anew(of_strategy(annotations=ours(count="1", exclusive="false", memory="8192"))),
            ),
            Remedy("leave out agentaflow.gpu/exclusive", anew(of_strategy(annotations=ours(count="1")))),
        ),
    ),
    Case(
        "a pod without a map cannot keep GPUs of its own",
        ("text-7", "env-12"),
        (
            'RequestInvalid: cannot keep CUDA_VISIBLE_DEVICES="1": the GPUs of a pod without a map are chosen when it '
            "is placed; leave the variable out of its containers or write a map (annotation gpu-scheduling-map, "
            'example: "0=node1:0,1") in the pod\'s template or manifest, and make the pod anew'
        ),
        cluster(DEVICES),
        of_strategy(literal("1"), annotations={**ours(count="1"), **KEEP}),
        (
            Remedy(
                "leave the variable out of its containers", anew(of_strategy(annotations={**ours(count="1"), **KEEP}))
            ),
            Remedy(
                'write a map (annotation gpu-scheduling-map, example: "0=node1:0,1")',
                anew(asker(annotations=KEEP)),
            ),
        ),
    ),
    Case(
        "a pod with a map and required affinity to other pods is refused",
        ("fit-14", "text-7"),
        (
            "Unsupported: cannot place a pod by "
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution: this scheduler does not read "
            'it; the map already says the node (annotation gpu-scheduling-map, example: "0=node1:0,1"): leave it out '
            "in the pod's template or manifest, and make the pod anew"
        ),
        plain(),
        asker(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}),
        (
            Remedy(
                'the map already says the node (annotation gpu-scheduling-map, example: "0=node1:0,1"): leave it out',
                anew(asker()),
            ),
        ),
    ),
    Case(
        "a pod with a count and a hard topology spread is refused",
        ("fit-14", "text-7"),
        (
            "Unsupported: cannot place a pod by spec.topologySpreadConstraints: this scheduler does not read it; "
            'nodeSelector and required node affinity are read (example: nodeSelector: {"kubernetes.io/arch": '
            '"amd64"}): leave it out in the pod\'s template or manifest, and make the pod anew'
        ),
        cluster(node("node1", annotations=inventory(device(0)), labels={"kubernetes.io/arch": "amd64"})),
        counting(topologySpreadConstraints=[SPREAD]),
        (
            Remedy(
                "nodeSelector and required node affinity are read "
                '(example: nodeSelector: {"kubernetes.io/arch": "amd64"}): leave it out',
                anew(counting(nodeSelector={"kubernetes.io/arch": "amd64"})),
            ),
        ),
    ),
)

NOTHING: Final = (
    Case(
        "the message of a pod that asks for nothing names the annotations to write",
        ("text-10",),
        (
            'NothingRequested: cannot place a pod that asks for nothing: it has schedulerName "gpu-scheduler" but '
            'neither a map nor a count; write one (annotation gpu-scheduling-map, example: "0=node1:0,1", or '
            'annotation agentaflow.gpu/count, example: "1") or leave out schedulerName in the pod\'s template or '
            "manifest, and make the pod anew"
        ),
        cluster(DEVICES),
        of_strategy(),
        (
            Remedy('write one (annotation gpu-scheduling-map, example: "0=node1:0,1"', anew(asker())),
            Remedy('or annotation agentaflow.gpu/count, example: "1")', anew(counting())),
            Remedy("leave out schedulerName", _of_another_scheduler, given=""),
        ),
    ),
    Case(
        "the message of a pod with only a limit says what to add",
        ("text-10",),
        (
            'NothingRequested: cannot place a pod by limit nvidia.com/gpu: 1 of container "main" alone: the limit '
            "asks for GPUs only beside annotation agentaflow.gpu/scheduling-strategy or a map; add one (example: "
            'agentaflow.gpu/scheduling-strategy: "least_utilized") in the pod\'s template or manifest, and make the '
            "pod anew"
        ),
        cluster(DEVICES),
        of_strategy(limits=ONE),
        (
            Remedy(
                'add one (example: agentaflow.gpu/scheduling-strategy: "least_utilized")',
                anew(of_strategy(limits=ONE, annotations=ours(scheduling_strategy="least_utilized"))),
            ),
        ),
    ),
    Case(
        "the message of a pod with a misspelt annotation names the nearest one",
        ("text-13",),
        (
            'NothingRequested: cannot place a pod that asks for nothing: it has schedulerName "gpu-scheduler" but '
            'neither a map nor a count; annotation "agentaflow.gpu/cout" is unknown: did you mean '
            'agentaflow.gpu/count?; write one (annotation gpu-scheduling-map, example: "0=node1:0,1", or annotation '
            'agentaflow.gpu/count, example: "1") or leave out schedulerName in the pod\'s template or manifest, and '
            "make the pod anew"
        ),
        cluster(DEVICES),
        of_strategy(annotations=ours(cout="1")),
        (
            Remedy('annotation "agentaflow.gpu/cout" is unknown: did you mean agentaflow.gpu/count?', anew(counting())),
            Remedy('write one (annotation gpu-scheduling-map, example: "0=node1:0,1"', anew(asker())),
            Remedy('or annotation agentaflow.gpu/count, example: "1")', anew(counting())),
            Remedy("leave out schedulerName", _of_another_scheduler, given=""),
        ),
    ),
)

ENVIRONMENT: Final = (
    Case(
        "a pod that no webhook reviewed waits until it is made anew",
        ("gate-1", "gate-2"),
        (
            'EnvNotInjected: cannot start container "main" without CUDA_VISIBLE_DEVICES="0": it would not see its '
            "GPUs; delete the pod: its controller makes it anew and admission completes it; a bare pod must be "
            "created again"
        ),
        plain(),
        asker(env=[]),
        (
            Remedy("delete the pod: its controller makes it anew and admission completes it", anew(asker())),
            Remedy("a bare pod must be created again", anew(asker())),
        ),
    ),
    Case(
        "a container that sets another value waits until its pod is made anew",
        ("gate-1", "gate-3"),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="0" in container "main": it says "1" itself; leave the '
            'variable out or keep it with annotation agentaflow.gpu/keep-env: "true" in the pod\'s template or '
            "manifest, and make the pod anew"
        ),
        plain(),
        asker(env=literal("1")),
        (
            Remedy("leave the variable out", anew(asker())),
            Remedy(
                'keep it with annotation agentaflow.gpu/keep-env: "true"',
                anew(asker(env=literal("1"), annotations=KEEP)),
            ),
        ),
    ),
    Case(
        "a container that sets a value where the line has none waits",
        ("gate-1", "gate-3"),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="" in container "main": it says "0" itself; leave the '
            'variable out or keep it with annotation agentaflow.gpu/keep-env: "true" in the pod\'s template or '
            "manifest, and make the pod anew"
        ),
        plain(),
        asker("0=node1:\n", literal("0")),
        (
            Remedy("leave the variable out", anew(asker("0=node1:\n", literal("")))),
            Remedy(
                'keep it with annotation agentaflow.gpu/keep-env: "true"',
                anew(asker("0=node1:\n", literal("0"), annotations=KEEP)),
            ),
        ),
        "",
    ),
    Case(
        "a container that takes the value from elsewhere waits",
        ("gate-3",),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="0" in container "main": it takes it from elsewhere '
            "(valueFrom); leave the variable out in the pod's template or manifest, and make the pod anew"
        ),
        plain(),
        asker(env=_visible(valueFrom={"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}})),
        (Remedy("leave the variable out", anew(asker())),),
    ),
    Case(
        "a value that cannot be kept is refused with the rule",
        ("env-12",),
        (
            'EnvConflict: cannot keep CUDA_VISIBLE_DEVICES="+0" in container "main": what a container keeps must be '
            "GPU numbers, or full UUIDs GPU-<uuid> or MIG-<uuid>, of one kind, as a map writes them, separated by "
            'single commas, at most 4096 characters, or "" or "-1" for no GPU; correct it (example: '
            'CUDA_VISIBLE_DEVICES: "0,1") or leave it out in the pod\'s template or manifest, and make the pod anew'
        ),
        plain(),
        asker(env=literal("+0"), annotations=KEEP),
        (
            Remedy(
                'correct it (example: CUDA_VISIBLE_DEVICES: "0,1")', anew(asker(env=literal("0,1"), annotations=KEEP))
            ),
            Remedy("leave it out", anew(asker(annotations=KEEP))),
        ),
    ),
    Case(
        "an order in which numbers mean other devices is not kept",
        ("env-12",),
        (
            'EnvConflict: cannot keep CUDA_DEVICE_ORDER="FASTEST_FIRST" in container "main": it must be "PCI_BUS_ID", '
            "the order in which this scheduler numbers GPUs; leave the variable out in the pod's template or "
            "manifest, and make the pod anew"
        ),
        plain(),
        asker(env=[literal("0")[0], ORDER], annotations=KEEP),
        (Remedy("leave the variable out", anew(asker(annotations=KEEP))),),
    ),
)

CASES: Final = (*MAPS, *REQUESTS, *NOTHING, *ENVIRONMENT)
