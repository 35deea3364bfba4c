"""Filters of quota: whether a pod's namespace may hold the devices that the pod asks for.

LAW: this module reads two numbers of the ledger. The cost depends only on what the pod itself asks for.
"""

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import QuotaChanged
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import Limit
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import number_of


def within_limit(candidate: Hold, ledger: Ledger, limit: Limit) -> Unschedulable | None:
    """Check that the pod alone asks for no more than its namespace may hold.

    If it asks for more, waiting is no remedy.
    """
    if limit.devices is None:
        return None
    return too_many(ledger.devices.asks(candidate)[0], candidate.ref.namespace, limit)


def quota_left(candidate: Hold, ledger: Ledger, limit: Limit) -> Unschedulable | None:
    """Check that the namespace may hold the pod's devices in addition to those that its pods hold."""
    if limit.devices is None:
        return None
    return too_many_more(ledger.devices.asks(candidate)[1], candidate.ref.namespace, limit, ledger)


def too_many(asked: int, namespace: str, limit: Limit, whom: str = "one pod") -> Unschedulable | None:
    """Check that `whom` may have `asked` devices under the limit of its namespace."""
    if limit.devices is None or asked <= limit.devices:
        return None
    return Unschedulable(
        Reason.QUOTA_EXCEEDED,
        f"cannot give {number_of(asked, 'GPU')} to {whom}: {_rule(namespace, limit)}",
        (f"{made_anew('ask for fewer')}, or " if limit.readable else "") + _raise(namespace, asked),
        frozenset({QuotaChanged(namespace)}),
        beyond=True,
    )


def too_many_more(more: int, namespace: str, limit: Limit, ledger: Ledger, whom: str = "a pod") -> Unschedulable | None:
    """Check that the namespace may hold `more` devices, for `whom`, in addition to those that its pods hold."""
    used = ledger.devices.usage.used(namespace)
    if not more or limit.devices is None or used + more <= limit.devices:
        return None
    return Unschedulable(
        Reason.QUOTA_EXCEEDED,
        f"cannot give {number_of(more, 'more GPU')} to {whom}: {_rule(namespace, limit)}",
        f"wait until pods there end (kubectl gpu-scheduler workloads -n {namespace}), or "
        f"{_raise(namespace, used + more)}",
        frozenset({QuotaChanged(namespace)}),
        detail=f", and its pods hold {used}",
    )


def _rule(namespace: str, limit: Limit) -> str:
    if not limit.readable:
        return (
            f"the line of namespace {namespace} in ConfigMap {names.LIMITS} cannot be read, so that it may hold no more"
        )
    return f"namespace {namespace} may hold {limit.devices}"


def _raise(namespace: str, devices: int) -> str:
    return f"ask an operator to correct ConfigMap {names.LIMITS} (example: {namespace}: devices={devices})"
