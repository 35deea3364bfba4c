"""A node that becomes unusable between a refused bind and the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.faults.proxy_faults import Answer, Fault
from tests.objects import device, inventory, node
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.command import Command
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace
    from tests.objects import Object

pytestmark = pytest.mark.usefixtures("audited")
TAINT: Final = {"key": "maintenance", "effect": "NoSchedule"}


def _devices(count: int) -> Object:
    return {"metadata": {"annotations": inventory(*map(device, range(count)))}}


@dataclass(frozen=True, slots=True)
class Change:
    """A change that makes node1 unusable for GPU 6, the reason of pods that wait then, and the reverse change."""

    reason: str
    damage: Callable[[Namespace], None]
    restore: Callable[[Namespace], None]


CHANGES: Final = {
    "cordoned": Change(
        "NodeUnschedulable",
        lambda namespace: namespace.cordon("node1", cordoned=True),
        lambda namespace: namespace.cordon("node1", cordoned=False),
    ),
    "tainted": Change(
        "TaintNotTolerated",
        lambda namespace: namespace.patch_node("node1", {"spec": {"taints": [TAINT]}}),
        lambda namespace: namespace.patch_node("node1", {"spec": {"taints": []}}),
    ),
    "not ready": Change(
        "NodeNotReady",
        lambda namespace: namespace.set_ready("node1", ready=False),
        lambda namespace: namespace.set_ready("node1", ready=True),
    ),
    "deleted": Change(
        "NodeNotFound",
        lambda namespace: namespace.kube.delete("/api/v1/nodes/node1"),
        lambda namespace: namespace.add(node("node1", annotations=inventory(*map(device, range(8))))),
    ),
    "six devices of eight": Change(
        "GpuNotFound",
        lambda namespace: namespace.patch_node("node1", _devices(6)),
        lambda namespace: namespace.patch_node("node1", _devices(8)),
    ),
    "no device of eight": Change(
        "GpuNotFound",
        lambda namespace: namespace.patch_node("node1", _devices(0)),
        lambda namespace: namespace.patch_node("node1", _devices(8)),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_refused_bind_is_decided_again_on_the_changed_node(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, change: Change
) -> None:
    """F12. The first bind is refused, then the node becomes unusable: no second bind until it is usable again."""
    _open(namespace)
    binds = f"{namespace.name}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        namespace.pod("asker-0", "0=node1:6\n", "6")
        eventually("the first bind was refused", lambda: fault.struck)
        change.damage(namespace)
        namespace.wait_message("asker-0", f"{change.reason}: ", seconds=20)
        assert proxy.count("POST", binds) == 1
        _runs_on(namespace)
        change.restore(namespace)
        namespace.wait_bound("asker-0", "node1", seconds=20)
    assert proxy.count("POST", binds) == 2
    _runs_on(namespace)


def _open(namespace: Namespace) -> None:
    """Create node1 with eight devices, one of them in use."""
    namespace.add(node("node1", annotations=inventory(*map(device, range(8)))))
    namespace.pod("runs-0", "0=node1:5\n", "5")
    namespace.wait_bound("runs-0", "node1", seconds=20)


def _runs_on(namespace: Namespace) -> None:
    """Check that the running pod is neither moved nor deleted."""
    running = namespace.read("runs-0")
    assert running["spec"]["nodeName"] == "node1"
    assert "deletionTimestamp" not in running["metadata"]
