"""Which ResourceClaims a pod must carry, and which pods cannot have any."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.claim_sets import ClaimSet, claim_sets
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import text_of
from unit_tests.core.build import ANEW, MAP, isolated, pod

MIG = "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
BEGIN = text_of("a pod with ResourceClaims cannot keep a value").partition(": ")[2].partition("annotation")[0]
LEAVE_OUT = f"leave it out{ANEW}"
REPLICA: Mapping[str, Any] = {
    "name": "web-5d9f7c-bcdfg",
    "owner": Owner("ReplicaSet", "web-5d9f7c", "u"),
    "generate_name": "web-5d9f7c-",
}
COUNT = {"agentaflow.gpu/count": "1"}
MANY = ",".join(map(str, range(33)))

OBSERVER = {"agentaflow.gpu/observer": "true"}


def without(what: str, **values: object) -> str:
    """Return what is wrong with a pod that is to get claims."""
    return f"{BEGIN}{text_of(f'claims: {what}', **values)}"


HOLDS = without("an observer")
WHOLE, NAME_WHOLE = without("a MIG device", mig=MIG), f"{text_of('claims: remedy of a MIG device')}{ANEW}"
ONE_CLAIM = text_of("claims: a pod with one claim")
TOO_MANY, AT_MOST = without("too many GPUs", count=33), f"ask for at most 32 GPUs{ANEW}"

# Pod that is to get claims → what is wrong, and the remedy.
UNSUPPORTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an observer": ({"annotations": OBSERVER}, HOLDS, LEAVE_OUT),
    "an observer that asks for a count": ({"text": None, "annotations": {**COUNT, **OBSERVER}}, HOLDS, LEAVE_OUT),
    "a pod that keeps its variables": (
        {"annotations": {"agentaflow.gpu/keep-env": "true"}},
        without("values that are kept"),
        LEAVE_OUT,
    ),
    "a pod that shares with any other": (
        {"annotations": {"agentaflow.gpu/sharing": "any"}},
        without("a pod that shares"),
        LEAVE_OUT,
    ),
    "a pod that shares the GPUs of a strategy": (
        {"text": None, "annotations": {**COUNT, "agentaflow.gpu/exclusive": "false", "agentaflow.gpu/memory": "8192"}},
        without("a pod that is not exclusive"),
        LEAVE_OUT,
    ),
    "a limit of a device plugin": (
        {"gpu_limits": (("main", 2),)},
        without("a limit"),
        LEAVE_OUT,
    ),
    "a MIG device on its line": ({"text": f"0=node1:{MIG}"}, WHOLE, NAME_WHOLE),
    "a MIG device on a line that it may get": ({"text": f"0=node1:0\n1=node1:{MIG}", **REPLICA}, WHOLE, NAME_WHOLE),
    "more GPUs than a claim has": ({"text": f"0=node1:{MANY}"}, TOO_MANY, AT_MOST),
    "more GPUs on a line that it may get": ({"text": f"0=node1:{MANY}", **REPLICA}, TOO_MANY, AT_MOST),
    "a count of more GPUs than a claim has": (
        {"text": None, "annotations": {"agentaflow.gpu/count": "33"}},
        TOO_MANY,
        AT_MOST,
    ),
    "more pods than share a claim": (
        {"text": "\n".join(f"{index}=node1:0" for index in range(257))},
        without("too many lines", lines=257, node="node1"),
        f"name other GPUs{ANEW}",
    ),
    "any line of a map whose lines share GPUs": (
        {"text": MAP, **REPLICA},
        without("an index that is decided later", gpu=3, node="node4"),
        f"{text_of('claims: remedy of an index')}{ANEW}",
    ),
}


@pytest.mark.promise("isolate-8")
@pytest.mark.parametrize(("given", "what", "remedy"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_claims_cannot_give_is_unsupported(given: dict[str, Any], what: str, remedy: str) -> None:
    """Under admission and, for a pod that was created without the webhook, in the scheduler; never without claims."""
    wanted = pod(**given, wants_claims=True).request
    carried = pod(**given, resource_claims=("gpu-scheduler-x",)).request

    for request in (wanted, carried):
        assert request.fault is not None
        assert (request.fault.reason, request.fault.what) == (Reason.UNSUPPORTED, what)
        assert request.fault.remedy == remedy
        assert request.claims is None
    assert pod(**given).request.fault is None


ALLOWED: dict[str, dict[str, Any]] = {
    "pods that start together": {"annotations": {"agentaflow.gpu/start": "together"}},
    "as many GPUs as a claim has": {"text": f"0=node1:{MANY.removesuffix(',32')}"},
    "as many pods as share a claim": {"text": "\n".join(f"{index}=node1:0" for index in range(256))},
    "an annotation that a map makes meaningless": {"annotations": {"agentaflow.gpu/exclusive": "false"}},
    "MIG devices on other lines": {"text": f"0=node1:0\n1=node1:{MIG}"},
    "any line of a map whose lines share nothing": {"text": "0=node1:0\n1=node1:1", **REPLICA},
    "a count": {"text": None, "annotations": COUNT},
    "an observer whose line has no GPU": {"text": "0=node1:", "annotations": OBSERVER},
}


@pytest.mark.parametrize("given", ALLOWED.values(), ids=ALLOWED)
def test_all_others_may_have_claims(given: dict[str, Any]) -> None:
    """The pod is admitted, and the pod that admission completed is scheduled."""
    wanted = pod(**given, wants_claims=True).request

    assert (wanted.fault, wanted.claims is None) == (None, False)
    assert isolated(**given).request.fault is None


def test_a_pod_with_an_index_must_carry_the_claims_of_its_line() -> None:
    """Their names have the controller's uid."""
    parsed = parse_placement_map("0=node1:0,1\n1=node1:1")
    slot = parsed.get(0)
    assert slot is not None
    owner = Owner("StatefulSet", "train", "uid-of-the-set")

    wanted = pod("train-0", str(parsed), owner=owner, wants_claims=True).request
    bare = pod("train-0", str(parsed), owner=None, wants_claims=True).request

    assert wanted.claims == claim_sets(parsed, slot, "default", "uid-of-the-set")
    assert bare.claims == claim_sets(parsed, slot, "default", "")


def test_a_pod_whose_devices_are_decided_later_has_one_claim() -> None:
    """It has no name under admission, and keeps the one that it carries."""
    asks: dict[str, Any] = {"text": None, "annotations": COUNT}

    assert pod(**asks, wants_claims=True).request.claims == (ClaimSet("", ()),)
    assert pod(**asks, resource_claims=("gpu-scheduler-x",)).request.claims == (ClaimSet("gpu-scheduler-x", ()),)


def test_a_pod_without_claims_needs_none() -> None:
    """Neither does a bound pod: what it carries was decided before. A line without GPUs has no claims."""
    assert pod().request.claims is None
    assert isolated(node="node1").request.claims is None
    assert pod("train-0", "0=node1:", wants_claims=True).request.claims == ()


NOT_OF_THE_LINE = (
    'cannot use ResourceClaim "gpu-scheduler-mine" of spec.resourceClaims: for its line a pod has NAME, in this order'
)
CARRIED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a claim of another author": (
        {"text": "0=node1:0"},
        ("gpu-scheduler-mine",),
        NOT_OF_THE_LINE,
    ),
    "one claim too many": (
        {"text": "0=node1:0"},
        ("NAME", "gpu-scheduler-mine"),
        NOT_OF_THE_LINE,
    ),
    "a claim for a line without GPUs": (
        {"text": "0=node1:"},
        ("gpu-scheduler-mine",),
        'cannot use ResourceClaim "gpu-scheduler-mine" of spec.resourceClaims: its line has no GPU',
    ),
    "two claims for a count": (
        {"text": None, "annotations": COUNT},
        ("gpu-scheduler-mine", "gpu-scheduler-more"),
        f'cannot use ResourceClaim "gpu-scheduler-more" of spec.resourceClaims: {ONE_CLAIM}',
    ),
}


@pytest.mark.promise("isolate-9")
@pytest.mark.parametrize(("given", "carried", "what"), CARRIED.values(), ids=CARRIED)
def test_wrong_claims_are_refused(given: dict[str, Any], carried: tuple[str, ...], what: str) -> None:
    """The message says which claim is wrong and which is right."""
    right = next(iter(isolated(**given).resource_claims), "")
    names_ = tuple(right if name == "NAME" else name for name in carried)

    fault = pod(**given, resource_claims=names_).request.fault

    assert fault is not None
    assert (fault.reason, fault.what) == (Reason.REQUEST_INVALID, what.replace("NAME", right))
    assert fault.remedy == f"{text_of('claims: remedy of a wrong claim')}{ANEW}"


def test_claims_in_another_order_are_refused() -> None:
    """The containers' entries have the numbers of the claims."""
    right = isolated("train-0", "0=node1:0,1\n1=node1:1").resource_claims

    fault = pod("train-0", "0=node1:0,1\n1=node1:1", resource_claims=right[::-1]).request.fault

    assert fault is not None
    assert quoted(right[1]) in fault.what


def quoted(name: str) -> str:
    return f'"{name}"'


def test_a_fault_of_the_map_comes_first() -> None:
    """Only for a valid request it is known which claims it needs."""
    fault = pod("train-0", "nonsense", resource_claims=("gpu-scheduler-x",)).request.fault

    assert fault is not None
    assert fault.reason is Reason.MAP_INVALID
    assert names.CLAIM not in fault.what
