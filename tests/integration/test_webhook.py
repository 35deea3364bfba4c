"""The API server calls the registered webhook over TLS."""

from __future__ import annotations

import itertools
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trustme

from tests import objects
from tests.integration.namespace import debugged
from tests.messages import says
from tests.objects import literal, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object


@pytest.mark.promise("env-1", "env-2", "map-2")
def test_devices_are_injected_at_admission(calling: Namespace, registered: RegisteredWebhook) -> None:
    """Each container and init container gets both variables before its own. The log names devices and pod."""
    status, pod = _create(
        calling,
        "webhook-test-0",
        "0=node1:0,1\n",
        containers=[{"name": "main", "image": "none", "env": [{"name": "MINE", "value": "yes"}]}],
        initContainers=[{"name": "prepare", "image": "none"}],
    )

    assert status == 201, pod
    injected = [
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
    ]
    assert pod["spec"]["containers"][0]["env"] == [*injected, {"name": "MINE", "value": "yes"}]
    assert pod["spec"]["initContainers"][0]["env"] == injected
    assert registered.command.logged("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)")


@pytest.mark.promise("map-6", "text-6")
def test_a_bad_map_is_refused_with_its_line(calling: Namespace) -> None:
    """The message, which `kubectl apply` prints, has the line, the error and a valid example."""
    status, answer = _create(calling, "train-0", "0=node1:0\n1=node9:x\n")

    assert status == 400
    webhook, _, said = answer["message"].partition(" denied the request: ")
    assert webhook == 'admission webhook "mutate.gpu-scheduler.agentaflow.io"'
    says(said, "MapInvalid", "line 2", "(example: 1=node2:0,1)")


@pytest.mark.promise("env-10", "text-6")
def test_a_container_that_sets_the_variable_itself_is_refused(calling: Namespace) -> None:
    """The status is 403, since EnvConflict is not a syntax error but forbidden."""
    container = {"name": "main", "image": "none", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]}

    status, answer = _create(calling, "train-0", "0=node1:0\n", containers=[container])

    assert status == 403
    assert "EnvConflict: " in answer["message"]


@pytest.mark.promise("env-3")
def test_a_debug_container_sees_what_its_pod_sees(calling: Namespace) -> None:
    """The webhook reviews pods/ephemeralcontainers too, which `kubectl debug` writes."""
    _create(calling, "train-0", "0=node1:2\n")

    status, pod = debugged(calling.kube, f"{calling.pods}/train-0")

    assert status == 200, pod
    (debug,) = pod["spec"]["ephemeralContainers"]
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "2"} in debug["env"]


@pytest.mark.promise("index-5", "index-6", "env-5", "env-8")
def test_pods_without_an_index_are_given_the_reference(calling: Namespace, scheduler: Command) -> None:
    """Pods with generated names have no static index. Their variable refers to the annotation, and they are placed."""
    calling.node("node1")
    names = []
    for _ in range(2):
        body = objects.pod("", "0=node1:0\n1=node1:1\n")
        body["metadata"] = {**body["metadata"], "generateName": "train-"}
        del body["metadata"]["name"]
        status, pod = calling.kube.call("POST", calling.pods, body)
        assert status == 201, pod
        assert _env(pod) == reading()
        names.append(pod["metadata"]["name"])

    assert sorted(calling.indices(*names)) == [0, 1]


@pytest.mark.promise("env-9")
def test_a_pod_with_a_limit_is_given_the_reference(calling: Namespace) -> None:
    """Its index is known at admission, but its devices are not: the device plugin chooses them."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "none", "resources": limits}

    status, pod = _create(calling, "train-0", "0=node1:3\n", containers=[container])

    assert status == 201, pod
    assert _env(pod) == reading()


@pytest.mark.promise("hook-2")
def test_pods_of_other_schedulers_are_not_reviewed(calling: Namespace, registered: RegisteredWebhook) -> None:
    """The matchConditions keep pods of other schedulers independent of a webhook that does not answer."""
    registered.command.process.send(signal.SIGSTOP)
    try:
        calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")
    finally:
        registered.command.process.send(signal.SIGCONT)


@pytest.mark.promise("hook-5")
def test_certificates_are_renewed_under_load_without_a_failed_create(
    calling: Namespace, registered: RegisteredWebhook
) -> None:
    """The CA changes three times while pods are created. No pod is refused, and no pod is admitted without review.

    The steps are those of the playbook: trust both CAs, replace the certificate, then drop the old CA.
    """
    pid = registered.command.process.pid
    failed: list[Object] = []
    created: list[int] = []
    numbers = itertools.count()
    stop = threading.Event()

    def create() -> None:
        while not stop.is_set():
            status, answer = _create(calling, f"load{next(numbers)}-0", "0=node1:0\n")
            created.append(status)
            if status != 201 or _env(answer) != literal("0"):
                failed.append(answer)

    def goes_on() -> None:
        """Wait until each of the three has created a pod that it began after this call."""
        enough = len(created) + 6
        eventually("pods are created", lambda: len(created) >= enough)

    with ThreadPoolExecutor(3) as threads:
        loads = [threads.submit(create) for _ in range(3)]
        try:
            for _ in range(3):
                old, new = registered.authority, trustme.CA()
                registered.trust(old, new)
                before = registered.served_pairs()
                registered.issue(new)
                eventually("it serves the new pair", partial(registered.serves_more_than, before))
                registered.trust(new)
                goes_on()
        finally:
            stop.set()
        for load in loads:
            load.result()

    assert failed == []
    assert registered.command.process.pid == pid
    assert registered.command.process.alive()


@pytest.mark.promise("hook-1", "hook-3", "gate-2")
def test_an_operator_may_choose_the_failure_policy_ignore(
    calling: Namespace, registered: RegisteredWebhook, scheduler: Command
) -> None:
    """If the webhook does not answer, `Fail` refuses a pod. `Ignore` admits it, and the bind gate does not bind it."""
    calling.node("node1")
    registered.command.process.send(signal.SIGSTOP)
    try:
        status, answer = _create(calling, "refused-0", "0=node1:0\n")
        assert (status, "failed calling webhook" in answer["message"]) == (500, True)
        registered.choose(failurePolicy="Ignore")
        eventually("pods pass", lambda: _create(calling, "unseen-0", "0=node1:0\n")[0] in {201, 409}, seconds=20)
    finally:
        registered.command.process.send(signal.SIGCONT)
        registered.choose(failurePolicy="Fail")

    calling.wait_message("unseen-0", "EnvNotInjected: ")


def _env(pod: Object) -> list[Object]:
    env: list[Object] = pod["spec"]["containers"][0]["env"]
    return env


def _create(namespace: Namespace, name: str, text: str, **spec: list[Object]) -> tuple[int, Object]:
    return namespace.kube.call("POST", namespace.pods, objects.pod(name, text, **spec))
