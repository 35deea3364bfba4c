"""A second model of every container's environment, on the pod's JSON, compared with the review."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.pods.container_env import ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from unit_tests.core.build import container, decided, node, nodes, pod

Json = dict[str, Any]

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
OURS = {"fieldRef": {"fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}}
LATER: Json = {"name": VISIBLE, "valueFrom": OURS}
BY_BUS: Json = {"name": ORDER, "value": "PCI_BUS_ID"}

# Kind of request → how the pod is built, and the value of its line if it is known beforehand.
REQUESTS: dict[str, tuple[Json, str | None]] = {
    "a line": ({"name": "train-1"}, "2"),
    "a line without GPUs": ({"name": "train-5", "text": "5=node1:"}, ""),
    "any line": ({"name": "train"}, None),
    "a line and a limit": ({"name": "train-1", "gpu_limits": (("containers-0", 1),)}, None),
    "a number of GPUs": ({"name": "train-1", "text": None, "more": {"agentaflow.gpu/count": "1"}}, None),
    "a number of GPUs and a limit": (
        {
            "name": "train-1",
            "text": None,
            "more": {"agentaflow.gpu/scheduling-strategy": "best_fit"},
            "gpu_limits": (("containers-0", 1),),
        },
        None,
    ),
}

NODES = tuple(node(f"node{number}", inventory=counted(4)) for number in range(1, 5))

ENTRIES = st.sampled_from(
    [
        {"name": VISIBLE, "value": "2"},
        {"name": VISIBLE, "value": "3"},
        {"name": VISIBLE, "value": "$(HOME)"},
        {"name": VISIBLE, "value": ""},
        {"name": VISIBLE},
        LATER,
        {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": VISIBLE, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        BY_BUS,
        {"name": ORDER, "value": "FASTEST_FIRST"},
        {"name": "HOME", "value": "/"},
        {"name": "GPUS", "value": "$(CUDA_VISIBLE_DEVICES)"},
    ]
)
CONTAINERS = st.lists(st.one_of(st.none(), st.lists(ENTRIES, max_size=3)), max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Json, str, bool]:
    """Draw a spec as the API writes it, its kind of request, and whether it keeps variables."""
    lists = {"containers": draw(CONTAINERS), "initContainers": draw(CONTAINERS)}
    spec = {
        kind: [
            {"name": f"{kind}-{position}", **({} if env is None else {"env": env})} for position, env in enumerate(envs)
        ]
        for kind, envs in lists.items()
    }
    return spec, draw(st.sampled_from(sorted(REQUESTS))), draw(st.booleans())


def expected(spec: Json, way: str, *, keeps: bool) -> Json | Reason:
    """Return the spec after the review, or the reason of its refusal."""
    value = REQUESTS[way][1]
    if keeps and way.startswith("a number of GPUs") and names_a_gpu(spec):
        return Reason.REQUEST_INVALID
    see = LATER if value is None else {"name": VISIBLE, "value": value}
    result = copy.deepcopy(spec)
    for each in (*result["containers"], *result["initContainers"]):
        own = each.get("env", [])
        for entry in own:
            complete = entry if "valueFrom" in entry else {"value": "", **entry}
            kept = keeps and entry["name"] == VISIBLE and complete.get("value") in {"2", "3", ""}
            if entry["name"] in {VISIBLE, ORDER} and complete not in (see, LATER, BY_BUS) and not kept:
                return Reason.ENV_CONFLICT
        there = {entry["name"] for entry in own}
        each["env"] = [entry for entry in (see, BY_BUS) if entry["name"] not in there] + own
    return result


def names_a_gpu(spec: Json) -> bool:
    entries = (entry for group in spec.values() for each in group for entry in each.get("env", []))
    return any(entry["name"] == VISIBLE and entry.get("value", "").isdigit() for entry in entries)


def read(spec: Json, way: str, *, keeps: bool) -> Pod:
    containers = tuple(
        container(None if "env" not in each else tuple(entries(each["env"])), ContainerKind(kind), at, each["name"])
        for kind, group in spec.items()
        for at, each in enumerate(group)
    )
    asks = dict(REQUESTS[way][0])
    annotations = {"agentaflow.gpu/keep-env": str(keeps).lower(), **asks.pop("more", {})}
    return pod(annotations=annotations, containers=containers, **asks)


def entries(env: list[Json]) -> Iterator[EnvVar]:
    for each in env:
        if each["name"] in {VISIBLE, ORDER}:
            source = each.get("valueFrom")
            path = (source or {}).get("fieldRef", {}).get("fieldPath")
            yield EnvVar(each["name"], each.get("value", "") if source is None else None, path)


def patched(spec: Json, patches: tuple[AddOp, ...]) -> Json:
    """Apply `add` of RFC 6902, as far as the webhook uses it."""
    result: Json = {"spec": copy.deepcopy(spec)}
    for patch in patches:
        *parents, last = patch.path.removeprefix("/").split("/")
        target: Any = result
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        if isinstance(target, list):
            target.insert(int(last), patch.value)
        else:
            assert last not in target
            target[last] = patch.value
    spec_after: Json = result["spec"]
    return spec_after


@given(cases())
def test_the_review_equals_the_model(case: tuple[Json, str, bool]) -> None:
    """Every container sees its pod's GPUs and keeps its variables, or the pod is refused; never anything between."""
    spec, way, keeps = case
    verdict = review_pod(read(spec, way, keeps=keeps), "", "gpu-scheduler")
    wanted = expected(spec, way, keeps=keeps)

    if isinstance(wanted, Reason):
        assert isinstance(verdict, Deny)
        assert verdict.reason is wanted
    else:
        assert isinstance(verdict, Admit)
        assert wanted == patched(spec, verdict.patches)
        assert bool(verdict.patches) is (verdict.log is not None)


@given(cases())
def test_a_reviewed_pod_needs_no_second_patch_and_passes_the_bind_gate(case: tuple[Json, str, bool]) -> None:
    """A second review adds nothing to the first, and the scheduler agrees with both."""
    spec, way, keeps = case
    verdict = review_pod(read(spec, way, keeps=keeps), "", "gpu-scheduler")
    if isinstance(verdict, Deny):
        return
    again = read(patched(spec, verdict.patches), way, keeps=keeps)

    assert Admit() == review_pod(again, "", "gpu-scheduler")
    assert isinstance(decided(again, known=nodes(*NODES)), Bind)
