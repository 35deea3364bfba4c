import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.decide import Bind, Refuse, decide
from gpu_scheduler.core.model import Container, ContainerKind, EnvVar, Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.review import AddOp, Admit, Deny, review_pod
from tests.core.build import FIELD_REF, PCI, POLICY, container, ledger, nodes, pod, visible

US = "gpu-scheduler"
KEEP = {"agentaflow.gpu/keep-env": "true"}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
BARE = (container(None),)


def literal(value: str) -> dict[str, object]:
    return {"name": VISIBLE, "value": value}


def reviewed(given: Pod, subresource: str = "", old: Pod | None = None) -> Admit | Deny:
    return review_pod(given, subresource, US, old)


PATCHED = {
    "a container without env gets the list": (
        pod("train-0", containers=BARE),
        [AddOp("/spec/containers/0/env", [literal("0,1"), ORDER])],
    ),
    "a container with env gets both at the front": (
        pod("train-0", containers=(container(()),)),
        [AddOp("/spec/containers/0/env/0", ORDER), AddOp("/spec/containers/0/env/0", literal("0,1"))],
    ),
    "every container and init container gets them": (
        pod(
            "train-1",
            containers=(
                container(None),
                container((), position=1),
                container(None, ContainerKind.INIT),
            ),
        ),
        [
            AddOp("/spec/containers/0/env", [literal("2"), ORDER]),
            AddOp("/spec/containers/1/env/0", ORDER),
            AddOp("/spec/containers/1/env/0", literal("2")),
            AddOp("/spec/initContainers/0/env", [literal("2"), ORDER]),
        ],
    ),
    "a line without GPUs gives an empty literal, which hides all": (
        pod("train-5", "5=node1:", containers=BARE),
        [AddOp("/spec/containers/0/env", [literal(""), ORDER])],
    ),
    "only what is missing is added": (
        pod("train-1", containers=(container((visible("2"),)),)),
        [AddOp("/spec/containers/0/env/0", ORDER)],
    ),
    "a container that another webhook added later is completed": (
        pod("train-1", containers=(container((visible("2"), PCI)), container(None, position=1))),
        [AddOp("/spec/containers/1/env", [literal("2"), ORDER])],
    ),
    "what is right is left alone": (pod("train-1", containers=(container((visible("2"), PCI)),)), []),
    "our annotation is right too": (pod("train-1", containers=(container((FIELD_REF, PCI)),)), []),
    "a kept variable is left alone": (
        pod("train-1", annotations=KEEP, containers=(container((visible("7"), PCI)),)),
        [],
    ),
    "a kept variable is the only one kept": (
        pod("train-1", annotations=KEEP, containers=(container((visible("7"),)), container(None, position=1))),
        [AddOp("/spec/containers/0/env/0", ORDER), AddOp("/spec/containers/1/env", [literal("2"), ORDER])],
    ),
    "a pod of another scheduler is left alone": (
        pod("train-0", scheduler_name="default-scheduler", containers=BARE),
        [],
    ),
    "a pod that asks for nothing is left alone": (pod("train-0", None, containers=BARE), []),
}


@pytest.mark.parametrize(("given", "patches"), PATCHED.values(), ids=PATCHED)
def test_patch(given: Pod, patches: list[AddOp]) -> None:
    """Every container sees the GPUs of its pod's line, numbered as the map numbers them."""
    verdict = reviewed(given)

    assert isinstance(verdict, Admit)
    assert tuple(patches) == verdict.patches


LOGGED = {
    "an injection": (
        pod("webhook-test-0", containers=BARE),
        "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)",
    ),
    "an injection of no GPU": (
        pod("train-5", "5=node1:", containers=BARE),
        "Injecting CUDA_VISIBLE_DEVICES= for pod train-5 (index 5)",
    ),
    "a pod whose name is yet to be generated": (
        replace(
            pod("web", annotations={"agentaflow.gpu/index": "1"}, containers=BARE),
            ref=replace(pod("web").ref, name=""),
            generate_name="web-5d9f7c-",
        ),
        "Injecting CUDA_VISIBLE_DEVICES=2 for pod web-5d9f7c-? (index 1)",
    ),
    "nothing injected": (pod("train-1", containers=(container((visible("2"), PCI)),)), None),
}


@pytest.mark.parametrize(("given", "line"), LOGGED.values(), ids=LOGGED)
def test_log(given: Pod, line: str | None) -> None:
    """One line for each pod that was changed."""
    verdict = reviewed(given)

    assert isinstance(verdict, Admit)
    assert line == verdict.log


DENIED = {
    "a map that cannot be read": pod("train-0", "nonsense", containers=BARE),
    "an index that is no number": pod("t", annotations={"agentaflow.gpu/index": "x"}, containers=BARE),
    "an index that the map does not have": pod("train-9", containers=BARE),
    "no index at all": pod("train", containers=BARE),
    "a count instead of a map": pod("train-0", None, annotations={"agentaflow.gpu/count": "2"}, containers=BARE),
    "another value in a container": pod("train-1", containers=(container((visible("7"), PCI)),)),
    "another order in a container": pod("train-1", containers=(container((visible("2"), replace(PCI, value="X"))),)),
    "another value in an init container": pod(
        "train-1",
        containers=(container(None), container((visible("7"),), ContainerKind.INIT)),
    ),
    "a right value that a second entry overrides": pod(
        "train-1",
        containers=(container((visible("2"), PCI, visible("7"))),),
    ),
}


@pytest.mark.parametrize("given", DENIED.values(), ids=DENIED)
def test_deny_as_the_scheduler_would(given: Pod) -> None:
    """One fault has one sentence, at admission and in the scheduler."""
    verdict = reviewed(given)
    decision = decide(given, ledger(), nodes(), POLICY)

    assert isinstance(verdict, Deny)
    assert isinstance(decision, Refuse)
    assert (verdict.reason, verdict.message) == (decision.reason, decision.message)


def debugger(env: tuple[EnvVar, ...] | None = None, position: int = 0, name: str = "debugger") -> Container:
    return container(env, ContainerKind.EPHEMERAL, position, name)


def debugged(given: Pod, *debuggers: Container) -> Pod:
    return replace(given, containers=given.containers + debuggers)


def path(position: int) -> str:
    return f"/spec/ephemeralContainers/{position}/env"


BY_FIELD = {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": FIELD_REF.field_path}}}
EPHEMERAL = {
    "it sees what its pod's containers see": (pod("train-0"), [debugger()], [AddOp(path(0), [literal("0,1"), ORDER])]),
    "also where they read our annotation": (
        pod("train-0", containers=(container((FIELD_REF, PCI)),)),
        [debugger()],
        [AddOp(path(0), [BY_FIELD, ORDER])],
    ),
    "also where they kept their own": (
        pod("train-0", annotations=KEEP, containers=(container((visible("7"), PCI)),)),
        [debugger()],
        [AddOp(path(0), [literal("7"), ORDER])],
    ),
    "else what the map says": (
        pod("train-0", containers=BARE),
        [debugger()],
        [AddOp(path(0), [literal("0,1"), ORDER])],
    ),
    "one without anything decided is left alone": (pod("train-0", None, containers=BARE), [debugger()], []),
    "one that is right already is left alone": (pod("train-0"), [debugger((visible("0,1"), PCI))], []),
}


@pytest.mark.parametrize(("base", "new", "patches"), EPHEMERAL.values(), ids=EPHEMERAL)
def test_debug_container(base: Pod, new: list[Container], patches: list[AddOp]) -> None:
    """A new ephemeral container is completed like any other."""
    verdict = reviewed(debugged(base, *new), "ephemeralcontainers", base)

    assert isinstance(verdict, Admit)
    assert tuple(patches) == verdict.patches


def test_old_debug_containers_are_not_touched() -> None:
    """The API refuses changes of an ephemeral container that exists, so only the new one is patched."""
    old = debugged(pod("train-0"), debugger(name="first"))
    verdict = reviewed(debugged(old, debugger(position=1, name="second")), "ephemeralcontainers", old)

    assert isinstance(verdict, Admit)
    assert (AddOp(path(1), [literal("0,1"), ORDER]),) == verdict.patches
    assert verdict.log == "Injecting CUDA_VISIBLE_DEVICES=0,1 for ephemeral containers of pod train-0"


def test_a_debug_container_with_other_devices_is_refused() -> None:
    """It may see what its pod sees, and nothing else."""
    verdict = reviewed(debugged(pod("train-0"), debugger((visible("7"),))), "ephemeralcontainers", pod("train-0"))

    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.ENV_CONFLICT


VARIABLES = st.lists(
    st.sampled_from([visible("2"), visible("7"), FIELD_REF, PCI, EnvVar("HOME", "/"), EnvVar(VISIBLE, None, None)]),
    max_size=3,
)
LISTS = st.lists(st.one_of(st.none(), VARIABLES), min_size=1, max_size=3)
BOTH = (VISIBLE, "CUDA_DEVICE_ORDER")

Json = dict[str, Any]


def spec_of(**lists: list[list[EnvVar] | None]) -> Json:
    """A pod's spec as the API writes it."""
    return {
        kind: [
            {"name": f"{kind}-{position}", **({} if env is None else {"env": [as_json(entry) for entry in env]})}
            for position, env in enumerate(envs)
        ]
        for kind, envs in lists.items()
    }


def as_json(entry: EnvVar) -> Json:
    if entry.field_path is not None:
        return {"name": entry.name, "valueFrom": {"fieldRef": {"fieldPath": entry.field_path}}}
    if entry.value is None:
        return {"name": entry.name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    return {"name": entry.name, "value": entry.value}


def read(spec: Json, annotations: dict[str, str]) -> Pod:
    """What an adapter makes of a spec."""
    containers = tuple(
        container(entries(each.get("env")), ContainerKind(kind), position, each["name"])
        for kind, containers in spec.items()
        for position, each in enumerate(containers)
    )
    return pod("train-1", annotations=annotations, containers=containers)


def entries(env: list[Json] | None) -> tuple[EnvVar, ...] | None:
    if env is None:
        return None
    return tuple(
        EnvVar(each["name"], each.get("value"), each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath"))
        for each in env
        if each["name"] in BOTH
    )


def apply_patch(document: Json, patches: tuple[AddOp, ...]) -> Json:
    """RFC 6902 `add`, as far as we use it."""
    result = copy.deepcopy(document)
    for patch in patches:
        *parents, last = patch.path.removeprefix("/").split("/")
        target: Any = result
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        if isinstance(target, list):
            target.insert(int(last), patch.value)
        else:
            target[last] = patch.value
    return result


@given(LISTS, LISTS, st.sampled_from([{}, KEEP]))
def test_twice_is_once(
    containers: list[list[EnvVar] | None], init: list[list[EnvVar] | None], annotations: dict[str, str]
) -> None:
    """A reviewed pod passes the gate, still has all it had, behind what was added, and a second review adds nothing."""
    spec = spec_of(containers=containers, initContainers=init)
    verdict = reviewed(read(spec, annotations))
    if isinstance(verdict, Deny):
        assert annotations != KEEP
        return
    patched = apply_patch({"spec": spec}, verdict.patches)["spec"]
    again = read(patched, annotations)

    assert Admit() == reviewed(again)
    assert isinstance(decide(again, ledger(), nodes(), POLICY), Bind)
    for kind, before in spec.items():
        for then, now in zip(before, patched[kind], strict=True):
            had = then.get("env", [])
            missing = [name for name in BOTH if name not in {entry["name"] for entry in had}]
            assert missing == [entry["name"] for entry in now["env"][: len(missing)]]
            assert had == now["env"][len(missing) :]
