"""The watches of the scheduler are back soon after an outage."""

from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

from gpu_scheduler.core.policy import Policy
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.watches import Watches
from gpu_scheduler.settings import RunSettings
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient


def test_a_watch_that_fails_is_tried_again_after_ten_seconds_at_the_latest() -> None:
    """However often it has failed: until the last one is back, pods wait."""
    recorder = FakeRecorder()
    ports = Ports(FakeBinder([]), FakeClaims(), FakeAllocator(), FakeEventRecorder(), recorder, recorder, recorder)
    settings = RunSettings(kubernetes_namespace="gpu-scheduler-system")
    watches = Watches(cast("ApiClient", Mock()), Scheduler(Policy(), ports), settings, device_classes=Mock())

    delays = [watch._delay(failures, None) for watch in watches._all.values() for failures in range(1, 50)]

    assert 5 < max(delays) <= 10
