"""Whether the limit of its namespace leaves a pod the devices that it asks for.

LAW: reads two numbers that the ledger keeps; costs what the pod itself asks for.
"""

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import QuotaChanged
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import Limit
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import number_of


def within_limit(claim: Hold, ledger: Ledger, limit: Limit) -> Unschedulable | None:
    """The pod alone asks for no more than its namespace may hold: no waiting cures that."""
    if limit.devices is None:
        return None
    return too_many(ledger.devices.asks(claim)[0], claim.ref.namespace, limit)


def quota_left(claim: Hold, ledger: Ledger, limit: Limit) -> Unschedulable | None:
    """With what its pods hold, the namespace has enough left."""
    if limit.devices is None:
        return None
    return too_many_more(ledger.devices.asks(claim)[1], claim.ref.namespace, limit, ledger)


def too_many(asked: int, namespace: str, limit: Limit) -> Unschedulable | None:
    """Why so many devices for one pod are more than its namespace may hold."""
    if limit.devices is None or asked <= limit.devices:
        return None
    return Unschedulable(
        Reason.QUOTA_EXCEEDED,
        f"cannot give {number_of(asked, 'GPU')} to one pod: {_rule(namespace, limit)}",
        ("ask for fewer in the pod's template and make the pod anew, or " if limit.readable else "")
        + _raise(namespace, asked),
        frozenset({QuotaChanged(namespace)}),
        about=f"{asked} of {limit.devices}",
    )


def too_many_more(more: int, namespace: str, limit: Limit, ledger: Ledger) -> Unschedulable | None:
    """Why so many devices beside those that the namespace's pods hold are more than it may hold."""
    used = ledger.devices.usage.used(namespace)
    if not more or limit.devices is None or used + more <= limit.devices:
        return None
    return Unschedulable(
        Reason.QUOTA_EXCEEDED,
        f"cannot give {number_of(more, 'more GPU')} to namespace {namespace}: its pods hold {used}, "
        f"and {_rule(namespace, limit)}",
        f"wait until pods there end (kubectl gpu-scheduler workloads -n {namespace}), or "
        f"{_raise(namespace, used + more)}",
        frozenset({QuotaChanged(namespace)}),
        about=f"limit {limit.devices}",
    )


def _rule(namespace: str, limit: Limit) -> str:
    if not limit.readable:
        return f"the line of namespace {namespace} in ConfigMap {names.LIMITS} cannot be read, so it may hold no more"
    return f"namespace {namespace} may hold {limit.devices}"


def _raise(namespace: str, devices: int) -> str:
    return f"ask an operator to correct ConfigMap {names.LIMITS} (example: {namespace}: devices={devices})"
