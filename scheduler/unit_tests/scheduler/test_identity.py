"""Values that the wiring of `gpu-scheduler run` chooses itself."""

from unittest.mock import Mock

from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.scheduler.run import SchedulerProcess
from gpu_scheduler.settings import RunSettings


def test_a_restarted_container_is_another_lease_holder() -> None:
    """It keeps its pod's name, but replicas must not take it for the process that led before."""
    settings = RunSettings(pod_name="gpu-scheduler-6d5f-x2x4z", kubernetes_namespace="gpu-scheduler-system")
    # A replica sends no request to the API server before it serves.
    before, after = (SchedulerProcess(settings, Mock(spec=ApiClient)).leadership.identity for _ in range(2))

    assert before != after
    assert before.startswith("gpu-scheduler-6d5f-x2x4z_")
    assert after.startswith("gpu-scheduler-6d5f-x2x4z_")
