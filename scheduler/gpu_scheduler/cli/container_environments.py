"""Reads what verify compares: the state of each container, the environment of its first process, its device files.

LAW: it runs `cat /proc/1/environ` in containers, `ls /dev` in those of pods with ResourceClaims, and nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.cli.verification import ContainerState, PodDetails, Reading, count_files, read_environment
from gpu_scheduler.core.pods.pod_index import static_index
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.http.exec import ExecError, Executor
from gpu_scheduler.kube.lists import list_all
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Identity, ReadStruct
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import text_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from gpu_scheduler.cli.verification import ContainerRef
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient

_ENVIRONMENT: Final = ("cat", "/proc/1/environ")
_FILES: Final = ("ls", "/dev")
_SECONDS: Final = 10.0
"""Seconds that one container may take to answer."""
_MOST: Final = 2**20
"""Most bytes of an answer."""
_AT_ONCE: Final = 8
"""Containers that are read at the same time."""


class _Running(ReadStruct):
    pass


class _Waiting(ReadStruct):
    reason: str | None = None


class _Terminated(ReadStruct):
    exit_code: int = 0
    reason: str | None = None


class _State(ReadStruct):
    running: _Running | None = None
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(ReadStruct):
    name: str
    state: _State | None = None


class _InitContainer(ReadStruct):
    name: str
    restart_policy: str | None = None


class _EphemeralContainer(ReadStruct):
    name: str
    target_container_name: str | None = None


class _Spec(ReadStruct):
    share_process_namespace: bool | None = None
    host_pid: bool | None = msgspec.field(name="hostPID", default=None)
    init_containers: list[_InitContainer] | None = None
    ephemeral_containers: list[_EphemeralContainer] | None = None


class _Status(ReadStruct):
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _RunningPod(ReadStruct):
    metadata: Identity
    spec: _Spec
    status: _Status | None = None


_pods = msgspec.json.Decoder(PodObject)
_running_pods = msgspec.json.Decoder(_RunningPod)


async def pod_states(api: ApiClient, scheduler_name: str, namespace: str | None) -> dict[str, PodDetails]:
    """List the states of our pods by uid, in one namespace, or in all if it is None."""
    path = f"/api/v1/namespaces/{segment(namespace)}/pods" if namespace else "/api/v1/pods"
    return dict(await list_all(api, "pods", path, read_state, selector=f"spec.schedulerName={scheduler_name}"))


def read_state(raw: bytes | msgspec.Raw) -> tuple[str, PodDetails]:
    """Read the JSON of a pod into its uid and its state. msgspec.ValidationError if it is no pod."""
    pod = decode_object(_running_pods, raw)
    index = static_index(text_of(decode_object(_pods, raw), pod.metadata.namespace or ""))
    state = PodDetails(index if isinstance(index, int) else None, dict(_states(pod.spec, pod.status or _Status())))
    return pod.metadata.uid or "", state


def _states(spec: _Spec, status: _Status) -> Iterator[tuple[str, ContainerState]]:
    """Yield the state of each container that has a status, by its name."""
    ordinary = {each.name for each in status.container_statuses or ()}
    sidecars = {each.name for each in spec.init_containers or () if each.restart_policy == "Always"}
    joined = {each.name: each.target_container_name for each in spec.ephemeral_containers or ()}
    of_all = _whose_process(spec)
    for listed in (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses):
        for each in listed or ():
            state = each.state or _State()
            target = joined.get(each.name)
            terminated = state.terminated
            done = terminated is not None and (each.name in joined or not terminated.exit_code)
            yield (
                each.name,
                ContainerState(
                    running=state.running is not None,
                    why=_why(state),
                    ended=done and each.name not in ordinary | sidecars,
                    not_first=f"process 1 is that of container {target}" if target else of_all,
                ),
            )


def _whose_process(spec: _Spec) -> str:
    """Return why process 1 belongs to no container of the pod; empty if each container has its own."""
    if spec.host_pid:
        return "process 1 is the node's, because the pod has hostPID"
    return "process 1 is the pod's, because it has shareProcessNamespace" if spec.share_process_namespace else ""


def _why(state: _State) -> str:
    """Return why the container does not run, in the kubelet's word."""
    if state.terminated is not None:
        return state.terminated.reason or f"exit code {state.terminated.exit_code}"
    return (state.waiting and state.waiting.reason) or ContainerState().why


async def read_containers(
    api: ApiClient, containers: Iterable[ContainerRef], isolated: Container[str]
) -> tuple[dict[ContainerRef, Reading], list[str]]:
    """Read each container's environment, and return what the user may not, a sentence for each namespace.

    `isolated` are the uids of the pods with ResourceClaims, of which the device files are read too.
    """
    slots = asyncio.Semaphore(_AT_ONCE)
    unread: dict[str, str] = {}

    async def read(executor: Executor, pod: PodRef, container: str) -> Reading:
        try:
            async with slots:
                data = await executor.run(pod, container, _ENVIRONMENT, seconds=_SECONDS, most=_MOST)
        except ExecError as error:
            if error.forbidden:
                unread.setdefault(pod.namespace, _missing_right(pod.namespace, error))
            return Reading(unseen=_unseen(error, _ENVIRONMENT))
        reading = read_environment(data)
        if pod.uid not in isolated:
            return reading
        try:
            async with slots:
                data = await executor.run(pod, container, _FILES, seconds=_SECONDS, most=_MOST)
        except ExecError as error:
            return replace(reading, unlisted=f"its device files: {_unseen(error, _FILES)}")
        return replace(reading, files=count_files(data))

    wanted = list(containers)
    async with Executor(api) as executor:
        readings = await asyncio.gather(*(read(executor, *each) for each in wanted))
    return dict(zip(wanted, readings, strict=True)), list(unread.values())


def _missing_right(namespace: str, error: ExecError) -> str:
    example = f"kubectl auth can-i create pods --subresource=exec -n {namespace}"
    return (
        f"cannot read inside containers of namespace {namespace}: {error}; "
        f"ask for the rights get and create on pods/exec (example: {example})"
    )


def _unseen(error: ExecError, command: Sequence[str]) -> str:
    """Return why a container could not be read, in few words where the reason is a usual one."""
    text = str(error)
    if error.forbidden:
        return "you may not exec into it (HTTP 403)"
    # Each container runtime has its own sentence for a program that does not exist.
    absent = "executable file" in text and "not found" in text
    return f"it has no program {command[0]}" if absent else f"cannot exec into it: {text}"
