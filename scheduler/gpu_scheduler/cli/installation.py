"""Reads a scheduler's configuration and its leader from the objects of its namespace; the rest are defaults."""

from __future__ import annotations

import asyncio
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import UnlistedError, get_one
from gpu_scheduler.kube.objects.leases import Lease, LeaseSpec
from gpu_scheduler.scheduler.config_maps import read_limits, read_strategy

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum
    from typing import TypeVar

    from gpu_scheduler.kube.http.client import ApiClient

    T = TypeVar("T")
    Word = TypeVar("Word", bound=StrEnum)


class _Variable(msgspec.Struct):
    name: str
    value: str | None = None


class _Container(msgspec.Struct):
    env: list[_Variable] | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _DeploymentTemplate(msgspec.Struct):
    spec: _PodSpec


class _DeploymentSpec(msgspec.Struct):
    template: _DeploymentTemplate


class _Deployment(msgspec.Struct):
    spec: _DeploymentSpec


_CONFIG: Final = f"ConfigMap {names.SETTINGS}"

_deployments = msgspec.json.Decoder(_Deployment)
_leases = msgspec.json.Decoder(Lease)


@immutable
class Unread:
    """What the user may not read, as one sentence with the missing right; empty if all could be read."""

    deployment: str = ""
    strategy: str = ""
    limits: str = ""


@immutable
class Installation:
    """The scheduler's configuration."""

    policy: Policy = field(default_factory=Policy)
    """The defaults if the Deployment could not be read."""
    strategy: Strategy | None = Strategy.LEAST_UTILIZED
    """The strategy of pods that name none; None if it could not be read."""
    source: str | None = "default"
    """The object that sets `strategy`, or "default"; None if it could not be read."""
    limits: str | None = ""
    """One line per namespace; empty if there are no limits, None if they could not be read."""
    unread: Unread = field(default_factory=Unread)


@immutable
class Leader:
    """The holder of the Lease, and since when (RFC 3339)."""

    holder: str
    since: str


async def read_installation(api: ApiClient, namespace: str) -> Installation:
    """Read the configuration of the scheduler in `namespace`; defaults for objects that do not exist there.

    `unread` says what the user may not read. UnlistedError if the API server refuses for another reason.
    """
    (deployment, no_deployment), (config, no_config), (limits, no_limits) = await asyncio.gather(
        _get(api, namespace, ("/apis/apps/v1", "deployments", names.SCHEDULER_NAME), _deployments.decode),
        _get(api, namespace, ("/api/v1", "configmaps", names.SETTINGS), read_strategy),
        _get(api, namespace, ("/api/v1", "configmaps", names.LIMITS), read_limits),
    )
    env = {} if deployment is None else _environment(deployment)
    goal = env.get("GPU_UTILIZATION_GOAL", "")
    policy = Policy(
        env.get("SCHEDULER_NAME") or names.SCHEDULER_NAME,
        _word(Sharing, env.get("GPU_SHARING")) or Sharing.SAME_WORKLOAD,
        int(goal) if goal.isdecimal() else Policy().utilization_goal,
        reads_claims=env.get("ISOLATION") == "dra",
    )
    strategy, source = _strategy(None if config is None else config[1], env)
    # Without a strategy in the ConfigMap, the Deployment's environment may set one.
    no_strategy = no_config or (no_deployment if source != _CONFIG else "")
    return Installation(
        policy,
        None if no_strategy else strategy,
        None if no_strategy else source,
        None if no_limits else (limits and limits[1]) or "",
        Unread(no_deployment, no_strategy, no_limits),
    )


def _strategy(chosen: str | None, env: dict[str, str]) -> tuple[Strategy, str]:
    """Return the cluster's strategy and the object that sets it; `chosen` is the ConfigMap's."""
    for text, source in ((chosen, _CONFIG), (env.get("SCHEDULING_STRATEGY"), f"Deployment {names.SCHEDULER_NAME}")):
        strategy = _word(Strategy, text)
        if strategy is not None:
            return strategy, source
    return Strategy.LEAST_UTILIZED, "default"


async def _get(
    api: ApiClient, namespace: str, where: tuple[str, str, str], read: Callable[[bytes], T]
) -> tuple[T | None, str]:
    """Read the object `where` (API, resource, name). Return None if it does not exist, or may not be read, and why."""
    group, resource, name = where
    path = f"{group}/namespaces/{segment(namespace)}/{resource}/{name}"
    kind = {"deployments": "Deployment", "configmaps": "ConfigMap"}[resource]
    try:
        return await get_one(api, f"{kind} {name} of namespace {namespace}", path, read), ""
    except UnlistedError as error:
        return None, missing_right(error, f"get {resource}/{name} -n {namespace}")


def missing_right(error: UnlistedError, right: str) -> str:
    """Return the sentence about a missing right, with a command that checks it; raise other errors."""
    if not error.forbidden:
        raise error
    return f"{error}; ask for the right (example: kubectl auth can-i {right})"


async def read_leader(api: ApiClient, namespace: str, now: datetime) -> Leader | None:
    """Read the leader; None if the Lease does not exist, has no holder, or was not renewed in time by `now`."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases/{names.LEASE}"
    lease = await get_one(api, "the scheduler's Lease", path, _leases.decode)
    spec = LeaseSpec() if lease is None else lease.spec
    if not spec.holder_identity or not spec.renew_time:
        return None
    silent = (now - datetime.fromisoformat(spec.renew_time)).total_seconds()
    return (
        Leader(spec.holder_identity, spec.acquire_time or "") if silent < (spec.lease_duration_seconds or 0) else None
    )


def _environment(deployment: _Deployment) -> dict[str, str]:
    containers = deployment.spec.template.spec.containers
    return {each.name: each.value or "" for container in containers for each in container.env or ()}


def _word(kind: type[Word], text: str | None) -> Word | None:
    return kind(text) if text in tuple(kind) else None
