from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

import pytest

from gpu_scheduler.cli.doctor.checks.certificate import SOON
from gpu_scheduler.cli.doctor.checks.replicas import CLOCK_LIMIT
from gpu_scheduler.cli.doctor.examine import CHECKS, examine
from gpu_scheduler.cli.doctor.expected import CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT, FLOW_SCHEMAS, WEBHOOKS
from gpu_scheduler.cli.doctor.facts import (
    AdmissionPolicy,
    Answer,
    Claims,
    Gpus,
    HeldLease,
    Installer,
    NodeUse,
    UnreadFact,
    Workload,
)
from gpu_scheduler.cli.doctor.findings import CheckFinding, Result
from gpu_scheduler.core.ledger.conflicts import Conflict
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.moved_gpus import MovedGpu
from gpu_scheduler.core.refs import PodRef
from tests.messages import text_of
from unit_tests.cli.doctor.healthy import (
    CERTIFICATE,
    DAY,
    GONE,
    ISOLATING,
    LEASES,
    MONITOR_LEASES,
    NOW,
    POLICIES,
    PRIORITIES,
    REPLICAS,
    facts,
)

INSIDE = "-n gpu-scheduler-system"
A, B = (PodRef("ml", name, f"uid-{name}") for name in ("a-0", "b-0"))
GPU = "GPU-a05c6894-afaa-56aa-b3a2-dc33db7d311a"
INJECTED = {
    "webhooks": frozenset(),
    "policies": {**POLICIES, ENVIRONMENT: AdmissionPolicy()},
    "injection": AdmissionPolicy(),
}
DEPLOYMENTS = {"gpu-scheduler": Workload(2, 2), "gpu-scheduler-controller": Workload(2, 2)}
NO_WEBHOOK = {**INJECTED, "deployments": DEPLOYMENTS, "certificate": None, "replicas": REPLICAS[:4]}
"""What differs where a policy injects in place of the webhook."""
NO_MONITORS: dict[str, Any] = {"monitors": None, "monitor_leases": {}, "flow_schemas": FLOW_SCHEMAS}


def hold(ref: PodRef) -> Hold:
    return Hold(ref, "node1", ("0",), (), 0, None, None, False, None, False)


def leases(**change: Any) -> dict[str, object]:
    """Return the Leases with a change of the scheduler's."""
    return {**LEASES, "gpu-scheduler": replace(LEASES["gpu-scheduler"], **change)}


def replicas(**change: Any) -> tuple[object, ...]:
    """Return the replicas with a change of the first, one of the scheduler's."""
    return (replace(REPLICAS[0], **change), *REPLICAS[1:])


def webhooks_serve(ends: datetime | None) -> tuple[object, ...]:
    """Return the replicas with another end of the certificate that the webhook's serve."""
    return tuple(replace(each, certificate_ends=ends) if each.certificate_ends else each for each in REPLICAS)


def policies(name: str, policy: AdmissionPolicy) -> dict[str, AdmissionPolicy]:
    return {**POLICIES, name: policy}


def only_problems(findings: list[CheckFinding]) -> list[CheckFinding]:
    return [each for each in findings if each.result is not Result.OK]


@pytest.mark.promise("doctor-1")
@pytest.mark.parametrize(
    "changes", [{}, NO_WEBHOOK, ISOLATING, NO_MONITORS], ids=["webhook", "policy", "claims", "no monitors"]
)
def test_a_healthy_installation_has_no_finding(changes: dict[str, Any]) -> None:
    """Each check reports that it passed, whoever injects the variables, with claims and without."""
    assert [(each.result, each.check) for each in examine(facts(**changes))] == [
        (Result.OK, check.name) for check in CHECKS
    ]


@dataclass(frozen=True)
class Damage:
    """What is changed, and the one finding."""

    what: str
    """A part of the message."""
    remedy: str
    changes: dict[str, Any] = field(default_factory=dict)
    result: Result = Result.ERROR


RENEW = f"kubectl create job gpu-scheduler-renewer-now --from=cronjob/gpu-scheduler-renewer {INSIDE}"
OTHERS_POLICIES = text_of("doctor: remedy of other policies")
CLOCK = "timedatectl set-ntp true"


def up(tags: str) -> str:
    return f"make up ARGS='--tags {tags}'"


def restart(name: str) -> str:
    return f"kubectl rollout restart deployment/{name} {INSIDE}"


def describe(component: str) -> str:
    return f"kubectl describe pods -l app.kubernetes.io/component={component} {INSIDE}"


# Check → its damages.
DAMAGES = {
    "certificate": {
        "the certificate has expired": Damage(
            "expired on 2026-11-25 03:37 UTC",
            RENEW,
            {"certificate": replace(CERTIFICATE, ends=NOW), "replicas": webhooks_serve(NOW)},
        ),
        "the certificate ends soon": Damage(
            "ends on 2026-12-09 03:36 UTC",
            RENEW,
            {
                "certificate": replace(CERTIFICATE, ends=NOW + SOON - timedelta(seconds=1)),
                "replicas": webhooks_serve(NOW + SOON),
            },
            Result.WARNING,
        ),
        "cert-manager has not renewed the certificate": Damage(
            "ends on 2026-11-26 03:37 UTC",
            f"kubectl describe certificate gpu-scheduler-webhook-tls {INSIDE}",
            {
                "certificate": replace(CERTIFICATE, ends=NOW + DAY, renewer="cert-manager"),
                "replicas": webhooks_serve(NOW + DAY),
            },
            Result.WARNING,
        ),
        "the certificate begins in the future": Damage(
            "not valid before 2026-11-26 03:37 UTC",
            up("certificates,webhook"),
            {"certificate": replace(CERTIFICATE, begins=NOW + DAY, renewer="")},
        ),
        "the certificate is made for another name": Damage(
            "made for gpu-scheduler-webhook.gpu-scheduler-system.svc",
            RENEW,
            {"certificate": replace(CERTIFICATE, missing_names=("gpu-scheduler-webhook.gpu-scheduler-system.svc",))},
        ),
        "the certificate's Secret is gone": Damage(
            "Secret gpu-scheduler-webhook-tls", up("certificates,webhook"), {"certificate": None}
        ),
        "another CA than the registration's signed the certificate": Damage(
            "the caBundle of mutate.gpu-scheduler.agentaflow.io",
            up("certificates,webhook"),
            {"certificate": replace(CERTIFICATE, distrusted_by=("mutate.gpu-scheduler.agentaflow.io",))},
        ),
        "a replica serves the certificate before": Damage(
            "pod gpu-scheduler-webhook-0",
            restart("gpu-scheduler-webhook"),
            {
                "replicas": tuple(
                    replace(each, certificate_ends=NOW + DAY) if each.pod == "gpu-scheduler-webhook-0" else each
                    for each in REPLICAS
                )
            },
        ),
        "the replicas serve an expired certificate and the Secret may not be read": Damage(
            "expired on 2026-11-24",
            up("certificates,webhook"),
            {"certificate": UnreadFact("missing right", "ask"), "replicas": webhooks_serve(NOW - DAY)},
        ),
    },
    "policies": {
        "a policy is gone": Damage(
            "ValidatingAdmissionPolicy gpu-scheduler-rights ",
            up("policies"),
            {"policies": policies("gpu-scheduler-rights", GONE)},
        ),
        "the policy that refuses forged assignments is gone": Damage(
            "ValidatingAdmissionPolicy gpu-scheduler-assignments ",
            up("policies"),
            {"policies": policies("gpu-scheduler-assignments", GONE), "forged_pod": Answer(accepted=True)},
        ),
        "a policy's binding is gone": Damage(
            "ValidatingAdmissionPolicyBinding gpu-scheduler-inputs ",
            up("policies"),
            {"policies": policies("gpu-scheduler-inputs", AdmissionPolicy(bound=False, denies=False))},
        ),
        "a policy only warns": Damage(
            "ValidatingAdmissionPolicyBinding gpu-scheduler-monitor ",
            up("policies"),
            {"policies": policies("gpu-scheduler-monitor", AdmissionPolicy(denies=False))},
        ),
        "a policy fails open": Damage(
            "its failurePolicy is",
            up("policies"),
            {"policies": policies("gpu-scheduler-node-name", AdmissionPolicy(fails_closed=False))},
        ),
        "the policy that injects is gone": Damage(
            "MutatingAdmissionPolicy gpu-scheduler-injection ",
            up("policies"),
            {**NO_WEBHOOK, "injection": GONE},
        ),
        "the API server enforces no policy": Damage(
            text_of("doctor: no policy is enforced"), up("policies"), {"forged_pod": Answer(accepted=True)}
        ),
        "a policy of others refuses every pod": Damage(
            "namespace gpu-scheduler-system for another reason: no image of yours",
            OTHERS_POLICIES,
            {"forged_pod": Answer(accepted=False, message="no image of yours")},
            Result.UNKNOWN,
        ),
        "a driver may say of other nodes what it likes": Damage(
            "ValidatingAdmissionPolicyBinding gpu-scheduler-driver ",
            up("driver"),
            {
                **ISOLATING,
                "policies": {**ISOLATING["policies"], DRIVER_GUARD: AdmissionPolicy(bound=False, denies=False)},
            },
        ),
    },
    "webhook": {
        "the webhook is not registered for Kubeflow's jobs": Damage(
            " mutate-job.gpu-scheduler.agentaflow.io: not registered",
            up("webhook"),
            {"webhooks": WEBHOOKS - {"mutate-job.gpu-scheduler.agentaflow.io"}},
        ),
        "neither a webhook nor a policy injects": Damage(
            " mutate-job.gpu-scheduler.agentaflow.io, mutate.gpu-scheduler.agentaflow.io, "
            "validate.gpu-scheduler.agentaflow.io, warn.gpu-scheduler.agentaflow.io: not registered",
            up("webhook"),
            {"webhooks": frozenset()},
        ),
        "the webhook is not registered for pods that must have claims": Damage(
            " validate-dra.gpu-scheduler.agentaflow.io: not registered",
            up("webhook"),
            {
                "isolates": True,
                "policies": {**POLICIES, **dict.fromkeys(CLAIM_GUARDS, AdmissionPolicy())},
                "webhooks": WEBHOOKS | {"mutate-dra.gpu-scheduler.agentaflow.io"},
            },
        ),
        "the webhook does not answer": Damage(
            ": failed calling webhook: connection refused",
            describe("webhook"),
            {"our_pod": Answer(accepted=False, message="failed calling webhook: connection refused")},
        ),
        "the API server does not trust the webhook": Damage(
            "tls: failed to verify certificate",
            up("certificates,webhook"),
            {"our_pod": Answer(accepted=False, message="failed calling webhook: tls: failed to verify certificate")},
        ),
        "the webhook fails open and does not answer": Damage(
            "the webhook does not inject CUDA_VISIBLE_DEVICES", describe("webhook"), {"our_pod": Answer(accepted=True)}
        ),
        "the policy does not inject": Damage(
            "the policy does not inject CUDA_VISIBLE_DEVICES",
            up("policies"),
            {**NO_WEBHOOK, "our_pod": Answer(accepted=True)},
        ),
        "a policy of others refuses pods of ours": Damage(
            ": no image of yours",
            OTHERS_POLICIES,
            {"our_pod": Answer(accepted=False, message="no image of yours")},
            Result.UNKNOWN,
        ),
    },
    "leader": {
        "the leader does not renew its Lease": Damage(
            ": gpu-scheduler-0_1 renewed its Lease 15 s ago",
            restart("gpu-scheduler"),
            {"leases": leases(age=15.0)},
        ),
        "the leader never renewed its Lease": Damage(
            ": gpu-scheduler-0_1 renewed its Lease at no",
            restart("gpu-scheduler"),
            {"leases": leases(age=inf)},
        ),
        "nobody leads": Damage(
            "gpu-scheduler leads: its Lease has no holder",
            restart("gpu-scheduler"),
            {"leases": leases(holder="")},
        ),
        "nobody ever led the controller": Damage(
            "gpu-scheduler-controller leads: its Lease does",
            restart("gpu-scheduler-controller"),
            {"leases": {**LEASES, "gpu-scheduler-controller": None}},
        ),
        "the leader is no pod": Damage(
            "gpu-scheduler is laptop_2, and no pod laptop",
            " 15 s ",
            {"leases": leases(holder="laptop_2")},
        ),
    },
    "readiness": {
        "a watch is cut": Damage(
            "pod gpu-scheduler-0 is not ready: watches failed: for 200 s",
            restart("gpu-scheduler"),
            {"replicas": replicas(failed=("watches failed: for 200 s",))},
        ),
        "no replica of the controller runs": Damage(
            "gpu-scheduler-controller runs in namespace gpu-scheduler-system",
            describe("controller"),
            {"replicas": tuple(each for each in REPLICAS if each.component != "controller")},
        ),
        "a replica does not answer": Damage(
            "pod gpu-scheduler-0: connection refused",
            f"kubectl describe pod/gpu-scheduler-0 {INSIDE}",
            {"replicas": replicas(unreachable="connection refused", version="")},
        ),
    },
    "monitors": {
        "a monitor is silent": Damage(
            ": node3",
            "-n gpu-scheduler-monitor -o wide",
            {"monitor_leases": {**MONITOR_LEASES, "node3": HeldLease("node3", 45.0, 45.0)}},
        ),
        "all monitors are silent": Damage(
            "node1, node2, node3, node4, node5 and 3 more",
            "-n gpu-scheduler-monitor -o wide",
            {"monitor_leases": {node: HeldLease(node, 60.0, 45.0) for node in MONITOR_LEASES}},
        ),
        "a monitor does not start": Damage(
            "DaemonSet gpu-scheduler-monitor has 3 of 4 monitors",
            "describe pods -n gpu-scheduler-monitor",
            {"monitors": Workload(4, 3)},
        ),
    },
    "drivers": {
        "a driver does not start": Damage(
            "DaemonSet gpu-scheduler-driver has 3 of 4 drivers",
            "describe pods -n gpu-scheduler-driver",
            {**ISOLATING, "drivers": Workload(4, 3)},
        ),
        "a driver publishes nothing": Damage(
            "GpuNotFound: node2, node3",
            "-n gpu-scheduler-driver -o wide",
            {**ISOLATING, "claims": Claims(unpublished=("node2", "node3"))},
        ),
        "the drivers are removed": Damage(
            "GpuNotFound: node1",
            up("driver"),
            {**ISOLATING, "drivers": None, "claims": Claims(unpublished=("node1",))},
        ),
        "a claim has a GPU of no driver": Damage(
            ": ml/a, ml/b",
            "-n gpu-scheduler-driver -o wide) or",
            {**ISOLATING, "claims": Claims(without_driver=("ml/a", "ml/b"))},
        ),
    },
    "rights": {
        "a right of the drivers is gone": Damage(
            "namespace gpu-scheduler-driver may not get resourceclaims",
            up("driver"),
            {"denied": {"gpu-scheduler-driver/gpu-scheduler-driver": ("get resourceclaims",)}},
        ),
        "a right of the scheduler is gone": Damage(
            "namespace gpu-scheduler-system may not patch pods/status; create events",
            up("scheduler,monitor"),
            {"denied": {"gpu-scheduler-system/gpu-scheduler": ("patch pods/status", "create events")}},
        ),
    },
    "clock": {
        "this machine's clock is ahead": Damage("this machine is 60 s ahead", CLOCK, {"clock_ahead": 60.0}),
        "the clock of the leader's node is behind": Damage(
            "gpu-scheduler-0_1, the leader of gpu-scheduler, is 60 s behind",
            CLOCK,
            {"leases": leases(age=60.0, renewed=True)},
        ),
        "the clock of a monitor's node is ahead": Damage(
            ": node2",
            CLOCK,
            {"monitor_leases": {**MONITOR_LEASES, "node2": HeldLease("node2", -CLOCK_LIMIT - 1, 45.0)}},
        ),
    },
    "nodes": {
        "a node has pods of the plugin and pods with a map": Damage(
            " 2 GPUs, and pods hold GPUs by name: ml/a-0, ml/b-0",
            "nvidia.com/gpu, or none",
            {"gpus": Gpus(mixed=(NodeUse("node1", 2, (A, B)),))},
        )
    },
    "pods": {
        "a bound pod lacks its annotation": Damage(
            "pod ml/a-0 reads its GPUs from annotation",
            "kubectl delete pod a-0 -n ml",
            {"gpus": Gpus(drifting=(A,))},
        ),
        "a pod's GPU has another index now": Damage(
            f"node1, GPU 0 was {GPU} ",
            "kubectl delete pod a-0 -n ml",
            {"gpus": Gpus(moved=((hold(A), (MovedGpu("0", GPU, None, None),)),))},
        ),
        "two pods hold one GPU": Damage(
            "GPU 0 of node1 is held by ml/a-0 and ml/b-0",
            "kubectl delete pod b-0 -n ml",
            {"gpus": Gpus(conflicts=(Conflict("node1", "0", hold(A), hold(B)),))},
        ),
        "a pod and a ResourceClaim hold one GPU": Damage(
            "GPU 0 of node1 is held by ml/a-0 and ResourceClaim ml/b-0",
            "kubectl delete pod a-0 -n ml",
            {"gpus": Gpus(conflicts=(Conflict("node1", "0", hold(A), replace(hold(B), is_claim=True)),))},
        ),
        "a ResourceClaim and a pod hold one GPU": Damage(
            "GPU 0 of node1 is held by ResourceClaim ml/a-0 and ml/b-0",
            "kubectl delete pod b-0 -n ml",
            {"gpus": Gpus(conflicts=(Conflict("node1", "0", replace(hold(A), is_claim=True), hold(B)),))},
        ),
    },
    "limits": {
        "a limit cannot be read": Damage(
            "ConfigMap gpu-scheduler-limits: line 4 cannot be read",
            f"configmap gpu-scheduler-limits {INSIDE}",
            {"limits_faults": ("line 4 cannot be read",)},
        )
    },
    "versions": {
        "the API server is too old": Damage(
            "Kubernetes 1.29, and 1.30 or",
            "upgrade the cluster",
            {"server_version": (1, 29)},
        ),
        "the replicas run two builds": Damage(
            ": 0.1.0 (0000000) in gpu-scheduler-0; 0.1.0 (0a1b2c3) in gpu-scheduler-1, ",
            up("scheduler,webhook,controller"),
            {"replicas": replicas(commit="0000000")},
        ),
        "this command is of another version": Damage(
            "0.2.0, and the replicas run 0.1.0",
            "uv tool install",
            {"own_version": "0.2.0"},
            Result.WARNING,
        ),
    },
    "deployments": {
        "a Deployment is not available": Damage(
            "Deployment gpu-scheduler-webhook has 1 of 2 replicas",
            describe("webhook"),
            {"deployments": {**DEPLOYMENTS, "gpu-scheduler-webhook": Workload(2, 1)}},
        ),
        "a Deployment is scaled to 0": Damage(
            "Deployment gpu-scheduler-webhook is scaled to 0",
            f"kubectl scale deployment/gpu-scheduler-webhook --replicas=2 {INSIDE}",
            {"deployments": {**DEPLOYMENTS, "gpu-scheduler-webhook": Workload(0, 0)}},
        ),
        "a Deployment is gone": Damage(
            "Deployment gpu-scheduler-webhook does not exist",
            up("webhook"),
            {"deployments": DEPLOYMENTS},
        ),
        "Helm's object is gone": Damage(
            "Deployment gpu-scheduler-webhook does not exist",
            f"helm upgrade ours charts/gpu-scheduler {INSIDE} --reuse-values",
            {"deployments": DEPLOYMENTS, "installer": Installer("Helm", "ours")},
        ),
        "an object of the manifests is gone": Damage(
            "Deployment gpu-scheduler-webhook does not exist",
            "kubectl apply -k manifests",
            {"deployments": DEPLOYMENTS, "installer": Installer("kubectl")},
        ),
    },
    "kinds": {
        "a kind is gone": Damage(
            "CustomResourceDefinition gpuworkloads.agentaflow.io ",
            up("crds"),
            {"kinds": frozenset({"gpunodes.agentaflow.io"})},
        )
    },
    "priority": {
        f"the FlowSchema of the {component} is gone": Damage(
            f"FlowSchema {name} does not exist: a tenant's requests can make those of service account {name} wait",
            up(tags),
            {**ISOLATING, "flow_schemas": PRIORITIES - {name}},
        )
        for component, name, tags in (
            ("scheduler", "gpu-scheduler", "scheduler,monitor"),
            ("controller", "gpu-scheduler-controller", "controller"),
            ("monitors", "gpu-scheduler-monitor", "monitor"),
            ("drivers", "gpu-scheduler-driver", "driver"),
        )
    },
}


@pytest.mark.promise("doctor-1")
@pytest.mark.parametrize(
    ("check", "damage"),
    [pytest.param(check, damage, id=name) for check, rows in DAMAGES.items() for name, damage in rows.items()],
)
def test_each_damage_is_named_once_with_its_remedy(check: str, damage: Damage) -> None:
    """All other checks pass."""
    (finding,) = only_problems(examine(facts(**damage.changes)))

    assert (finding.check, finding.result) == (check, damage.result)
    assert damage.what in finding.what
    assert damage.remedy in finding.remedy


FACTS = {
    "server_version": {"versions"},
    "clock_ahead": {"clock"},
    "deployments": {"deployments"},
    "monitors": {"priority", "monitors"},
    "drivers": {"priority", "policies", "drivers"},
    "pods": {"leader"},
    "replicas": {"versions", "certificate", "readiness"},
    "kinds": {"kinds"},
    "denied": {"rights"},
    "flow_schemas": {"priority"},
    "policies": {"policies"},
    "injection": {"deployments", "readiness", "policies", "webhook", "certificate"},
    "webhooks": {"policies", "webhook", "certificate"},
    "our_pod": {"webhook"},
    "forged_pod": {"policies"},
    "leases": {"leader", "clock"},
    "monitor_leases": {"monitors", "clock"},
    "gpus": {"nodes", "pods"},
    "claims": {"drivers"},
    "limits_faults": {"limits"},
}


@pytest.mark.promise("doctor-2")
@pytest.mark.parametrize(("name", "checks"), FACTS.items(), ids=FACTS)
def test_what_may_not_be_read_is_a_finding_and_no_pass(name: str, checks: set[str]) -> None:
    """Each check that needs it says once which right is missing, and how to ask for it."""
    changes: dict[str, Any] = NO_WEBHOOK if name == "injection" else {}
    unread = UnreadFact("missing right to see it", "kubectl auth can-i see")

    findings = examine(facts(**{**changes, name: unread}))

    assert {(each.check, each.what, each.result, each.remedy) for each in only_problems(findings)} == {
        (check, f"cannot check {check}: missing right to see it", Result.UNKNOWN, "kubectl auth can-i see")
        for check in checks
    }
    assert len(only_problems(findings)) == len(checks)
    assert {each.check for each in findings} == {check.name for check in CHECKS}


@pytest.mark.promise("doctor-2")
def test_without_the_right_to_the_secret_the_replicas_say_when_the_certificate_ends() -> None:
    """The API server calls the webhook, so it trusts it. If neither can be seen, the missing right is a finding."""
    unread = UnreadFact("missing right to get secrets", "kubectl auth can-i get secrets")

    assert only_problems(examine(facts(certificate=unread))) == []
    (finding,) = only_problems(examine(facts(certificate=unread, replicas=webhooks_serve(None))))
    assert (finding.check, finding.result) == ("certificate", Result.UNKNOWN)
    assert finding.what == "cannot check certificate: missing right to get secrets"


def test_a_new_certificate_may_take_a_while_to_be_served() -> None:
    """The kubelet writes it a minute later, and the webhook polls."""
    renewed = replace(CERTIFICATE, begins=NOW - timedelta(minutes=10), ends=NOW + 365 * DAY)

    assert only_problems(examine(facts(certificate=renewed))) == []


def test_findings_come_before_what_passed() -> None:
    """A reader sees first what to do."""
    results = [each.result for each in examine(facts(limits_faults=("a", "b"), clock_ahead=60.0))]

    assert results == [Result.ERROR] * 3 + [Result.OK] * (len(CHECKS) - 2)
