import json
from typing import Any

import msgspec
import pytest

from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.kube.objects.leases import read_monitor_lease
from gpu_scheduler.scheduler.config_maps import read_limits, read_strategy

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "node1", "namespace": "gpu-scheduler-monitor", "uid": "u", "resourceVersion": "7"},
    "spec": {
        "holderIdentity": "gpu-scheduler-monitor-x2x4z",
        "leaseDurationSeconds": 30,
        "renewTime": "2027-05-01T12:00:00.000000Z",
        "leaseTransitions": None,
    },
}
LEASES: dict[str, tuple[Any, MonitorLease]] = {
    "as a monitor writes it": (LEASE, MonitorLease("node1", "2027-05-01T12:00:00.000000Z", 30)),
    "never renewed": (
        {**LEASE, "spec": {"leaseDurationSeconds": 30, "renewTime": None}},
        MonitorLease("node1", None, 30),
    ),
    "without a duration": ({**LEASE, "spec": {}}, MonitorLease("node1", None, 45)),
    "with nothing at all": ({**LEASE, "spec": None}, MonitorLease("node1", None, 45)),
}


@pytest.mark.parametrize(("lease", "monitor_lease"), LEASES.values(), ids=LEASES)
def test_a_monitor_lease_is_read(lease: Any, monitor_lease: MonitorLease) -> None:
    """It has the node's name. Other fields are ignored."""
    assert read_monitor_lease(json.dumps(lease).encode()) == ("node1", monitor_lease)


CONFIG_MAPS: dict[str, tuple[Any, Any, str | None]] = {
    "a strategy": (read_strategy, {"strategy": "best_fit", "other": "x"}, "best_fit"),
    "no strategy": (read_strategy, {"other": "x"}, None),
    "no data in place of a strategy": (read_strategy, None, None),
    "limits": (read_limits, {"limits": "*: devices=4\n", "other": "x"}, "*: devices=4\n"),
    "no limits": (read_limits, {"limit": "*: devices=4"}, None),
    "no data in place of limits": (read_limits, None, None),
}


@pytest.mark.parametrize(("read", "data", "text"), CONFIG_MAPS.values(), ids=CONFIG_MAPS)
def test_strategy_and_limits_are_read_as_text(read: Any, data: Any, text: str | None) -> None:
    """Unchanged, whether or not they are valid."""
    assert read(json.dumps({"metadata": {"name": "a"}, "data": data}).encode()) == ("a", text)


@pytest.mark.parametrize("read", [read_monitor_lease, read_strategy, read_limits])
def test_an_invalid_object_is_a_validation_error(read: Any) -> None:
    """The reflector reports this one error."""
    with pytest.raises(msgspec.ValidationError):
        read(b'{"metadata": 5}')
