from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from tests.messages import says
from unit_tests.core.build import FIELD_REF, KEEP, PCI, container, own, pod, seeing, visible

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
BARE = (container(None),)


def literal(value: str) -> dict[str, object]:
    return {"name": VISIBLE, "value": value}


def reviewed(given: Pod, old: Pod | None = None) -> Admit | Deny:
    return review_pod(given, "ephemeralcontainers", "gpu-scheduler", old)


def debugger(env: tuple[EnvVar, ...] | None = None, position: int = 0, name: str = "debugger") -> Container:
    return container(env, ContainerKind.EPHEMERAL, position, name)


def debugged(given: Pod, *debuggers: Container) -> Pod:
    return seeing(given, *given.environment.containers, *debuggers)


def kept(*environments: tuple[EnvVar, ...]) -> Pod:
    """Return a pod that keeps what its containers have."""
    containers = tuple(container(each, position=number) for number, each in enumerate(environments))
    return pod("train-0", annotations=KEEP, containers=containers)


def path(position: int) -> str:
    return f"/spec/ephemeralContainers/{position}/env"


BY_FIELD = {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": FIELD_REF.field_path}}}
SEEN: dict[str, tuple[Pod, dict[str, Any]]] = {
    "it sees what its pod's containers see": (pod("train-0"), literal("0,1")),
    "also if they read our annotation": (pod("train-0", containers=(container((FIELD_REF, PCI)),)), BY_FIELD),
    "also if they keep their own value": (kept((visible("7"), PCI)), literal("7")),
    "in the order in which they are held": (kept((visible("7"), replace(PCI, value="FASTEST_FIRST"))), literal("7")),
    "an old pod's kept value that is not held is not used": (
        pod("train-0", annotations=KEEP, containers=own("$(FOO)", "GPU-8c1b", "3")),
        literal("3"),
    ),
    "the line's value replaces a kept value that is not held": (
        pod("train-0", annotations=KEEP, containers=own("$(FOO)")),
        literal("0,1"),
    ),
    "the last of two entries counts": (kept((visible("7"), PCI, visible("3"))), literal("3")),
    "a value from another source is unknown": (
        kept((visible("7"), EnvVar(VISIBLE, None)), (visible("3"), EnvVar("CUDA_DEVICE_ORDER", None))),
        literal("3"),
    ),
    "an init container counts, too": (
        pod("train-0", containers=(container((visible("0,1"), PCI), ContainerKind.INIT),)),
        literal("0,1"),
    ),
    "our annotation if the line is decided later": (pod("train", containers=BARE), BY_FIELD),
    "our annotation if a device plugin decides": (pod("train-0", gpu_limits=(("main", 2),), containers=BARE), BY_FIELD),
    "our annotation if a strategy decides": (
        pod("train-0", None, annotations={"agentaflow.gpu/count": "1"}, containers=BARE),
        BY_FIELD,
    ),
    "the map's devices without another value": (pod("train-0", containers=BARE), literal("0,1")),
    "the missing annotation if nothing is decided": (pod("train-0", None, containers=BARE), BY_FIELD),
}


@pytest.mark.parametrize(("base", "seen"), SEEN.values(), ids=SEEN)
def test_a_debug_container_is_patched(base: Pod, seen: dict[str, Any]) -> None:
    """A new ephemeral container is completed like any other."""
    verdict = reviewed(debugged(base, debugger()), base)

    assert isinstance(verdict, Admit)
    assert verdict.patches == (AddOp(path(0), [seen, ORDER]),)


COMPLETE = {
    "with the kept value of its pod": (pod("train-0", annotations=KEEP, containers=own("7")), visible("7")),
    "with the devices of its pod": (pod("train-0"), visible("0,1")),
}


@pytest.mark.parametrize(("base", "seen"), COMPLETE.values(), ids=COMPLETE)
def test_a_complete_debug_container_is_left_alone(base: Pod, seen: EnvVar) -> None:
    """It needs nothing."""
    verdict = reviewed(debugged(base, debugger((seen, PCI))), base)

    assert isinstance(verdict, Admit)
    assert verdict.patches == ()


@pytest.mark.parametrize("value", [None, (visible("7"), PCI)], ids=["incomplete", "with another value"])
def test_old_debug_containers_are_not_patched(value: tuple[EnvVar, ...] | None) -> None:
    """The API refuses changes of an ephemeral container that exists. Its value does not count for the new one."""
    old = debugged(pod("train-0", containers=BARE), debugger(value, name="first"))
    verdict = reviewed(debugged(old, debugger(position=1, name="second")), old)

    assert isinstance(verdict, Admit)
    assert (AddOp(path(1), [literal("0,1"), ORDER]),) == verdict.patches
    assert verdict.log == "Injecting CUDA_VISIBLE_DEVICES=0,1 for ephemeral containers of pod train-0"


def test_the_log_names_the_annotation() -> None:
    """If the devices are decided later, the line names the annotation that will contain them."""
    base = pod("web", containers=(container((FIELD_REF, PCI)),))
    verdict = reviewed(debugged(base, debugger()), base)

    assert isinstance(verdict, Admit)
    assert verdict.log == (
        "Injecting CUDA_VISIBLE_DEVICES=(annotation agentaflow.gpu/assigned-devices) "
        "for ephemeral containers of pod web"
    )


def test_without_the_old_pod_every_debug_container_is_new() -> None:
    """A review without the old pod covers all of them."""
    verdict = reviewed(debugged(pod("train-1"), debugger(name="first"), debugger(position=1, name="second")))

    assert isinstance(verdict, Admit)
    assert (AddOp(path(0), [literal("2"), ORDER]), AddOp(path(1), [literal("2"), ORDER])) == verdict.patches


OTHERS = {
    "a pod that keeps nothing": (pod("train-0"), (visible("7"), PCI)),
    "a pod that keeps its environment": (pod("train-0", annotations=KEEP), (visible("7"), PCI)),
    "a pod that keeps devices": (pod("train-0", annotations=KEEP, containers=own("7")), (visible("6"), PCI)),
    "a pod that keeps what is not held": (
        pod("train-0", annotations=KEEP, containers=own("$(FOO)")),
        (visible("$(FOO)"), PCI),
    ),
    "no GPU": (pod("train-0", annotations=KEEP), (visible(""), PCI)),
    "another source": (pod("train-0", annotations=KEEP), (EnvVar(VISIBLE, None), PCI)),
    "another order": (pod("train-0", annotations=KEEP), (visible("0,1"), replace(PCI, value="FASTEST_FIRST"))),
    "a second entry": (pod("train-0", annotations=KEEP), (visible("0,1"), PCI, visible("7"))),
    "a pod without anything decided": (pod("train-0", None, annotations=KEEP, containers=BARE), (visible("7"), PCI)),
    "a pod whose request cannot be read": (pod("train-0", "x", containers=BARE), (visible("7"), PCI)),
}


@pytest.mark.promise("env-13")
@pytest.mark.parametrize(("base", "env"), OTHERS.values(), ids=OTHERS)
def test_keep_env_does_not_cover_a_debug_container(base: Pod, env: tuple[EnvVar, ...]) -> None:
    """It is added after its pod's devices are held: further devices would belong to other pods."""
    verdict = reviewed(debugged(base, debugger(env)), base)

    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.ENV_CONFLICT
    assert "keep-env" not in verdict.message


def test_too_many_debug_containers_are_refused() -> None:
    """They count towards the pod's limit of 1000 containers."""
    base = pod("train-0")
    many = replace(debugged(base, debugger()), excess=Excess("the pod", 1001, 1000, "containers"))
    verdict = reviewed(many, base)

    assert isinstance(verdict, Deny)
    says(verdict.message, "RequestInvalid", "1001 containers", "1000")
