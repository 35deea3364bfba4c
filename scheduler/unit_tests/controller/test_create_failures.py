import pytest

from gpu_scheduler.controller.workload_status import refused, taken, unanswered
from tests.messages import text_of

WEBHOOK = (
    'admission webhook "validate.gpu-scheduler.agentaflow.io" denied the request: RequestInvalid: cannot read '
    'annotation agentaflow.gpu/count: "2": it must be the limit; correct it'
)
POLICY = (
    "pods \"a-0\" is forbidden: ValidatingAdmissionPolicy 'gpu-scheduler-assignments' with binding "
    "'gpu-scheduler-assignments' denied request: RequestInvalid: cannot write annotation x; leave it as it is"
)
QUOTA = 'pods "a-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
SECURITY = 'pods "a-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
INVALID = 'Pod "a-0" is invalid: spec.containers[0].image: Required value'
RIGHTS = 'pods is forbidden: User "system:serviceaccount:x:y" cannot create resource "pods" in API group ""'
DOWN = 'Internal error occurred: failed calling webhook "mutate": connection refused'

AGAIN = text_of("it is tried again")
# Status and message of the API server → reason, and the start of the message after it.
ROWS = {
    "the webhook refuses the pod": (400, WEBHOOK, "RequestInvalid", "cannot read annotation agentaflow.gpu/count"),
    "a policy refuses the pod": (403, POLICY, "RequestInvalid", "cannot write annotation x; leave it as it is"),
    "a bad map": (400, "denied the request: MapInvalid: line 2: bad", "MapInvalid", "line 2: bad"),
    "the quota is used up": (403, QUOTA, "InsufficientResources", f"cannot make pod d/a-0: {QUOTA}; make room"),
    "Pod Security refuses the pod": (403, SECURITY, "RequestInvalid", f"cannot make pod d/a-0: {SECURITY}; correct it"),
    "the pod is invalid": (422, INVALID, "RequestInvalid", f"cannot make pod d/a-0: {INVALID}; correct it"),
    "the namespace is gone": (404, 'namespaces "d" not found', "RequestInvalid", "cannot make pod d/a-0: namespaces"),
    "a right is missing": (403, RIGHTS, "SchedulerError", f"cannot make pod d/a-0: {RIGHTS}; {AGAIN}"),
    "the webhook is down": (500, DOWN, "SchedulerError", f"cannot make pod d/a-0: {DOWN}; {AGAIN}"),
    "the server is busy": (429, "slow down", "SchedulerError", f"cannot make pod d/a-0: slow down; {AGAIN}"),
    "a reason within a word": (500, "NotMapInvalid: x", "SchedulerError", "cannot make pod d/a-0: NotMap"),
}


@pytest.mark.parametrize(("status", "text", "reason", "start"), ROWS.values(), ids=ROWS)
def test_a_refusal_has_a_reason(status: int, text: str, reason: str, start: str) -> None:
    """A reason of the closed list if the workload is at fault, and always the message of the API server."""
    failure = refused("d/a-0", status, text)

    assert failure.reason == reason
    assert failure.message.startswith(f"{reason}: {start}")


def test_a_long_message_is_cut_and_keeps_its_remedy() -> None:
    """A pod may have a long list of errors."""
    message = refused("d/a-0", 422, "spec.volumes: " * 1000).message

    assert len(message.encode()) <= 1000
    assert message.endswith(f"; {AGAIN}")


def test_a_missing_response_is_a_scheduler_error() -> None:
    """The result of the request is unknown."""
    failure = unanswered("d/a-0", "time-out")

    assert failure.reason == "SchedulerError"
    assert failure.message == text_of("it is unknown whether a pod was made", pod="d/a-0", why="time-out")


def test_a_taken_name_is_invalid_unless_its_pod_terminates() -> None:
    """A pod that stays makes the workload's name unusable. A terminating pod delays the creation."""
    stays, goes = taken("d/a-0", deleting=False), taken("d/a-0", deleting=True)

    assert stays.reason == "RequestInvalid"
    assert stays.message == text_of("another pod has the name of a GPUWorkload's", pod="d/a-0")
    assert goes.reason == ""
    assert "is made when it has gone" in goes.message
