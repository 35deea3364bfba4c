from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.decision import Refuse
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.container_env import ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.webhook.review import AddOp, Admit, Deny, review_pod
from unit_tests.core.build import FIELD_REF, PCI, container, decided, pod, visible

US = "gpu-scheduler"
KEEP = {"agentaflow.gpu/keep-env": "true"}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
BY_FIELD = {
    "name": VISIBLE,
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}},
}
BARE = (container(None),)
TWO = {"agentaflow.gpu/count": "2"}


def literal(value: str) -> dict[str, object]:
    return {"name": VISIBLE, "value": value}


def reviewed(given: Pod) -> Admit | Deny:
    return review_pod(given, "", US)


def any_line(**others: Any) -> Pod:
    """Return a pod whose name the API server has not generated yet."""
    return replace(pod("web", **others), ref=PodRef("default", "", ""), generate_name="web-5d9f7c-")


PATCHED = {
    "a container without env gets the list": (
        pod("train-0", containers=BARE),
        [AddOp("/spec/containers/0/env", [literal("0,1"), ORDER])],
    ),
    "a container with env gets both at the front": (
        pod("train-0", containers=(container(()),)),
        [AddOp("/spec/containers/0/env/0", ORDER), AddOp("/spec/containers/0/env/0", literal("0,1"))],
    ),
    "a line without GPUs gives an empty literal, which hides all": (
        pod("train-5", "5=node1:", containers=BARE),
        [AddOp("/spec/containers/0/env", [literal(""), ORDER])],
    ),
    "only what is missing is added": (
        pod("train-1", containers=(container((visible("2"),)),)),
        [AddOp("/spec/containers/0/env/0", ORDER)],
    ),
    "a kept variable is the only one kept": (
        pod("train-1", annotations=KEEP, containers=(container((visible("7"),)), container(None, position=1))),
        [AddOp("/spec/containers/0/env/0", ORDER), AddOp("/spec/containers/1/env", [literal("2"), ORDER])],
    ),
    "a pod that takes any line reads our annotation, in init containers too": (
        any_line(containers=(container(None), container((), position=1), container(None, ContainerKind.INIT))),
        [
            AddOp("/spec/containers/0/env", [BY_FIELD, ORDER]),
            AddOp("/spec/containers/1/env/0", ORDER),
            AddOp("/spec/containers/1/env/0", BY_FIELD),
            AddOp("/spec/initContainers/0/env", [BY_FIELD, ORDER]),
        ],
    ),
    "a Kubeflow replica reads our annotation": (
        pod("job-worker-0", labels={"training.kubeflow.org/replica-type": "worker"}, containers=BARE),
        [AddOp("/spec/containers/0/env", [BY_FIELD, ORDER])],
    ),
    "a pod with a limit reads our annotation, whichever line it has": (
        pod("train-0", gpu_limits=(("main", 2),), containers=BARE),
        [AddOp("/spec/containers/0/env", [BY_FIELD, ORDER])],
    ),
    "a pod that leaves the choice to a strategy reads our annotation, in init containers too": (
        pod("train-0", None, annotations=TWO, containers=(container(()), container(None, ContainerKind.INIT))),
        [
            AddOp("/spec/containers/0/env/0", ORDER),
            AddOp("/spec/containers/0/env/0", BY_FIELD),
            AddOp("/spec/initContainers/0/env", [BY_FIELD, ORDER]),
        ],
    ),
    "a map beside a number wins": (
        pod("train-1", annotations=TWO, containers=BARE),
        [AddOp("/spec/containers/0/env", [literal("2"), ORDER])],
    ),
    "a pod of another scheduler is left alone": (
        pod("train-0", scheduler_name="default-scheduler", containers=BARE),
        [],
    ),
    "a pod that asks for nothing is left alone": (pod("train-0", None, containers=BARE), []),
}


@pytest.mark.promise("env-1", "env-2", "env-4", "env-5", "env-7", "env-9")
@pytest.mark.parametrize(("given", "patches"), PATCHED.values(), ids=PATCHED)
def test_a_pod_is_patched(given: Pod, patches: list[AddOp]) -> None:
    """Every container sees the GPUs of its pod's line, numbered as in the map."""
    verdict = reviewed(given)

    assert isinstance(verdict, Admit)
    assert tuple(patches) == verdict.patches


BY_ANNOTATION = "(annotation agentaflow.gpu/assigned-devices)"
LOGGED = {
    "an injection": (pod("webhook-test-0", containers=BARE), "0,1 for pod webhook-test-0 (index 0)"),
    "an injection of no GPU": (pod("train-5", "5=node1:", containers=BARE), " for pod train-5 (index 5)"),
    "a pod whose name is yet to be generated": (
        any_line(annotations={"agentaflow.gpu/index": "1"}, containers=BARE),
        "2 for pod web-5d9f7c-? (index 1)",
    ),
    "a pod that takes any line": (
        any_line(containers=BARE),
        f"{BY_ANNOTATION} for pod web-5d9f7c-? (index decided when it is placed)",
    ),
    "a given name without a number": (
        pod("train", containers=BARE),
        f"{BY_ANNOTATION} for pod train (index decided when it is placed)",
    ),
    "a pod with a limit": (
        pod("train-1", gpu_limits=(("main", 1),), containers=BARE),
        f"{BY_ANNOTATION} for pod train-1 (index 1)",
    ),
    "a pod that leaves the choice to a strategy": (
        pod("train-0", None, annotations=TWO, containers=BARE),
        f"{BY_ANNOTATION} for pod train-0 (devices decided by strategy when it is placed)",
    ),
    "an unchecked name with control characters": (
        pod("x\n\x1b[31mAll is well-1", containers=BARE),
        '2 for pod "x\\n\\x1b[31mAll is well-1" (index 1)',
    ),
    "a name that would fill the log": (pod("a" * 5000 + "-1", containers=BARE), f'2 for pod "{"a" * 60}…" (index 1)'),
    "the longest name that there may be": (
        pod("a" * 251 + "-1", containers=BARE),
        f"2 for pod {'a' * 251}-1 (index 1)",
    ),
}


@pytest.mark.parametrize(("given", "injected"), LOGGED.values(), ids=LOGGED)
def test_a_patch_is_logged(given: Pod, injected: str) -> None:
    """One line for each pod that was changed."""
    verdict = reviewed(given)

    assert isinstance(verdict, Admit)
    assert verdict.log == f"Injecting CUDA_VISIBLE_DEVICES={injected}"


def test_where_nothing_is_injected_nothing_is_logged() -> None:
    """The pod is complete."""
    assert reviewed(pod("train-1", containers=(container((visible("2"), PCI)),))) == Admit()


DENIED = {
    "a map that cannot be read": pod("train-0", "nonsense", containers=BARE),
    "an index that is no number": pod("t", annotations={"agentaflow.gpu/index": "x"}, containers=BARE),
    "an index that the map does not have": pod("train-9", containers=BARE),
    "an invalid choice": pod("train-0", annotations={"agentaflow.gpu/observer": "yes"}, containers=BARE),
    "a pod that is deleted at once": pod("train-0", without_grace=True, containers=BARE),
    "a limit that the line does not fit": pod("train-0", gpu_limits=(("main", 3),), containers=BARE),
    "limits in two containers": pod("train-0", gpu_limits=(("main", 1), ("side", 1)), containers=BARE),
    "an unsupported field": pod("train-0", unsupported=("spec.resourceClaims",), containers=BARE),
    "an invalid number of GPUs": pod("t", None, annotations={"agentaflow.gpu/count": "-2"}, containers=BARE),
    "GPUs of a container's own, which no map names": pod(
        "train-0", None, annotations={**TWO, **KEEP}, containers=(container((visible("7"), PCI)),)
    ),
    "another value in a container, with a strategy": pod(
        "train-0", None, annotations=TWO, containers=(container((visible("0"), PCI)),)
    ),
    "more containers than are read": pod(
        "train-1", containers=BARE, excess=Excess("the pod", 1001, 1000, "containers")
    ),
    "a value that is kept and not held": pod("train-1", annotations=KEEP, containers=(container((visible("+7"),)),)),
    "a value that is kept and not held, with a strategy": pod(
        "train-0", None, annotations={**TWO, **KEEP}, containers=(container((visible("7,x"), PCI)),)
    ),
    "another order that is kept": pod(
        "train-1", annotations=KEEP, containers=(container((visible("2"), replace(PCI, value="FASTEST_FIRST"))),)
    ),
    "another value in a container": pod("train-1", containers=(container((visible("7"), PCI)),)),
    "another order in a container": pod("train-1", containers=(container((visible("2"), replace(PCI, value="X"))),)),
    "another value in an init container": pod(
        "train-1", containers=(container(None), container((visible("7"),), ContainerKind.INIT))
    ),
    "a right value that a second entry overrides": pod(
        "train-1", containers=(container((visible("2"), PCI, visible("7"))),)
    ),
}


@pytest.mark.promise("env-10", "text-6")
@pytest.mark.parametrize("given", DENIED.values(), ids=DENIED)
def test_the_review_denies_what_the_scheduler_refuses(given: Pod) -> None:
    """A fault has the same message at admission and in the scheduler."""
    verdict = reviewed(given)
    decision = decided(given)

    assert isinstance(verdict, Deny)
    assert isinstance(decision, Refuse)
    assert (verdict.reason, verdict.message) == (decision.reason, decision.message)


LATER = {
    "any line": any_line(containers=(container((visible("0,1"), PCI)),)),
    "any line, in an init container": any_line(
        containers=(container((FIELD_REF, PCI)), container((visible(""), PCI), ContainerKind.INIT))
    ),
    "any line, another order": any_line(containers=(container((FIELD_REF, replace(PCI, value="X"))),)),
    "any line, taken from a Secret": any_line(containers=(container((EnvVar(VISIBLE, None), PCI)),)),
    "a limit, though the value is the line's": pod(
        "train-0", gpu_limits=(("main", 2),), containers=(container((visible("0,1"), PCI)),)
    ),
}


@pytest.mark.parametrize("given", LATER.values(), ids=LATER)
def test_a_containers_own_value_is_refused_if_it_is_decided_later(given: Pod) -> None:
    """Only by chance it would equal the later value."""
    verdict = reviewed(given)

    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.ENV_CONFLICT
    assert ' in container "main": it ' in verdict.message
