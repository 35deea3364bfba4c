from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.doctor import collect, sources
from gpu_scheduler.cli.doctor.collect import read_facts
from gpu_scheduler.cli.doctor.expected import (
    ASSIGNMENTS,
    CLAIM_GUARDS,
    DRIVER_GUARD,
    ENVIRONMENT,
    GUARDS,
    KINDS,
    WEBHOOKS,
)
from gpu_scheduler.cli.doctor.facts import AdmissionPolicy, Claims, Facts, UnreadFact, Workload
from gpu_scheduler.cli.options import Output
from gpu_scheduler.cli.verbs.doctor import doctor
from gpu_scheduler.process.lifecycle import UNKNOWN_VERSION
from unit_tests.cli.doctor.healthy import PRIORITIES
from unit_tests.cli.doctor.scripted_installation import (
    DAY,
    DRIVERS,
    FORBIDDEN,
    INSTALLED,
    MONITOR_LEASES,
    NAMESPACE,
    PAIR,
    PODS,
    REVIEWS,
    installed,
    workload,
)
from unit_tests.cli.scripted_cluster import (
    DEPLOYMENT,
    MISSING,
    SYSTEM,
    Capsys,
    cluster,
    deployment,
    device,
    items,
    lease,
    node,
    pod,
)
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_scheduler.cli.options import Options
    from tests.objects import Object


FACTS = {field.name for field in fields(Facts)}


async def facts_of(options: Options) -> Facts:
    async with reached(options) as api:
        return await read_facts(api, NAMESPACE)


async def test_facts_are_what_the_api_server_has(tmp_path: Path) -> None:
    """Every fact is read; those of the API's objects are what stands there."""
    pods = items(pod("a-0", "node1", "0"), pod("b-0", "node1", "0", count="1"))
    began = datetime.now(UTC)
    async with installed(
        tmp_path,
        nodes=items(node("node1", device(0))),
        pods=pods,
        monitors=items(lease("node1", age=3600), lease("former", age=3600)),
    ) as (server, options):
        facts = await facts_of(options)

    assert not [name for name in FACTS if isinstance(getattr(facts, name, None), UnreadFact)]
    assert facts.server_version.value == (1, 36)
    assert abs(facts.clock_ahead.value) < 5
    assert {name: (each.wanted, each.available) for name, each in facts.deployments.value.items()} == {
        "gpu-scheduler": (2, 2),
        "gpu-scheduler-webhook": (2, 2),
    }
    assert (facts.installer.name, facts.installer.release) == ("Helm", "ours")
    assert facts.monitors.value is not None
    assert (facts.monitors.value.wanted, facts.monitors.value.available) == (4, 3)
    assert facts.drivers.value is None
    assert facts.claims.value == Claims()
    assert facts.pods.value == {"gpu-scheduler-0", "gpu-scheduler-webhook-0"}
    first, second = facts.replicas.value
    assert (first.pod, first.component, first.version, first.commit) == (
        "gpu-scheduler-0",
        "scheduler",
        "0.1.0",
        "0a1b2c3",
    )
    assert second.certificate_ends is not None
    assert second.certificate_ends - facts.now == pytest.approx(DAY, abs=datetime.now(UTC) - began)
    assert facts.kinds.value == KINDS
    assert facts.denied.value == {}
    assert facts.flow_schemas.value == PRIORITIES
    gone = AdmissionPolicy(exists=False, fails_closed=False, bound=False, denies=False)
    absent = dict.fromkeys((*CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT), gone)
    assert facts.policies.value == {**dict.fromkeys(GUARDS, AdmissionPolicy()), **absent}
    assert not facts.isolates.value
    assert facts.injection.value == replace(gone, denies=True)
    assert facts.webhooks.value == WEBHOOKS
    certificate = facts.certificate.value
    assert certificate is not None
    assert (certificate.missing_names, certificate.distrusted_by) == ((), ())
    assert certificate.renewer == "gpu-scheduler-renewer"
    held = facts.leases.value["gpu-scheduler"]
    assert held is not None
    assert (held.holder, held.expired) == ("gpu-scheduler-0_1", False)
    assert facts.leases.value["gpu-scheduler-controller"] is None
    assert {name: each.expired for name, each in facts.monitor_leases.value.items()} == {"node1": True}
    assert [(each.device, str(each.second.ref)) for each in facts.gpus.value.conflicts] == [("0", "ml/b-0")]
    assert facts.limits_faults.value == ()
    asked = [json.dumps(each.body) for each in server.asked("POST", PODS)]
    assert all(each.query == {"dryRun": "All"} for each in server.asked("POST", PODS))
    assert all("registry.invalid/gpu-scheduler:1" in body for body in asked)
    reviewed = {each.body["spec"]["user"] for each in server.asked("POST", REVIEWS)}
    assert reviewed == {
        f"system:serviceaccount:{NAMESPACE}:gpu-scheduler",
        f"system:serviceaccount:{NAMESPACE}:gpu-scheduler-controller",
        f"system:serviceaccount:{NAMESPACE}:gpu-scheduler-renewer",
        "system:serviceaccount:gpu-scheduler-monitor:gpu-scheduler-monitor",
    }


@pytest.mark.promise("doctor-2")
async def test_facts_that_may_not_be_read(tmp_path: Path) -> None:
    """None of them is a default: each says which right is missing."""
    async with cluster(tmp_path) as (server, options):
        for path in INSTALLED:
            server.on("GET", path, FORBIDDEN)
        for path in ("/api/v1/nodes", "/api/v1/pods", MONITOR_LEASES, DEPLOYMENT):
            server._scripts["GET", path] = [FORBIDDEN]
        for name in ("configmaps/gpu-scheduler-settings", "configmaps/gpu-scheduler-limits"):
            server._scripts["GET", f"/api/v1{SYSTEM}/{name}"] = [FORBIDDEN]
        server.on("POST", PODS, Reply(403, {"message": 'User "jane" cannot create resource "pods" in API group ""'}))
        server.on("POST", REVIEWS, FORBIDDEN)
        facts = await facts_of(options)

    unread = {name for name in FACTS if isinstance(getattr(facts, name), UnreadFact)}
    assert unread == FACTS - {"namespace", "own_version", "now", "installer", "clock_ahead"}
    assert all(getattr(facts, name).why.startswith("missing right to ") for name in unread)
    assert facts.limits_faults == UnreadFact(
        f"missing right to get configmaps/gpu-scheduler-limits -n {NAMESPACE}",
        f"ask for the right (kubectl auth can-i get configmaps/gpu-scheduler-limits -n {NAMESPACE})",
    )


@pytest.mark.promise("doctor-1")
async def test_the_verb_prints_what_it_found_first(tmp_path: Path, capsys: Capsys) -> None:
    """Here the API server accepts a forged assignment, a monitor is missing, and nobody leads the controller."""
    async with installed(tmp_path) as (_, options):
        assert await doctor(options) == 1
        rows = capsys.readouterr().out.splitlines()
        await doctor(replace(options, output=Output.NAME))
        names = capsys.readouterr().out.split()
        await doctor(replace(options, output=Output.JSON))
        data = json.loads(capsys.readouterr().out)

    assert [row.split()[1] for row in rows if row.startswith("error")] == [
        "deployments",
        "policies",
        "leader",
        "readiness",
        "monitors",
    ]
    assert rows[2].startswith(" ")
    assert "remedy: helm upgrade ours charts/gpu-scheduler -n gpu-scheduler-system --reuse-values" in rows[2]
    assert names[0] == "deployment/gpu-scheduler-controller"
    assert names[-1] == "check/limits"
    first = data["items"][0]
    assert (first["kind"], first["check"], first["result"]) == ("Check", "deployments", "error")
    assert first["object"] == "deployment/gpu-scheduler-controller"


async def test_an_expired_lease_that_is_renewed_shows_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again after the time in which a leader renews it."""
    monkeypatch.setattr(sources, "RENEWED_WITHIN", 0.0)
    path = f"/apis/coordination.k8s.io/v1{SYSTEM}/leases/gpu-scheduler"
    stuck = Reply(body=lease("gpu-scheduler", age=70))
    async with installed(tmp_path, lease=stuck) as (server, options):
        server.on("GET", path, Reply(body=lease("gpu-scheduler", age=68)))
        renewed = (await facts_of(options)).leases.value["gpu-scheduler"]
        again = (await facts_of(options)).leases.value["gpu-scheduler"]

    assert renewed is not None
    assert again is not None
    assert (renewed.renewed, renewed.expired) == (True, False)
    assert (again.renewed, again.expired) == (False, True)


async def test_a_command_that_was_never_installed_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs from a checkout: nothing can be compared."""
    monkeypatch.setattr(collect, "own_version", lambda: UNKNOWN_VERSION)
    async with installed(tmp_path) as (_, options):
        assert (await facts_of(options)).own_version == ""


MIG = "MIG-00000009-0000-4000-8000-000000000000"
LISTED = device(0), device(1), device(2, uuid=None), device(3, migDevices=[{"uuid": MIG}])
"""The devices of a node: two that our driver publishes, one without a UUID, and one that is divided."""
MONITORED = node("node1", *LISTED)
MONITORED["metadata"]["annotations"]["agentaflow.gpu/last-update"] = "2026-01-01T00:00:00Z"


def slice_of(name: str, *indices: int, driver: str = "gpu.agentaflow.io") -> Object:
    """Return the ResourceSlice of a node with these devices."""
    devices = [{"name": f"gpu-{i}", "attributes": {"uuid": {"string": device(i)["uuid"]}}} for i in indices]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {"driver": driver, "nodeName": name, "pool": pool, "devices": devices},
    }


def claim(name: str, pool: str, index: int, driver: str = "gpu.agentaflow.io") -> Object:
    """Return a claim that is allocated this device."""
    results = [{"request": "gpu", "driver": driver, "pool": pool, "device": f"gpu-{index}"}]
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


DRIVEN: dict[str, tuple[list[Object], list[Object], Claims]] = {
    "our driver publishes what it can": ([slice_of("node1", 0, 1)], [claim("a", "node1", 1)], Claims()),
    "NVIDIA's driver publishes the devices": (
        [slice_of("node1", 0, 1, driver="gpu.nvidia.com")],
        [claim("a", "node1", 7, driver="gpu.nvidia.com")],
        Claims(),
    ),
    "one device is not published": ([slice_of("node1", 0)], [], Claims(("node1",))),
    "the driver is gone": ([], [claim("a", "node1", 1)], Claims(("node1",))),
    "claims of a device and of a node that are gone": (
        [slice_of("node1", 0, 1)],
        [claim("b", "node1", 7), claim("a", "former", 0)],
        Claims((), ("ml/a", "ml/b")),
    ),
}


@pytest.mark.promise("isolate-16")
@pytest.mark.parametrize(("slices", "claims", "expected"), DRIVEN.values(), ids=DRIVEN)
async def test_what_has_no_driver(slices: list[Object], claims: list[Object], expected: Claims, tmp_path: Path) -> None:
    """A claim on a node whose devices are not published is not named beside the node."""
    async with installed(
        tmp_path,
        deployment=deployment(ISOLATION="dra"),
        nodes=items(MONITORED, node("node2", device(5))),
        slices=items(*slices),
        claims=items(*claims),
    ) as (_, options):
        facts = await facts_of(options)

    assert facts.isolates.value
    assert facts.claims.value == expected


async def test_rights_of_drivers_are_asked_for_where_there_are_any(tmp_path: Path) -> None:
    """Their DaemonSet is counted as the monitors' is."""
    drivers = Reply(body={**workload("gpu-scheduler-driver"), "status": {"desiredNumberScheduled": 2}})
    async with installed(tmp_path, {DRIVERS: drivers}) as (server, options):
        facts = await facts_of(options)

    assert facts.drivers.value == Workload(2, 0)
    reviewed = {each.body["spec"]["user"] for each in server.asked("POST", REVIEWS)}
    assert "system:serviceaccount:gpu-scheduler-driver:gpu-scheduler-driver" in reviewed


@pytest.mark.promise("doctor-2")
async def test_claims_that_may_not_be_listed(tmp_path: Path) -> None:
    """Where the scheduler allocates them, they are no empty list."""
    async with installed(tmp_path, claims=FORBIDDEN, deployment=deployment(ISOLATION="dra")) as (_, options):
        facts = await facts_of(options)

    assert facts.claims == UnreadFact(
        "missing right to list resourceclaims.resource.k8s.io and resourceslices.resource.k8s.io",
        "ask for the right (kubectl auth can-i list resourceclaims.resource.k8s.io -A)",
    )


BINDINGS: dict[str, tuple[dict[str, object], AdmissionPolicy]] = {
    "none": ({}, AdmissionPolicy(bound=False, denies=False)),
    "one of another policy": ({"policyName": "other", "validationActions": ["Deny"]}, AdmissionPolicy(bound=False)),
    "one that only warns": (
        {"policyName": ASSIGNMENTS, "validationActions": ["Warn", "Audit"]},
        AdmissionPolicy(denies=False),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), BINDINGS.values(), ids=BINDINGS)
async def test_a_policy_is_in_force_only_by_its_own_binding(
    spec: dict[str, object], expected: AdmissionPolicy, tmp_path: Path
) -> None:
    """The binding has the policy's name, and says Deny."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    bindings = items({"metadata": {"name": ASSIGNMENTS}, "spec": spec}) if spec else items()
    async with installed(tmp_path, {path: bindings}) as (_, options):
        policies = (await facts_of(options)).policies.value

    assert policies[ASSIGNMENTS] == expected


CERTIFICATES = {
    "no Secret": (MISSING, None),
    "a Secret without a certificate": (Reply(body={"metadata": {}}), None),
    "a certificate of cert-manager": (
        Reply(
            body={
                "metadata": {"annotations": {"cert-manager.io/certificate-name": "gpu-scheduler-webhook-tls"}},
                "data": {"tls.crt": b64encode(PAIR["tls.crt"]).decode()},
            }
        ),
        "cert-manager",
    ),
}


@pytest.mark.parametrize(("secret", "renewer"), CERTIFICATES.values(), ids=CERTIFICATES)
async def test_certificate_of_the_secret(secret: Reply, renewer: str | None, tmp_path: Path) -> None:
    """Who renews it decides the remedy."""
    async with installed(tmp_path, {f"/api/v1{SYSTEM}/secrets/gpu-scheduler-webhook-tls": secret}) as (_, options):
        certificate = (await facts_of(options)).certificate.value

    assert (certificate and certificate.renewer) == renewer


async def test_nothing_is_installed(tmp_path: Path) -> None:
    """Every object is missing, and each fact says so."""
    lists = ("deployments", "pods", "policies", "bindings")
    absent = {path: items() if path.endswith(lists) else MISSING for path in INSTALLED if path != "/version"}
    async with installed(tmp_path, absent) as (server, options):
        facts = await facts_of(options)

    reviewed = [each.body["spec"]["resourceAttributes"]["namespace"] for each in server.asked("POST", REVIEWS)]
    assert "gpu-scheduler-monitor" not in reviewed, "without monitors nobody grants the right to read their Leases"
    assert facts.deployments.value == {}
    assert facts.monitors.value is None
    assert facts.replicas.value == ()
    assert facts.kinds.value == frozenset()
    assert facts.webhooks.value == frozenset()
    assert facts.certificate.value is None


async def test_leases_of_nodes_that_may_not_be_listed(tmp_path: Path) -> None:
    """Then all of them count."""
    monitors = items(lease("former", age=3600))
    async with installed(tmp_path, nodes=FORBIDDEN, monitors=monitors) as (_, options):
        facts = await facts_of(options)

    assert isinstance(facts.gpus, UnreadFact)
    assert set(facts.monitor_leases.value) == {"former"}


async def test_an_api_server_that_fails(tmp_path: Path) -> None:
    """It is no missing right."""
    broken = {f"/apis/apps/v1{SYSTEM}/deployments": Reply(500, {"message": "etcd is gone"})}
    async with installed(tmp_path, broken, limits=Reply(500, {"message": "etcd is gone"})) as (_, options):
        facts = await facts_of(options)

    assert isinstance(facts.limits_faults, UnreadFact)
    assert facts.deployments == UnreadFact(
        "cannot list Deployments: HTTP 500: etcd is gone", "kubectl get --raw '/readyz?verbose'"
    )
