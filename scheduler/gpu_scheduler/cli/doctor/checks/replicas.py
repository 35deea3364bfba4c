"""Checks of the running replicas: leaders, readiness, clocks."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.doctor.expected import DEPLOYMENTS
from gpu_scheduler.cli.doctor.findings import CheckFinding, listed
from gpu_scheduler.cli.doctor.remedies import in_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import Facts, HeldLease

CLOCK_LIMIT: Final = 5.0
"""Seconds by which two clocks may differ."""
_NTP: Final = "timedatectl set-ntp true"


def check_leases(facts: Facts) -> Iterator[CheckFinding]:
    """A replica of the scheduler and one of the controller lead."""
    for name, lease in facts.leases.value.items():
        if lease is None or not lease.holder:
            what = f"no replica of {name} leads: its Lease {'does not exist' if lease is None else 'has no holder'}"
        elif lease.expired:
            last = f"{lease.age:.0f} s ago" if isfinite(lease.age) else "at no known time"
            what = (
                f"the leader of {name} is stuck: {lease.holder} renewed its Lease {last}, "
                f"and the Lease lasts {lease.lasts:.0f} s"
            )
        else:
            continue
        yield CheckFinding(what, in_namespace(facts, f"rollout restart deployment/{name}"), f"lease/{name}")


def check_holders(facts: Facts) -> Iterator[CheckFinding]:
    """Each leader is a pod of the installation."""
    for name, lease in facts.leases.value.items():
        if lease is None or not lease.holder or lease.expired:
            continue
        pod = lease.holder.rpartition("_")[0] or lease.holder
        if pod not in facts.pods.value:
            yield CheckFinding(
                f"the leader of {name} is {lease.holder}, and no pod {pod} exists in namespace {facts.namespace}",
                f"stop that process, or wait {lease.lasts:.0f} s until its Lease expires",
                f"lease/{name}",
            )


def check_running(facts: Facts) -> Iterator[CheckFinding]:
    """A replica of each program runs."""
    running = {replica.component for replica in facts.replicas.value}
    for component, name in DEPLOYMENTS.items():
        if component not in running and not (component == "webhook" and facts.injects_by_policy):
            yield CheckFinding(
                f"no pod of {name} runs in namespace {facts.namespace}",
                in_namespace(facts, f"describe pods -l app.kubernetes.io/component={component}"),
                f"deployment/{name}",
            )


def check_readiness(facts: Facts) -> Iterator[CheckFinding]:
    """Each replica is ready: its caches are complete, and its watches get data."""
    for replica in facts.replicas.value:
        reference = f"pod/{replica.pod}"
        if replica.unreachable:
            what = f"the API server gets no answer from pod {replica.pod}: {replica.unreachable}"
            yield CheckFinding(what, in_namespace(facts, f"describe {reference}"), reference)
        elif replica.failed:
            what = f"pod {replica.pod} is not ready: {'; '.join(replica.failed)}"
            restart = f"rollout restart deployment/{DEPLOYMENTS[replica.component]}"
            yield CheckFinding(what, in_namespace(facts, restart), reference)


def check_own_clock(facts: Facts) -> Iterator[CheckFinding]:
    """The clock of this machine and that of the API server agree."""
    ahead = facts.clock_ahead.value
    if abs(ahead) > CLOCK_LIMIT:
        yield CheckFinding(
            f"the clock of this machine is {_apart(ahead)} that of the API server",
            f"on the machine whose clock is wrong: {_NTP}",
        )


def check_leaders_clocks(facts: Facts) -> Iterator[CheckFinding]:
    """The clocks of the leaders' nodes and that of the API server agree."""
    for name, lease in facts.leases.value.items():
        if lease is not None and (ahead := _ahead(lease)):
            yield CheckFinding(
                f"the clock of {lease.holder}, the leader of {name}, is {_apart(ahead)} that of the API server",
                f"on the node of that pod: {_NTP}",
                f"lease/{name}",
            )


def check_monitors_clocks(facts: Facts) -> Iterator[CheckFinding]:
    """The clocks of the monitors' nodes are not ahead of the API server's."""
    fast = [node for node, lease in facts.monitor_leases.value.items() if _ahead(lease)]
    if fast:
        yield CheckFinding(
            f"the clocks of nodes are ahead of that of the API server: {listed(fast)}",
            f"on each of them: {_NTP}",
            f"daemonset/{names.MONITOR}",
        )


def _ahead(lease: HeldLease) -> float:
    """Return by how many seconds the holder's clock is ahead of the API server's; 0 if that is not known to be so."""
    late = lease.renewed and lease.age >= lease.lasts
    return -lease.age if late or lease.age < -CLOCK_LIMIT else 0.0


def _apart(ahead: float) -> str:
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
