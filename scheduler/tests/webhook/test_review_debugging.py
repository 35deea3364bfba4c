from dataclasses import replace

import pytest

from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from tests.core.build import FIELD_REF, KEEP, PCI, container, own, pod, seeing, visible

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
    "numbered as they are booked": (
        pod("train-0", annotations=KEEP, containers=(container((visible("7"), replace(PCI, value="FASTEST_FIRST"))),)),
        [debugger()],
        [AddOp(path(0), [literal("7"), ORDER])],
    ),
    "a value that a pod from before kept, and that is not booked, is handed to nobody": (
        pod("train-0", annotations=KEEP, containers=own("$(FOO)", "GPU-8c1b", "3")),
        [debugger()],
        [AddOp(path(0), [literal("3"), ORDER])],
    ),
    "then the line's": (
        pod("train-0", annotations=KEEP, containers=own("$(FOO)")),
        [debugger()],
        [AddOp(path(0), [literal("0,1"), ORDER])],
    ),
    "of two entries the last, as they do": (
        pod("train-0", annotations=KEEP, containers=(container((visible("7"), PCI, visible("3"))),)),
        [debugger()],
        [AddOp(path(0), [literal("3"), ORDER])],
    ),
    "what comes from elsewhere is not known": (
        pod(
            "train-0",
            annotations=KEEP,
            containers=(
                container((visible("7"), EnvVar(VISIBLE, None))),
                container((visible("3"), EnvVar("CUDA_DEVICE_ORDER", None)), position=1),
            ),
        ),
        [debugger()],
        [AddOp(path(0), [literal("3"), ORDER])],
    ),
    "an init container tells as well": (
        pod("train-0", containers=(container((visible("0,1"), PCI), ContainerKind.INIT),)),
        [debugger()],
        [AddOp(path(0), [literal("0,1"), ORDER])],
    ),
    "else our annotation, where the line is decided later": (
        pod("train", containers=BARE),
        [debugger()],
        [AddOp(path(0), [BY_FIELD, ORDER])],
    ),
    "or where the cards are": (
        pod("train-0", gpu_limits=(("main", 2),), containers=BARE),
        [debugger()],
        [AddOp(path(0), [BY_FIELD, ORDER])],
    ),
    "or which they are": (
        pod("train-0", None, annotations={"agentaflow.gpu/count": "1"}, containers=BARE),
        [debugger()],
        [AddOp(path(0), [BY_FIELD, ORDER])],
    ),
    "what another debug container has does not count": (
        debugged(pod("train-0", containers=BARE), debugger((visible("7"), PCI), name="first")),
        [debugger(position=1, name="second")],
        [AddOp(path(1), [literal("0,1"), ORDER])],
    ),
    "else what the map says": (
        pod("train-0", containers=BARE),
        [debugger()],
        [AddOp(path(0), [literal("0,1"), ORDER])],
    ),
    "where nothing is decided, an annotation that is not there": (
        pod("train-0", None, containers=BARE),
        [debugger()],
        [AddOp(path(0), [BY_FIELD, ORDER])],
    ),
    "one that says what its kept pod sees is left alone": (
        pod("train-0", annotations=KEEP, containers=own("7")),
        [debugger((visible("7"), PCI))],
        [],
    ),
    "one that is right already is left alone": (pod("train-0"), [debugger((visible("0,1"), PCI))], []),
}


@pytest.mark.parametrize(("base", "new", "patches"), EPHEMERAL.values(), ids=EPHEMERAL)
def test_debug_container(base: Pod, new: list[Container], patches: list[AddOp]) -> None:
    """A new ephemeral container is completed like any other."""
    verdict = reviewed(debugged(base, *new), base)

    assert isinstance(verdict, Admit)
    assert tuple(patches) == verdict.patches


def test_old_debug_containers_are_not_touched() -> None:
    """The API refuses changes of an ephemeral container that exists, so only the new one is patched."""
    old = debugged(pod("train-0"), debugger(name="first"))
    verdict = reviewed(debugged(old, debugger(position=1, name="second")), old)

    assert isinstance(verdict, Admit)
    assert (AddOp(path(1), [literal("0,1"), ORDER]),) == verdict.patches
    assert verdict.log == "Injecting CUDA_VISIBLE_DEVICES=0,1 for ephemeral containers of pod train-0"


def test_the_log_says_that_the_annotation_is_read() -> None:
    """Where the devices are decided later, the line names where they will stand."""
    base = pod("web", containers=(container((FIELD_REF, PCI)),))
    verdict = reviewed(debugged(base, debugger()), base)

    assert isinstance(verdict, Admit)
    assert verdict.log == (
        "Injecting CUDA_VISIBLE_DEVICES=(annotation agentaflow.gpu/assigned-devices) "
        "for ephemeral containers of pod web"
    )


def test_without_the_old_pod_every_debug_container_is_new() -> None:
    """A review that does not bring the pod as it was asks about all."""
    verdict = reviewed(debugged(pod("train-1"), debugger(name="first"), debugger(position=1, name="second")))

    assert isinstance(verdict, Admit)
    assert (AddOp(path(0), [literal("2"), ORDER]), AddOp(path(1), [literal("2"), ORDER])) == verdict.patches


OTHERS = {
    "a pod that keeps nothing": (pod("train-0"), (visible("7"), PCI)),
    "a pod that keeps its environment": (pod("train-0", annotations=KEEP), (visible("7"), PCI)),
    "and keeps devices": (pod("train-0", annotations=KEEP, containers=own("7")), (visible("6"), PCI)),
    "and what is not booked": (pod("train-0", annotations=KEEP, containers=own("$(FOO)")), (visible("$(FOO)"), PCI)),
    "no GPU is another value too": (pod("train-0", annotations=KEEP), (visible(""), PCI)),
    "a source": (pod("train-0", annotations=KEEP), (EnvVar(VISIBLE, None), PCI)),
    "another order": (pod("train-0", annotations=KEEP), (visible("0,1"), replace(PCI, value="FASTEST_FIRST"))),
    "a second entry": (pod("train-0", annotations=KEEP), (visible("0,1"), PCI, visible("7"))),
    "a pod without anything decided": (pod("train-0", None, annotations=KEEP, containers=BARE), (visible("7"), PCI)),
    "a pod whose request cannot be read": (pod("train-0", "x", containers=BARE), (visible("7"), PCI)),
}


@pytest.mark.parametrize(("base", "env"), OTHERS.values(), ids=OTHERS)
def test_keep_env_never_speaks_for_a_debug_container(base: Pod, env: tuple[EnvVar, ...]) -> None:
    """It comes when its pod's devices are booked: what it would add belongs to somebody else."""
    verdict = reviewed(debugged(base, debugger(env)), base)

    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.ENV_CONFLICT
    assert verdict.message.endswith("; leave the variable out: it sees what its pod's containers see")


def test_debug_containers_without_end_are_refused() -> None:
    """The thousand of a pod are counted with them."""
    base = pod("train-0")
    crowd = replace(debugged(base, debugger()), excess=Excess("the pod", 1001, 1000, "containers"))
    verdict = reviewed(crowd, base)

    assert isinstance(verdict, Deny)
    assert verdict.message.startswith("RequestInvalid: cannot read the pod: it has 1001 containers, ")
