"""How a scheduler is set up and who leads, as the objects of its namespace tell; what is not seen is as by default."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import get_one
from gpu_scheduler.kube.objects.leases import Lease, LeaseSpec
from gpu_scheduler.scheduler.config_maps import read_limits, read_strategy

if TYPE_CHECKING:
    from enum import StrEnum
    from typing import TypeVar

    from gpu_scheduler.kube.http.client import ApiClient

    Word = TypeVar("Word", bound=StrEnum)


class _Variable(msgspec.Struct):
    name: str
    value: str | None = None


class _Container(msgspec.Struct):
    env: list[_Variable] | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _Template(msgspec.Struct):
    spec: _PodSpec


class _DeploymentSpec(msgspec.Struct):
    template: _Template


class _Deployment(msgspec.Struct):
    spec: _DeploymentSpec


_deployments = msgspec.json.Decoder(_Deployment)
_leases = msgspec.json.Decoder(Lease)


@dataclass(frozen=True, slots=True)
class Installation:
    """How the scheduler decides."""

    policy: Policy = field(default_factory=Policy)
    strategy: Strategy = Strategy.LEAST_UTILIZED
    """Of pods that name none."""
    source: str = "default"
    """Who says so."""
    limits: str = ""
    """A line per namespace; empty where there are none, or they are not ours to see."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the Lease, and since when (RFC 3339)."""

    holder: str
    since: str


async def read_installation(api: ApiClient, namespace: str) -> Installation:
    """How the scheduler of this namespace is set up; by default where it runs elsewhere, or is not ours to see."""
    space = segment(namespace)
    deployment, config, limits = await asyncio.gather(
        get_one(
            api,
            "the scheduler's Deployment",
            f"/apis/apps/v1/namespaces/{space}/deployments/{names.SCHEDULER_NAME}",
            _deployments.decode,
            or_none=True,
        ),
        get_one(
            api,
            "the scheduler's settings",
            f"/api/v1/namespaces/{space}/configmaps/{names.SETTINGS}",
            read_strategy,
            or_none=True,
        ),
        get_one(
            api,
            "the limits of namespaces",
            f"/api/v1/namespaces/{space}/configmaps/{names.LIMITS}",
            read_limits,
            or_none=True,
        ),
    )
    lines = "" if limits is None else limits[1] or ""
    env = {} if deployment is None else _environment(deployment)
    policy = Policy(
        env.get("SCHEDULER_NAME") or names.SCHEDULER_NAME,
        _word(Sharing, env.get("GPU_SHARING")) or Sharing.SAME_WORKLOAD,
    )
    chosen = None if config is None else _word(Strategy, config[1])
    if chosen is not None:
        return Installation(policy, chosen, f"ConfigMap {names.SETTINGS}", lines)
    chosen = _word(Strategy, env.get("SCHEDULING_STRATEGY"))
    if chosen is not None:
        return Installation(policy, chosen, f"Deployment {names.SCHEDULER_NAME}", lines)
    return Installation(policy, limits=lines)


async def read_leader(api: ApiClient, namespace: str, now: datetime) -> Leader | None:
    """Who leads; None when nobody has renewed the Lease in time."""
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
