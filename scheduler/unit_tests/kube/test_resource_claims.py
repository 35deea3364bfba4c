"""The ResourceClaims of a pod and of its containers, as the API writes them, and whatever else they may contain."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import read_pod, text_of
from gpu_scheduler.webhook.review import pod_of_text
from tests.objects import pod as pod_object

FIELD = "spec.resourceClaims"
CONTAINER = {"name": "main"}


def entry(number: object, claim: object = "gpu-scheduler-a", **more: object) -> dict[str, object]:
    return {"name": f"gpu-scheduler-{number}", "resourceClaimName": claim, **more}


def read(
    claims: object, containers: object = None, *, text: str | None = "0=node1:0", wants_claims: bool = False
) -> Pod:
    body = pod_object("train-0", text, containers=containers or [CONTAINER], resourceClaims=claims)
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=PodObject)
    return pod_of_text(text_of(decoded, "", wants_claims=wants_claims))


# Entries → the names of the pod's claims; None if it is not placed because of them.
ENTRIES: dict[str, tuple[object, tuple[str, ...] | None]] = {
    "none": ([], ()),
    "null": (None, ()),
    "one of ours": ([entry(0)], ("gpu-scheduler-a",)),
    "several of ours": ([entry(0), entry(1, "gpu-scheduler-b")], ("gpu-scheduler-a", "gpu-scheduler-b")),
    "ours in another order": ([entry(1, "gpu-scheduler-b"), entry(0)], ("gpu-scheduler-a", "gpu-scheduler-b")),
    "as many as a pod may have": (
        [entry(number, f"gpu-scheduler-{number}") for number in range(32)],
        tuple(f"gpu-scheduler-{number}" for number in range(32)),
    ),
    "more than a pod may have": ([entry(number) for number in range(33)], None),
    "ten thousand": ([entry(number) for number in range(10_000)], None),
    "two of another author": ([{"name": name, "resourceClaimName": name} for name in ("a", "b")], None),
    "an entry with a name that the API refuses": ([{"name": "G P U", "resourceClaimName": "mine"}], None),
    "a claim of another author with a name that the API refuses": ([{"name": "gpu", "resourceClaimName": "-"}], None),
    "one of ours and one of another author": ([entry(0), {"name": "gpu", "resourceClaimName": "mine"}], None),
    "a claim of another author under our entry": ([entry(0, "mine")], None),
    "a claim whose name is only our prefix": ([entry(0, "gpu-scheduler-")], None),
    "a claim whose name is too long": ([entry(0, f"gpu-scheduler-{'a' * 33}")], None),
    "a claim with a name that the API refuses": ([entry(0, "gpu-scheduler-\n")], None),
    "our claim under another entry": ([{"name": "gpu", "resourceClaimName": "gpu-scheduler-a"}], None),
    "a template": ([{"name": "gpu-scheduler-0", "resourceClaimTemplateName": "gpu-scheduler-a"}], None),
    "a claim and a template": ([entry(0, resourceClaimTemplateName="t")], None),
    "a gap in the numbers": ([entry(0), entry(2)], None),
    "a number with a zero before it": ([entry("00")], None),
    "a negative number": ([entry("-1")], None),
    "one entry twice": ([entry(0), entry(0)], None),
    "an entry without a claim": ([{"name": "gpu-scheduler-0"}], None),
    "null in place of a claim": ([entry(0, None)], None),
    "null as an entry": ([None], None),
    "a number as an entry": ([5], None),
    "a number as a claim": ([entry(0, 5)], None),
    "an object in place of the list": ({"name": "gpu"}, None),
    "a text in place of the list": ("gpu", None),
    "an unknown field": ([entry(0, new={"a": [1]})], ("gpu-scheduler-a",)),
}


@pytest.mark.parametrize(("claims", "found"), ENTRIES.values(), ids=ENTRIES)
def test_the_claims_of_a_pod_are_read(claims: object, found: tuple[str, ...] | None) -> None:
    """With any entry that is not ours, the pod is not placed, and none of its claims is kept."""
    pod = read(claims)
    fault = pod.request.fault

    assert pod.resource_claims == (found or ())
    if found is None:
        assert fault is not None
        assert FIELD in fault.what or fault.what.startswith("cannot read what the pod says of its node: it has ")
    else:
        assert fault is None or fault.reason is Reason.REQUEST_INVALID


# `resources` of a container → what is read of it.
RESOURCES: dict[str, tuple[dict[str, Any], ContainerClaims]] = {
    "no resources": ({}, ContainerClaims()),
    "null resources": ({"resources": None}, ContainerClaims()),
    "empty resources": ({"resources": {}}, ContainerClaims(None, has_resources=True)),
    "other resources": ({"resources": {"limits": {"cpu": "1"}}}, ContainerClaims(None, has_resources=True)),
    "null claims": ({"resources": {"claims": None}}, ContainerClaims(None, has_resources=True)),
    "an empty list": ({"resources": {"claims": []}}, ContainerClaims((), has_resources=True)),
    "a claim of ours": (
        {"resources": {"claims": [{"name": "gpu-scheduler-0"}]}},
        ContainerClaims(("gpu-scheduler-0",), has_resources=True),
    ),
    "a claim of another author": (
        {"resources": {"claims": [{"name": "gpu"}, {}]}},
        ContainerClaims(("gpu",), has_resources=True),
    ),
    "one request of a claim": (
        {"resources": {"claims": [{"name": "gpu-scheduler-0", "request": "one"}]}},
        ContainerClaims(("gpu-scheduler-0/one",), has_resources=True),
    ),
    "one claim a thousand times": (
        {"resources": {"claims": [{"name": "gpu-scheduler-0"}] * 1_000}},
        ContainerClaims(("gpu-scheduler-0",), has_resources=True),
    ),
    "a text in place of resources": ({"resources": "none"}, ContainerClaims()),
    "wrong types": ({"resources": {"claims": [None, 5]}}, ContainerClaims(None, has_resources=True)),
    "more text than is read": (
        {"resources": {"claims": [{"name": "gpu-scheduler-0"}] * 10_000}},
        ContainerClaims(None, has_resources=True),
    ),
}


@pytest.mark.parametrize(("given_", "found"), RESOURCES.values(), ids=RESOURCES)
def test_the_claims_of_a_container_are_read(given_: dict[str, Any], found: ContainerClaims) -> None:
    """Only of a pod that has claims of ours, or is to get some."""
    containers = [{**CONTAINER, **given_}]

    for claims, wants_claims, expected in (([], True, found), ([entry(0)], False, found), ([], False, None)):
        (container,) = read(claims, containers, wants_claims=wants_claims).environment.containers
        assert container.claims == expected


OWN: dict[str, tuple[object, object, OwnClaim]] = {
    "a claim": ([{"name": "gpu", "resourceClaimName": "mine"}], None, OwnClaim("gpu", "mine")),
    "a template whose claim is not made yet": (
        [{"name": "gpu", "resourceClaimTemplateName": "mine"}],
        None,
        OwnClaim("gpu", ""),
    ),
    "a template whose claim is made": (
        [{"name": "gpu", "resourceClaimTemplateName": "mine"}],
        [{"name": "other", "resourceClaimName": "a"}, {"name": "gpu", "resourceClaimName": "train-0-gpu-x7k2p"}],
        OwnClaim("gpu", "train-0-gpu-x7k2p"),
    ),
    "a template that made no claim": (
        [{"name": "gpu", "resourceClaimTemplateName": "mine"}],
        [{"name": "gpu"}],
        OwnClaim("gpu", ""),
    ),
    "statuses of wrong types": ([{"name": "gpu", "resourceClaimTemplateName": "mine"}], 5, OwnClaim("gpu", "")),
}


@pytest.mark.parametrize(("claims", "statuses", "own"), OWN.values(), ids=OWN)
def test_the_own_claim_of_a_pod_is_read(claims: object, statuses: object, own: OwnClaim) -> None:
    """Of a template, the claim that kube-controller-manager names in the pod's status."""
    containers = [{**CONTAINER, "resources": {"claims": [{"name": "gpu"}]}}]
    body = pod_object("train-0", None, containers=containers, resourceClaims=claims)
    body["status"] = {"resourceClaimStatuses": statuses}
    _, pod = read_pod(msgspec.json.encode(body))

    assert (pod.request.own_claim, pod.request.fault) == (own, None)
    assert pod.resource_claims == tuple(filter(None, (own.name,)))
    assert pod.environment.containers[0].claims == ContainerClaims(("gpu",), has_resources=True)


BESIDE = {
    "alone": (None, "cannot place a pod by spec.resourceClaims: this scheduler does not read it"),
    "beside a map, with the scheduler's message": (
        "0=node1:0",
        "cannot place a pod by spec.resourceClaims and annotation gpu-scheduling-map: either says which GPUs it gets",
    ),
}


@pytest.mark.parametrize(("text", "what"), BESIDE.values(), ids=BESIDE)
def test_where_admission_gives_no_claims_a_pod_has_none_of_its_own(text: str | None, what: str) -> None:
    """Its namespace is without `isolation: dra`."""
    pod = read([{"name": "gpu", "resourceClaimName": "mine"}], text=text, wants_claims=False)

    assert pod.request.fault is not None
    assert pod.request.fault.what == what


def test_containers_that_differ_in_their_claims_are_kept() -> None:
    """The scheduler keeps one of several equal containers. The bind gate must see the one without the claim."""
    complete = {"resources": {"claims": [{"name": "gpu-scheduler-0"}]}}
    containers = [{"name": f"c{number}", **({} if number == 30 else complete)} for number in range(40)]
    body = pod_object("train-0", "0=node1:0", containers=containers, resourceClaims=[entry(0)])

    _, pod = read_pod(msgspec.json.encode(body))

    assert {each.name for each in pod.environment.containers} == {"c0", "c30"}


def test_pods_without_claims_share_their_containers_as_before() -> None:
    """What a container asks for besides claims does not keep equal containers apart."""
    some = [
        read([], [{**CONTAINER, "env": [], "resources": {"limits": {"cpu": cpu}}}]).environment for cpu in ("1", "2")
    ]

    assert some[0] is some[1]


ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["", "gpu-scheduler-0", "x"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "resourceClaimName", "request", "claims"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(ODD, ODD)
def test_whatever_the_fields_contain_the_pod_is_read(claims: object, resources: object) -> None:
    """The pod is either placed with claims of ours, or refused."""
    pod = read(claims, [{**CONTAINER, "resources": resources}])

    assert pod.request.own_claim or all(name.startswith("gpu-scheduler-") for name in pod.resource_claims)
