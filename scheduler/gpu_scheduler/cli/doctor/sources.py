"""Reads the objects of an installation. UnlistedError if the API server refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.doctor.expected import CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT, GUARDS, INJECTION, KINDS
from gpu_scheduler.cli.doctor.facts import AdmissionPolicy, HeldLease
from gpu_scheduler.cli.doctor.objects import read_kind, read_own_pod, read_policy, read_workload
from gpu_scheduler.cli.snapshot import LEASES
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import NOT_FOUND, get_one, list_all
from gpu_scheduler.kube.objects.leases import read_lease, read_monitor_lease
from gpu_scheduler.kube.objects.meta import read_name
from gpu_scheduler.kube.objects.registrations import read_registration
from gpu_scheduler.kube.objects.secrets import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_scheduler.cli.doctor.facts import Workload
    from gpu_scheduler.cli.doctor.objects import OwnPodObject, PolicyObject, WorkloadObject
    from gpu_scheduler.cli.doctor.reading import ServerClock
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.secrets import Secret

RENEWED_WITHIN: Final = 3.0
"""Seconds in which a leader renews its Lease at least once."""
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


async def read_deployments(api: ApiClient, namespace: str) -> Mapping[str, WorkloadObject]:
    """Return the Deployments of the namespace by name."""
    path = f"/apis/apps/v1/namespaces/{segment(namespace)}/deployments"
    return {each.metadata.name: each for each in await list_all(api, "Deployments", path, read_workload)}


async def read_daemon_set(api: ApiClient, name: str) -> Workload | None:
    """Return the DaemonSet of this name in its own namespace, which has the same name; None if there is none."""
    path = f"/apis/apps/v1/namespaces/{name}/daemonsets/{name}"
    found = await get_one(api, f"DaemonSet {name}", path, read_workload)
    return None if found is None else found.daemon_set()


async def has_renewer(api: ApiClient, namespace: str) -> bool:
    """Return whether the CronJob exists that renews the webhook's certificate."""
    path = f"/apis/batch/v1/namespaces/{segment(namespace)}/cronjobs/{names.RENEWER}"
    return await get_one(api, f"CronJob {names.RENEWER}", path, bytes) is not None


async def read_pods(api: ApiClient, namespace: str) -> list[OwnPodObject]:
    """Return the pods of the namespace."""
    return await list_all(api, "pods", f"/api/v1/namespaces/{segment(namespace)}/pods", read_own_pod)


async def read_bundles(api: ApiClient) -> Mapping[str, bytes]:
    """Return the registered webhooks with the CAs by which the API server trusts them."""
    paths = [f"{ADMISSION}/{kind}webhookconfigurations/{names.WEBHOOK}" for kind in ("mutating", "validating")]
    found = await asyncio.gather(
        *(get_one(api, "the webhook's registration", path, read_registration) for path in paths)
    )
    webhooks = [each for registration in found if registration is not None for each in registration.webhooks or ()]
    return {each.name: each.client_config.ca_bundle or b"" for each in webhooks}


async def read_serving_secret(api: ApiClient, namespace: str) -> Secret | None:
    """Return the Secret with the webhook's certificate; None if there is none."""
    path = f"/api/v1/namespaces/{segment(namespace)}/secrets/{names.SERVING_SECRET}"
    return await get_one(api, f"Secret {names.SERVING_SECRET}", path, read_secret)


async def read_kinds(api: ApiClient) -> frozenset[str]:
    """Return the names of our CustomResourceDefinitions that the API server serves."""
    path, expected = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", sorted(KINDS)
    found = await asyncio.gather(
        *(get_one(api, f"CustomResourceDefinition {name}", f"{path}/{name}", read_kind) for name in expected)
    )
    return frozenset(name for name, kind in zip(expected, found, strict=True) if kind is not None and kind.established)


async def read_flow_schemas(api: ApiClient) -> frozenset[str]:
    """Return the names of the API server's FlowSchemas."""
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    return frozenset(await list_all(api, "FlowSchemas", path, read_name))


async def read_policies(api: ApiClient) -> Mapping[str, AdmissionPolicy]:
    """Return the policies that refuse. An API server that is too old for them has none."""
    kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    listed = await asyncio.gather(
        *(list_all(api, kind, f"{ADMISSION}/{kind}", read_policy, empty={NOT_FOUND}) for kind in kinds)
    )
    policies, bindings = ({each.metadata.name: each for each in found} for found in listed)
    ours = (*GUARDS, *CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT)
    return {name: _policy(name, policies.get(name), bindings.get(name)) for name in ours}


async def read_injection(api: ApiClient) -> AdmissionPolicy:
    """Return the policy that injects variables."""
    kinds = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    policy, binding = await asyncio.gather(
        *(get_one(api, INJECTION, f"{ADMISSION}/{kind}/{INJECTION}", read_policy) for kind in kinds)
    )
    return replace(_policy(INJECTION, policy, binding), denies=True)


def _policy(name: str, policy: PolicyObject | None, binding: PolicyObject | None) -> AdmissionPolicy:
    actions = () if binding is None else binding.spec.validation_actions or ()
    return AdmissionPolicy(
        exists=policy is not None,
        fails_closed=policy is not None and policy.spec.failure_policy == "Fail",
        bound=binding is not None and binding.spec.policy_name == name,
        denies="Deny" in actions,
    )


async def read_leases(api: ApiClient, namespace: str, clock: ServerClock) -> Mapping[str, HeldLease | None]:
    """Return the Leases of scheduler and controller."""
    elected = (names.LEASE, names.CONTROLLER)
    found = await asyncio.gather(*(_lease(api, namespace, name, clock) for name in elected))
    return dict(zip(elected, found, strict=True))


async def _lease(api: ApiClient, namespace: str, name: str, clock: ServerClock) -> HeldLease | None:
    """Read a leader's Lease. One that seems to have expired is read again: its holder's clock may be wrong."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases/{name}"
    lease = await get_one(api, f"Lease {name}", path, read_lease)
    if lease is None:
        return None
    spec = lease.spec
    held = HeldLease(spec.holder_identity or "", clock.age(spec.renew_time), float(spec.lease_duration_seconds or 0))
    if not held.holder or not held.expired:
        return held
    await asyncio.sleep(RENEWED_WITHIN)
    later = await get_one(api, f"Lease {name}", path, read_lease)
    return replace(held, renewed=later is not None and later.spec.renew_time != spec.renew_time)


async def read_monitors_leases(api: ApiClient, clock: ServerClock) -> Mapping[str, HeldLease]:
    """Return the monitors' Leases by node."""
    leases = await list_all(api, "the monitors' Leases", LEASES, read_monitor_lease, empty={NOT_FOUND})
    return {node: HeldLease(node, clock.age(lease.renewed), lease.lasts) for node, lease in leases}
