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
        plain(),
        asker("0=node1:0\n1=node9:x\n"),
        (Remedy(anew(asker())),),
    ),
    Case(
        "a map with one index on two lines names both lines",
        ("map-6", "text-7"),
        plain(),
        asker("0=node1:0\n0=node1:1\n"),
        (Remedy(anew(asker())),),
    ),
    Case(
        "a pod whose index is no number waits until it is made anew",
        ("text-7", "index-1"),
        plain(),
        asker(annotations=ours(index="first")),
        (Remedy(anew(asker(annotations=ours(index="0")))),),
    ),
    Case(
        "an annotated index without a line waits until one of them is corrected",
        ("text-7", "index-1"),
        plain(),
        asker(annotations=ours(index="4")),
        (
            Remedy(anew(asker(annotations=ours(index="0")))),
            Remedy(anew(asker("0=node1:1\n4=node1:0\n", annotations=ours(index="4")))),
        ),
    ),
    Case(
        "a replica without a line waits until there are fewer replicas or more lines",
        ("text-7", "index-1"),
        plain(pod("train-0", LINE, literal("0"), owner=("StatefulSet", "train"))),
        pod("train-1", LINE, literal("1"), owner=("StatefulSet", "train")),
        (
            Remedy(gone("train-1"), pod="train-0"),
            Remedy(
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
        plain(),
        asker(annotations=ours(observer="yes")),
        (Remedy(anew(asker(annotations=ours(observer="true")))), Remedy(anew(asker()))),
    ),
    Case(
        "a pod without a grace period waits until it is made anew",
        ("text-7",),
        plain(),
        asker(terminationGracePeriodSeconds=0),
        (Remedy(anew(asker(terminationGracePeriodSeconds=30))), Remedy(anew(asker()))),
    ),
    Case(
        "a limit of GPUs in two containers is refused",
        ("limit-3", "text-7"),
        cluster(node("node1", room={"nvidia.com/gpu": "8"})),
        in_two("2", "1"),
        (Remedy(anew(in_two("2", None))),),
        "0,1",
    ),
    Case(
        "a limit that is not the number of GPUs of the line is refused",
        ("text-7",),
        plain(),
        asker(LINE, reading(), limits=BOTH),
        (
            Remedy(anew(asker(LINE, reading(), limits=ONE))),
            Remedy(anew(asker("0=node1:0,1\n", reading(), limits=BOTH)), given="0,1"),
        ),
    ),
    Case(
        "a count that is no number is refused",
        ("text-7",),
        cluster(DEVICES),
        of_strategy(annotations=ours(count="two")),
        (Remedy(anew(of_strategy(annotations=ours(count="1")))), Remedy(anew(asker()))),
    ),
    Case(
        "a pod that shares GPUs must say how much memory it takes",
        ("text-7",),
        cluster(node("node1", annotations=inventory({**device(0), "memoryTotalMiB": 40960}))),
        of_strategy(annotations=ours(count="1", exclusive="false")),
        (
            Remedy(anew(of_strategy(annotations=ours(count="1", exclusive="false", memory="8192")))),
            Remedy(anew(of_strategy(annotations=ours(count="1")))),
        ),
    ),
    Case(
        "a pod without a map cannot keep GPUs of its own",
        ("text-7", "env-12"),
        cluster(DEVICES),
        of_strategy(literal("1"), annotations={**ours(count="1"), **KEEP}),
        (Remedy(anew(of_strategy(annotations={**ours(count="1"), **KEEP}))), Remedy(anew(asker(annotations=KEEP)))),
    ),
    Case(
        "a pod with a map and required affinity to other pods is refused",
        ("fit-14", "text-7"),
        plain(),
        asker(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}),
        (Remedy(anew(asker())),),
    ),
    Case(
        "a pod with a count and a hard topology spread is refused",
        ("fit-14", "text-7"),
        cluster(node("node1", annotations=inventory(device(0)), labels={"kubernetes.io/arch": "amd64"})),
        counting(topologySpreadConstraints=[SPREAD]),
        (Remedy(anew(counting(nodeSelector={"kubernetes.io/arch": "amd64"}))),),
    ),
)

NOTHING: Final = (
    Case(
        "the message of a pod that asks for nothing names the annotations to write",
        ("text-10",),
        cluster(DEVICES),
        of_strategy(),
        (Remedy(anew(asker())), Remedy(anew(counting())), Remedy(_of_another_scheduler, given="")),
    ),
    Case(
        "the message of a pod with only a limit says what to add",
        ("text-10",),
        cluster(DEVICES),
        of_strategy(limits=ONE),
        (Remedy(anew(of_strategy(limits=ONE, annotations=ours(scheduling_strategy="least_utilized")))),),
    ),
    Case(
        "the message of a pod with a misspelt annotation names the nearest one",
        ("text-13",),
        cluster(DEVICES),
        of_strategy(annotations=ours(cout="1")),
        (
            Remedy(anew(counting())),
            Remedy(anew(asker())),
            Remedy(anew(counting())),
            Remedy(_of_another_scheduler, given=""),
        ),
    ),
)

ENVIRONMENT: Final = (
    Case(
        "a pod that no webhook reviewed waits until it is made anew",
        ("gate-1", "gate-2"),
        plain(),
        asker(env=[]),
        (Remedy(anew(asker())), Remedy(anew(asker()))),
    ),
    Case(
        "a container that sets another value waits until its pod is made anew",
        ("gate-1", "gate-3"),
        plain(),
        asker(env=literal("1")),
        (Remedy(anew(asker())), Remedy(anew(asker(env=literal("1"), annotations=KEEP)))),
    ),
    Case(
        "a container that sets a value where the line has none waits",
        ("gate-1", "gate-3"),
        plain(),
        asker("0=node1:\n", literal("0")),
        (
            Remedy(anew(asker("0=node1:\n", literal("")))),
            Remedy(anew(asker("0=node1:\n", literal("0"), annotations=KEEP))),
        ),
        "",
    ),
    Case(
        "a container that takes the value from elsewhere waits",
        ("gate-3",),
        plain(),
        asker(env=_visible(valueFrom={"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}})),
        (Remedy(anew(asker())),),
    ),
    Case(
        "a value that cannot be kept is refused with the rule",
        ("env-12",),
        plain(),
        asker(env=literal("+0"), annotations=KEEP),
        (Remedy(anew(asker(env=literal("0,1"), annotations=KEEP))), Remedy(anew(asker(annotations=KEEP)))),
    ),
    Case(
        "an order in which numbers mean other devices is not kept",
        ("env-12",),
        plain(),
        asker(env=[literal("0")[0], ORDER], annotations=KEEP),
        (Remedy(anew(asker(annotations=KEEP))),),
    ),
)

CASES: Final = (*MAPS, *REQUESTS, *NOTHING, *ENVIRONMENT)
