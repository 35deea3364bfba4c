"""Checks of the kubelets' drivers, by which containers get the GPUs of their claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.doctor.facts import Known
from gpu_scheduler.cli.doctor.findings import CheckFinding, listed
from gpu_scheduler.cli.doctor.remedies import install_again
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.names import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import Facts

_PODS: Final = f"kubectl get pods -n {DRIVER} -o wide"
_DAEMON_SET: Final = f"daemonset/{DRIVER}"


def check_drivers(facts: Facts) -> Iterator[CheckFinding]:
    """The drivers of ours run on all their nodes, and the kubelets have registered them."""
    drivers = facts.drivers.value
    if drivers is not None and drivers.available < drivers.wanted:
        yield CheckFinding(
            f"DaemonSet {DRIVER} has {drivers.available} of {drivers.wanted} drivers available: "
            "on the other nodes no pod with claims starts or ends",
            f"kubectl describe pods -n {DRIVER}",
            _DAEMON_SET,
        )


def check_published(facts: Facts) -> Iterator[CheckFinding]:
    """Each GPU that a monitor lists is published, by our driver or by NVIDIA's."""
    nodes = facts.claims.value.unpublished
    if nodes:
        removed = isinstance(facts.drivers, Known) and facts.drivers.value is None
        yield CheckFinding(
            f"no driver publishes GPUs of nodes, so that pods wait for them with {Reason.GPU_NOT_FOUND}: "
            f"{listed(nodes)}",
            install_again(facts, "driver") if removed else _PODS,
            _DAEMON_SET,
        )


def check_claims(facts: Facts) -> Iterator[CheckFinding]:
    """Each allocated claim has a driver that knows its GPUs."""
    claims = facts.claims.value.without_driver
    if claims:
        yield CheckFinding(
            f"our driver does not publish GPUs of claims, so that no container starts with them: {listed(claims)}",
            f"start the driver of their node ({_PODS}) or, if the GPU is gone, delete the pods of the claim",
            f"resourceclaim/{claims[0].rpartition('/')[2]}",
        )
