"""The API server calls our webhook over TLS, as MutatingWebhookConfiguration tells it to."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trustme

from tests import objects
from tests.objects import literal, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.served import Served
    from tests.objects import Object


@pytest.mark.promise("env-1", "env-2", "map-2")
def test_devices_are_injected_at_admission(calling: Bench, served: Served) -> None:
    """Every container, init containers too, gets both variables in front of its own; the log says what and for whom."""
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
    assert served.command.said("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)")


@pytest.mark.promise("map-6", "text-6")
def test_a_bad_map_is_refused_with_its_line(calling: Bench) -> None:
    """`kubectl apply` shows the parser's sentence: line, what was wrong, and an example that works."""
    status, answer = _create(calling, "train-0", "0=node1:0\n1=node9:x\n")

    assert status == 400
    assert answer["message"].startswith(
        'admission webhook "mutate.gpu-scheduler.agentaflow.io" denied the request: '
        "MapInvalid: cannot read placement map, line 2:"
    )
    assert "(example: 1=node2:0,1)" in answer["message"]


@pytest.mark.promise("env-10", "text-6")
def test_a_container_that_sets_the_variable_itself_is_refused(calling: Bench) -> None:
    """EnvConflict is no typing mistake but something we do not allow: 403."""
    container = {"name": "main", "image": "none", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]}

    status, answer = _create(calling, "train-0", "0=node1:0\n", containers=[container])

    assert status == 403
    assert "EnvConflict: " in answer["message"]


@pytest.mark.promise("env-3")
def test_a_debug_container_sees_what_its_pod_sees(calling: Bench) -> None:
    """`kubectl debug` goes through pods/ephemeralcontainers, which is reviewed too."""
    _create(calling, "train-0", "0=node1:2\n")
    patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}

    status, pod = calling.kube.call(
        "PATCH",
        f"{calling.pods}/train-0/ephemeralcontainers",
        patch,
        "application/strategic-merge-patch+json",
    )

    assert status == 200, pod
    (debug,) = pod["spec"]["ephemeralContainers"]
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "2"} in debug["env"]


@pytest.mark.promise("index-5", "index-6", "env-5", "env-8")
def test_pods_without_an_index_are_given_the_reference(calling: Bench, scheduler: Command) -> None:
    """Admitted with a reference to the annotation, then placed: generated names are no index, whatever their digits."""
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
def test_a_pod_with_a_limit_is_given_the_reference(calling: Bench) -> None:
    """Its index is known, its cards are not: the device plugin chooses them."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "none", "resources": limits}

    status, pod = _create(calling, "train-0", "0=node1:3\n", containers=[container])

    assert status == 201, pod
    assert _env(pod) == reading()


@pytest.mark.promise("hook-2")
def test_other_schedulers_pods_never_ask_us(calling: Bench, served: Served) -> None:
    """The matchConditions keep everybody else independent of the webhook, even while it does not answer."""
    served.command.process.send(signal.SIGSTOP)
    try:
        calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")
    finally:
        served.command.process.send(signal.SIGCONT)


@pytest.mark.promise("hook-5")
def test_certificates_are_renewed_under_load_without_a_failed_create(calling: Bench, served: Served) -> None:
    """Authority after authority, while pods are created all the time: none is refused, none passes unseen.

    As the play does it: first both authorities are trusted, then the pair changes, then the old one is dropped.
    """
    pid = served.command.process.pid
    failed: list[Object] = []
    numbers = itertools.count()
    stop = threading.Event()

    def create() -> None:
        while not stop.is_set():
            status, answer = _create(calling, f"load{next(numbers)}-0", "0=node1:0\n")
            if status != 201 or _env(answer) != literal("0"):
                failed.append(answer)

    with ThreadPoolExecutor(3) as threads:
        loads = [threads.submit(create) for _ in range(3)]
        try:
            for _ in range(3):
                old, new = served.authority, trustme.CA()
                served.trust(old, new)
                # The API server takes a moment to notice whom to trust; a kubelet takes longer with the Secret.
                time.sleep(0.5)
                before = served.served_pairs()
                served.issue(new)
                eventually("it serves the new pair", partial(served.serves_more_than, before))
                served.trust(new)
                time.sleep(0.3)
        finally:
            stop.set()
        for load in loads:
            load.result()

    assert failed == []
    assert next(numbers) > 50
    assert served.command.process.pid == pid
    assert served.command.process.alive()


@pytest.mark.promise("hook-1", "hook-3", "gate-2")
def test_an_operator_may_choose_that_pods_pass_unseen(calling: Bench, served: Served, scheduler: Command) -> None:
    """With `Fail` a pod is refused while nobody answers; with `Ignore` it is created, and stopped by the gate."""
    calling.node("node1")
    served.command.process.send(signal.SIGSTOP)
    try:
        status, answer = _create(calling, "refused-0", "0=node1:0\n")
        assert (status, "failed calling webhook" in answer["message"]) == (500, True)
        served.choose(failurePolicy="Ignore")
        eventually("pods pass", lambda: _create(calling, "unseen-0", "0=node1:0\n")[0] in {201, 409}, seconds=20)
    finally:
        served.command.process.send(signal.SIGCONT)
        served.choose(failurePolicy="Fail")

    calling.wait_message("unseen-0", "EnvNotInjected: ")


def test_a_webhook_that_is_told_to_stop_answers_to_the_end(calling: Bench, served: Served) -> None:
    """While its endpoint is taken out of the Service it is not ready and still admits; then it exits with code 0."""
    served.command.process.send(signal.SIGTERM)
    eventually("it is not ready any more", lambda: served.command.get("/readyz")[0] == 503)

    status, answer = _create(calling, "late-0", "0=node1:0\n")

    assert status == 201, answer
    assert served.command.process.wait(5) == 0


def _env(pod: Object) -> list[Object]:
    env: list[Object] = pod["spec"]["containers"][0]["env"]
    return env


def _create(bench: Bench, name: str, text: str, **spec: list[Object]) -> tuple[int, Object]:
    return bench.kube.call("POST", bench.pods, objects.pod(name, text, **spec))
