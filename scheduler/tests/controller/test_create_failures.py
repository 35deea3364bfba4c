import pytest

from gpu_scheduler.controller.workload_status import refused, taken, unanswered

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
AWAY = 'Internal error occurred: failed calling webhook "mutate": connection refused'

# Status and message of the API server → word, and how the sentence goes on.
ROWS = {
    "the webhook says what is wrong": (400, WEBHOOK, "RequestInvalid", "cannot read annotation agentaflow.gpu/count"),
    "a policy says what is wrong": (403, POLICY, "RequestInvalid", "cannot write annotation x; leave it as it is"),
    "a bad map": (400, "denied the request: MapInvalid: line 2: bad", "MapInvalid", "line 2: bad"),
    "the quota is used up": (403, QUOTA, "InsufficientResources", f"cannot make pod d/a-0: {QUOTA}; make room"),
    "Pod Security says no": (403, SECURITY, "RequestInvalid", f"cannot make pod d/a-0: {SECURITY}; correct it"),
    "it is no valid pod": (422, INVALID, "RequestInvalid", f"cannot make pod d/a-0: {INVALID}; correct it"),
    "the namespace has gone": (404, 'namespaces "d" not found', "RequestInvalid", "cannot make pod d/a-0: namespaces"),
    "we lack a right": (403, RIGHTS, "SchedulerError", f"cannot make pod d/a-0: {RIGHTS}; trying again by itself"),
    "the webhook is away": (500, AWAY, "SchedulerError", f"cannot make pod d/a-0: {AWAY}; trying again by itself"),
    "the server is busy": (429, "slow down", "SchedulerError", "cannot make pod d/a-0: slow down; trying again"),
    "a word within another is none": (500, "NotMapInvalid: x", "SchedulerError", "cannot make pod d/a-0: NotMap"),
}


@pytest.mark.parametrize(("status", "said", "word", "told"), ROWS.values(), ids=ROWS)
def test_what_a_refusal_means(status: int, said: str, word: str, told: str) -> None:
    """The closed list's word wherever the fault is the workload's own; the API server's sentence in any case."""
    trouble = refused("d/a-0", status, said)

    assert trouble.reason == word
    assert trouble.message.startswith(f"{word}: {told}")


def test_a_long_answer_is_cut_and_keeps_its_cure() -> None:
    """A list of everything that is wrong with a pod may be long."""
    message = refused("d/a-0", 422, "spec.volumes: " * 1000).message

    assert len(message.encode()) <= 1000
    assert message.endswith("trying again by itself")


def test_silence_is_our_own_fault() -> None:
    """Nobody knows what became of the request."""
    trouble = unanswered("d/a-0", "time-out")

    assert trouble.reason == "SchedulerError"
    assert trouble.message == (
        "SchedulerError: cannot tell whether pod d/a-0 was made: time-out; trying again by itself"
    )


def test_a_name_that_is_taken() -> None:
    """By somebody who stays: then it is the workload's own name that does not do; by somebody who goes: it waits."""
    stays, goes = taken("d/a-0", going=False), taken("d/a-0", going=True)

    assert stays.reason == "RequestInvalid"
    assert "a pod of that name is there, and it is not this workload's" in stays.message
    assert goes.reason == ""
    assert "is made when it has gone" in goes.message
