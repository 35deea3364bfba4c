from dataclasses import replace

import pytest

from gpu_scheduler.core.model import Container, ContainerKind, EnvVar, Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.review import AddOp, Admit, Deny, review_pod
from tests.core.build import FIELD_REF, KEEP, PCI, container, pod, visible

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
FASTEST = {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}
BARE = (container(None),)


def literal(value: str) -> dict[str, object]:
    return {"name": VISIBLE, "value": value}


def reviewed(given: Pod, old: Pod | None = None) -> Admit | Deny:
    return review_pod(given, "ephemeralcontainers", "gpu-scheduler", old)


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
    "also in which order they are numbered": (
        pod("train-0", annotations=KEEP, containers=(container((visible("7"), replace(PCI, value="FASTEST_FIRST"))),)),
        [debugger()],
        [AddOp(path(0), [literal("7"), FASTEST])],
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
    "one without anything decided is left alone": (pod("train-0", None, containers=BARE), [debugger()], []),
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


def test_a_debug_container_with_other_devices_is_refused() -> None:
    """It may see what its pod sees, and nothing else."""
    verdict = reviewed(debugged(pod("train-0"), debugger((visible("7"),))), pod("train-0"))

    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.ENV_CONFLICT


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


def test_a_debug_container_of_a_kept_pod_may_have_its_own() -> None:
    """The annotation speaks for all containers of the pod."""
    base = pod("train-0", annotations=KEEP)
    verdict = reviewed(debugged(base, debugger((visible("7"), PCI))), base)

    assert Admit() == verdict
