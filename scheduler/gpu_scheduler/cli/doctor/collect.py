"""Reads all facts of an installation at once, with the caller's own rights. Dry runs are its only writes."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Final, TypeVar

from gpu_scheduler import names
from gpu_scheduler.certificates.inspection import inspect
from gpu_scheduler.certificates.issuing import CERTIFICATE, names_of
from gpu_scheduler.cli.doctor.facts import Certificate, Claims, Facts, Gpus, Installer, Known, NodeUse
from gpu_scheduler.cli.doctor.probing import ask_admission, ask_replicas, ask_rights, forged_pod, our_pod
from gpu_scheduler.cli.doctor.reading import fact, missing, read_server
from gpu_scheduler.cli.doctor.rights import (
    controller_account,
    driver_account,
    monitor_account,
    renewer_account,
    scheduler_account,
)
from gpu_scheduler.cli.doctor.sources import (
    has_renewer,
    read_bundles,
    read_daemon_set,
    read_deployments,
    read_flow_schemas,
    read_injection,
    read_kinds,
    read_leases,
    read_monitors_leases,
    read_pods,
    read_policies,
    read_serving_secret,
)
from gpu_scheduler.cli.installation import read_installation
from gpu_scheduler.cli.snapshot import take_snapshot
from gpu_scheduler.core.ledger.hold import drifts
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.process.lifecycle import UNKNOWN_VERSION, own_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_scheduler.cli.doctor.facts import HeldLease, Replica, UnreadFact, Workload
    from gpu_scheduler.cli.doctor.objects import OwnPodObject, WorkloadObject
    from gpu_scheduler.cli.doctor.reading import ServerClock
    from gpu_scheduler.cli.doctor.rights import Account
    from gpu_scheduler.cli.installation import Installation
    from gpu_scheduler.cli.snapshot import Snapshot
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.secrets import Secret

T = TypeVar("T")
U = TypeVar("U")

_RELEASE: Final = "meta.helm.sh/release-name"
_CERT_MANAGER: Final = "cert-manager.io/certificate-name"


async def read_facts(api: ApiClient, namespace: str) -> Facts:
    """Read everything about the installation in `namespace`. NoResponseError if the API server does not answer."""
    clock, clock_ahead, version = await read_server(api)
    inside, lease_space = f"-n {shlex.quote(namespace)}", f"-n {names.MONITOR}"
    async with asyncio.TaskGroup() as group:
        ask = group.create_task
        deployments = ask(fact(f"list deployments.apps {inside}", read_deployments(api, namespace)))
        monitors, drivers = (
            ask(fact(f"get daemonsets.apps/{name} -n {name}", read_daemon_set(api, name)))
            for name in (names.MONITOR, names.DRIVER)
        )
        renewer = ask(fact(f"get cronjobs.batch/{names.RENEWER} {inside}", has_renewer(api, namespace)))
        pods = ask(fact(f"list pods {inside}", read_pods(api, namespace)))
        right = f"get deployments.apps/{names.SCHEDULER_NAME} {inside}"
        installation = ask(fact(right, read_installation(api, namespace)))
        bundles = ask(fact("get mutatingwebhookconfigurations", read_bundles(api)))
        right = f"get secrets/{names.SERVING_SECRET} {inside}"
        secret = ask(fact(right, read_serving_secret(api, namespace)))
        kinds = ask(fact("get customresourcedefinitions", read_kinds(api)))
        flow_schemas = ask(fact("list flowschemas.flowcontrol.apiserver.k8s.io", read_flow_schemas(api)))
        right = "list validatingadmissionpolicies"
        policies = ask(fact(f"{right}, and their bindings", read_policies(api), right))
        right = "get mutatingadmissionpolicies"
        injection = ask(fact(f"{right}, and their bindings", read_injection(api), right))
        leases = ask(fact(f"get leases {inside}", read_leases(api, namespace, clock)))
        monitor_leases = ask(fact(f"list leases {lease_space}", read_monitors_leases(api, clock)))
        decides = await installation
        policy = decides.value.policy if isinstance(decides, Known) else Policy()
        image, installer = _of_scheduler(await deployments)
        right = f"create pods {inside}"
        ours = ask(fact(right, ask_admission(api, namespace, our_pod(policy.scheduler_name, image))))
        forged = ask(fact(right, ask_admission(api, namespace, forged_pod(image))))
        snapshot = ask(fact("list nodes and pods of all namespaces", take_snapshot(api, policy), "list pods -A"))
        accounts = _accounts(namespace, await monitors, await drivers, await renewer, reads_claims=policy.reads_claims)
        denied = ask(fact("create subjectaccessreviews.authorization.k8s.io", ask_rights(api, accounts)))
        replicas = ask(_replicas(api, namespace, await pods, clock))
    isolates = _isolates(decides, inside)
    return Facts(
        namespace=namespace,
        own_version="" if own_version() == UNKNOWN_VERSION else own_version(),
        now=clock.now(),
        server_version=version,
        clock_ahead=clock_ahead,
        deployments=_each(
            deployments.result(), lambda found: {name: each.deployment() for name, each in found.items()}
        ),
        installer=installer,
        monitors=monitors.result(),
        drivers=drivers.result(),
        pods=_each(pods.result(), lambda found: frozenset(pod.metadata.name for pod in found)),
        replicas=replicas.result(),
        kinds=kinds.result(),
        denied=denied.result(),
        flow_schemas=flow_schemas.result(),
        isolates=isolates,
        policies=policies.result(),
        injection=injection.result(),
        webhooks=_each(bundles.result(), frozenset),
        our_pod=ours.result(),
        forged_pod=forged.result(),
        certificate=_each(
            secret.result(), lambda found: _certificate(found, namespace, clock, bundles.result(), renewer.result())
        ),
        leases=leases.result(),
        monitor_leases=_each(monitor_leases.result(), lambda found: _of_nodes(found, snapshot.result())),
        gpus=_each(snapshot.result(), _gpus),
        claims=_claims(isolates, snapshot.result()),
        limits_faults=_limits_faults(decides, inside),
    )


def _each(read: Known[T] | UnreadFact, translate: Callable[[T], U]) -> Known[U] | UnreadFact:
    """Return the fact that follows from another one."""
    return Known(translate(read.value)) if isinstance(read, Known) else read


def _of_scheduler(deployments: Known[Mapping[str, WorkloadObject]] | UnreadFact) -> tuple[str, Installer]:
    """Return the image of the scheduler's Deployment, and who applied it."""
    found = deployments.value.get(names.SCHEDULER_NAME) if isinstance(deployments, Known) else None
    if found is None:
        return names.SCHEDULER_NAME, Installer()
    labels, annotations = found.metadata.labels or {}, found.metadata.annotations or {}
    installer = Installer(
        labels.get("app.kubernetes.io/managed-by", ""), annotations.get(_RELEASE, names.SCHEDULER_NAME)
    )
    return found.image or names.SCHEDULER_NAME, installer


def _accounts(
    namespace: str,
    monitors: Known[Workload | None] | UnreadFact,
    drivers: Known[Workload | None] | UnreadFact,
    renews: Known[bool] | UnreadFact,
    *,
    reads_claims: bool,
) -> list[Account]:
    """Return the accounts of what is installed."""
    monitored, driven = (isinstance(each, Known) and each.value is not None for each in (monitors, drivers))
    scheduler = scheduler_account(namespace, monitors=monitored, reads_claims=reads_claims)
    accounts = [scheduler, controller_account(namespace)]
    if monitored:
        accounts.append(monitor_account())
    if driven:
        accounts.append(driver_account())
    if isinstance(renews, Known) and renews.value:
        accounts.append(renewer_account(namespace))
    return accounts


async def _replicas(
    api: ApiClient, namespace: str, pods: Known[list[OwnPodObject]] | UnreadFact, clock: ServerClock
) -> Known[tuple[Replica, ...]] | UnreadFact:
    if not isinstance(pods, Known):
        return pods
    return await fact(f"get pods/proxy -n {shlex.quote(namespace)}", ask_replicas(api, namespace, pods.value, clock))


def _certificate(
    secret: Secret | None,
    namespace: str,
    clock: ServerClock,
    bundles: Known[Mapping[str, bytes]] | UnreadFact,
    renews: Known[bool] | UnreadFact,
) -> Certificate | None:
    if secret is None:
        return None
    trusted = bundles.value if isinstance(bundles, Known) else {}
    name = names_of(names.WEBHOOK, namespace)[0]
    found = inspect((secret.data or {}).get(CERTIFICATE, b""), name, trusted, clock.now())
    if found is None:
        return None
    by_cert_manager = _CERT_MANAGER in (secret.metadata.annotations or {})
    by_us = isinstance(renews, Known) and renews.value
    return Certificate(
        found.begins,
        found.ends,
        () if found.has_name else (name,),
        found.distrusted_by,
        "cert-manager" if by_cert_manager else names.RENEWER if by_us else "",
    )


def _of_nodes(leases: Mapping[str, HeldLease], snapshot: Known[Snapshot] | UnreadFact) -> Mapping[str, HeldLease]:
    """Return the Leases of nodes that exist: a Lease outlives its node."""
    if not isinstance(snapshot, Known):
        return leases
    return {node: lease for node, lease in leases.items() if node in snapshot.value.listed}


def _gpus(snapshot: Snapshot) -> Gpus:
    ledger = snapshot.ledger
    by_name: dict[str, list[PodRef]] = {}
    for hold in ledger:
        if hold.devices and not ledger.devices.unnamed(hold):
            by_name.setdefault(hold.node, []).append(hold.ref)
    mixed = [
        NodeUse(states.node.name, states.unnamed, tuple(by_name[states.node.name]))
        for states in snapshot.node_devices
        if states.unnamed and states.node.name in by_name
    ]
    drifting = [pod.ref for pod in snapshot.pods if pod.bound and not pod.finished and drifts(pod)]
    return Gpus(tuple(mixed), tuple(drifting), tuple(ledger.devices.moved()), ledger.conflicts())


def _claims(isolates: Known[bool] | UnreadFact, snapshot: Known[Snapshot] | UnreadFact) -> Known[Claims] | UnreadFact:
    if not isinstance(isolates, Known):
        return isolates
    if not isolates.value:
        return Known(Claims())
    if isinstance(snapshot, Known) and snapshot.value.objects.published.unread:
        claims = "resourceclaims.resource.k8s.io"
        return missing(f"list {claims} and resourceslices.resource.k8s.io", f"list {claims} -A")
    return _each(snapshot, _without_driver)


def _without_driver(snapshot: Snapshot) -> Claims:
    pools = snapshot.objects.published.pools
    nodes = frozenset(node.name for node in snapshot.nodes if not pools.publish_all(node))
    claims = {
        f"{claim.namespace}/{claim.name}"
        for claim in snapshot.objects.published.claims
        for device in claim.devices
        # A driver of ours names its pool after its node.
        if device.driver == names.DRA_DRIVER and device.pool not in nodes and pools.where(device) is None
    }
    return Claims(tuple(sorted(nodes)), tuple(sorted(claims)))


def _isolates(installation: Known[Installation] | UnreadFact, inside: str) -> Known[bool] | UnreadFact:
    if isinstance(installation, Known) and installation.value.unread.deployment:
        return missing(f"get deployments.apps/{names.SCHEDULER_NAME} {inside}")
    return _each(installation, lambda found: found.policy.reads_claims)


def _limits_faults(installation: Known[Installation] | UnreadFact, inside: str) -> Known[tuple[str, ...]] | UnreadFact:
    if not isinstance(installation, Known):
        return installation
    text = installation.value.limits
    return missing(f"get configmaps/{names.LIMITS} {inside}") if text is None else Known(tuple(parse_limits(text)[1]))
