"""Pods that the API server sends to /mutate-dra and /validate-dra, as JSON."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.kube.objects.pods import read_pod
from tests import objects
from tests.messages import says
from tests.objects import Object, reading, review
from unit_tests import virtual
from unit_tests.core.build import decided, node, nodes
from unit_tests.webhook.reviews import Client, ask, patched, refusal_of, serving, with_odd_values

MAP = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
OURS = ("/mutate-dra", "/validate-dra")
ENTRY = {"name": "gpu-scheduler-0"}
READING = [
    {
        "name": "CUDA_VISIBLE_DEVICES",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['agentaflow.gpu/assigned-devices']"}},
    },
    {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
]


def pod(name: str = "train-0", text: str | None = MAP, **more: Any) -> Object:
    return objects.pod(name, text, **more)


def main(**fields: Any) -> Object:
    return {"name": "main", **fields}


def names_of(body: Object) -> list[str]:
    return [each["resourceClaimName"] for each in body["spec"]["resourceClaims"]]


async def completed(client: Client, body: Object, path: str = "/mutate-dra") -> Object:
    response = await ask(client, path, review(body))
    assert response["allowed"], response
    return patched(body, response)


async def refusal(client: Client, path: str, body: Object) -> tuple[int, str]:
    response = await ask(client, path, review(body))
    assert not response["allowed"]
    return response["status"]["code"], response["status"]["message"]


# Container as its author wrote it → its resources afterwards.
RESOURCES: dict[str, tuple[Object, Object]] = {
    "no resources": ({}, {"claims": [ENTRY]}),
    "other resources stay": (
        {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}},
        {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}, "claims": [ENTRY]},
    ),
    "a claim of its own stays": (
        {"resources": {"claims": [{"name": "own"}]}},
        {"claims": [{"name": "own"}, ENTRY]},
    ),
    "the claim itself": ({"resources": {"claims": [ENTRY]}}, {"claims": [ENTRY]}),
}


@pytest.mark.parametrize(("fields", "resources"), RESOURCES.values(), ids=RESOURCES)
async def test_a_container_gets_the_claim(fields: Object, resources: Object) -> None:
    """At the deepest path that it has; what else it has is kept."""
    async with serving() as (client, _, _registry):
        result = await completed(client, pod(containers=[main(**fields)]))

    assert result["spec"]["containers"] == [main(resources=resources, env=READING)]


async def test_a_container_that_another_webhook_added_later_is_completed() -> None:
    """Also by /mutate: the pod's mode is what its spec carries. Other containers are left alone."""
    async with serving() as (client, _, _registry):
        first = await completed(client, pod())
        first["spec"]["containers"].append({"name": "sidecar"})
        for path in ("/mutate", "/mutate-dra"):
            again = await completed(client, copy.deepcopy(first), path)

            assert again["spec"]["containers"] == [
                first["spec"]["containers"][0],
                {"name": "sidecar", "env": READING, "resources": {"claims": [ENTRY]}},
            ]


@pytest.mark.promise("isolate-1")
async def test_pods_of_a_set_share_the_claims_of_the_devices_that_they_share() -> None:
    """Pods 3 and 4 of the README's map have one claim. The names are those of the workload."""
    async with serving() as (client, _, _registry):
        found = [names_of(await completed(client, pod(f"train-{number}"))) for number in range(5)]
        elsewhere = names_of(await completed(client, pod(owner=("StatefulSet", "train"))))

    assert found[3] == found[4]
    assert len({name for names in found for name in names}) == 4
    assert elsewhere != found[0]


async def test_a_pod_whose_index_is_decided_later_gets_a_claim_of_its_own() -> None:
    """Its name is random, and is kept at the second review. The log says what was added."""
    text = "0=node1:0,1\n1=node2:2"
    generated = pod("", text, generate_name="train-")
    async with serving() as (client, _, _registry):
        first, second = await completed(client, generated), await completed(client, generated)
        again = await completed(client, first)

    assert names_of(first) == names_of(again) != names_of(second)
    assert again == first
    assert first["spec"]["containers"][0]["env"] == READING


async def test_a_line_without_gpus_gets_no_claim() -> None:
    """It gets the reference, as all pods of its namespace, and is complete with it."""
    async with serving() as (client, _, _registry):
        result = await completed(client, pod(text="0=node1:"))
        valid = await ask(client, "/validate-dra", review(result))

    assert "resourceClaims" not in result["spec"]
    assert result["spec"]["containers"][0]["env"] == READING
    assert valid["allowed"]


async def test_pods_of_other_schedulers_get_nothing() -> None:
    """They may have claims of their own."""
    foreign = pod(scheduler="default-scheduler", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    async with serving() as (client, _, _registry):
        for path in OURS:
            assert await ask(client, path, review(foreign)) == {"uid": "review-1", "allowed": True}


async def test_a_debug_container_gets_no_claim() -> None:
    """The API gives it none. It reads what its pod reads."""
    async with serving() as (client, _, _registry):
        old = await completed(client, pod())
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
        about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
        for path in ("/mutate", "/mutate-dra"):
            result = patched(new, await ask(client, path, review(new, **about)))
            assert result["spec"]["ephemeralContainers"] == [{"name": "debugger", "env": READING}]


async def test_a_debugged_pod_keeps_its_mode() -> None:
    """A pod that is older than the label of its namespace gets no claims with its debug container."""
    async with serving() as (client, _, _registry):
        old = await completed(client, pod(), "/mutate")
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
        about = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": old}
        result = patched(new, await ask(client, "/mutate-dra", review(new, **about)))

    assert result["spec"]["ephemeralContainers"] == [{"name": "debugger", "env": old["spec"]["containers"][0]["env"]}]
    assert "resourceClaims" not in result["spec"]


REFUSED: dict[str, tuple[Object, int, tuple[str, ...]]] = {
    "an observer": (
        pod(annotations={"agentaflow.gpu/observer": "true"}),
        403,
        ("Unsupported", "agentaflow.gpu/observer"),
    ),
    "a claim of another author": (
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
        403,
        ("Unsupported", "spec.resourceClaims"),
    ),
    "a wrong claim under our entry": (
        pod(resourceClaims=[{**ENTRY, "resourceClaimName": "gpu-scheduler-mine"}]),
        400,
        ("RequestInvalid", '"gpu-scheduler-mine"', "spec.resourceClaims"),
    ),
    "a literal variable": (
        pod(containers=[main(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"}])]),
        403,
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", '"main"', '"0,1"'),
    ),
    "a part of a claim": (
        pod(containers=[main(resources={"claims": [{**ENTRY, "request": "one"}]})]),
        403,
        ("EnvConflict", '"main"', '"one"', "gpu-scheduler-0"),
    ),
}


@pytest.mark.parametrize(("body", "code", "said"), REFUSED.values(), ids=REFUSED)
async def test_what_claims_cannot_give_is_refused(body: Object, code: int, said: tuple[str, ...]) -> None:
    """With the scheduler's message, the same from both paths."""
    async with serving() as (client, _, _registry):
        found = [await refusal(client, path, body) for path in OURS]

    assert found[0] == found[1]
    assert found[0][0] == code
    says(found[0][1], *said)


OWN = {"name": "gpu", "resourceClaimName": "mine"}
USING = {"resources": {"claims": [{"name": "gpu"}]}}


@pytest.mark.promise("isolate-14")
@pytest.mark.parametrize(
    "entry", [OWN, {"name": "gpu", "resourceClaimTemplateName": "mine"}], ids=["claim", "template"]
)
async def test_containers_that_use_the_pods_own_claim_get_the_variables(entry: Object) -> None:
    """The pod gets no claim beside it, and other containers get nothing."""
    body = pod(text=None, containers=[main(**USING), {"name": "b"}], initContainers=[], resourceClaims=[entry])
    async with serving() as (client, _, _registry):
        result = await completed(client, body)
        for path in OURS:
            assert (await ask(client, path, review(result)))["allowed"]
        code, message = await refusal(client, "/mutate", body)

    assert result["spec"]["containers"] == [main(**USING, env=READING), {"name": "b"}]
    assert result["spec"]["resourceClaims"] == [entry]
    assert code == 403
    says(message, "Unsupported", "spec.resourceClaims", "gpu-scheduling-map")


INCOMPLETE: dict[str, tuple[Object, str]] = {
    "a pod without claims": (pod(containers=[main(env=READING)]), "(resourceClaims, containers/0/resources)"),
    "a pod with nothing": (pod(), "(containers/0/env, resourceClaims, containers/0/resources)"),
    "a container without claims": (
        pod(containers=[main(env=READING, resources={})], resourceClaims=[{**ENTRY, "resourceClaimName": "NAME"}]),
        "(containers/0/resources/claims)",
    ),
}


@pytest.mark.parametrize(("body", "where"), INCOMPLETE.values(), ids=INCOMPLETE)
async def test_an_incomplete_pod_is_refused_at_validation(body: Object, where: str) -> None:
    """Another webhook removed what ours added. The message says where."""
    given = copy.deepcopy(body)
    async with serving() as (client, _, _registry):
        right = names_of(await completed(client, pod()))[0]
        for each in given["spec"].get("resourceClaims", ()):
            each["resourceClaimName"] = right
        code, message = await refusal(client, "/validate-dra", given)

    assert (code, where in message) == (400, True)
    says(message, "EnvNotInjected")


DEVICES = tuple(Device(index, f"GPU-{index}0000000-0000-0000-0000-000000000000") for index in range(6))
LINES = st.lists(st.lists(st.sampled_from("012345"), unique=True, max_size=4), min_size=1, max_size=5)
CONTAINERS = st.lists(
    st.sampled_from(
        [
            {},
            {"env": []},
            {"env": [{"name": "HOME", "value": "/"}], "resources": {}},
            {"env": READING, "resources": {"limits": {"cpu": "1"}}},
            {"resources": {"claims": []}},
            {"resources": {"claims": None}},
        ]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(LINES, CONTAINERS, st.integers(0, 3), st.sampled_from(["train-0", ""]))
def test_a_completed_pod_is_complete_valid_and_bound(
    lines: list[list[str]], containers: list[Object], first: int, name: str
) -> None:
    """Mutating twice equals mutating once, /validate-dra admits the result, and so does the bind gate."""
    text = "".join(f"{index}=node1:{','.join(devices)}\n" for index, devices in enumerate(lines))
    shares = len({device for line in lines for device in line}) < sum(map(len, lines))
    named = [{"name": f"c{number}", **each} for number, each in enumerate(containers)]
    more = {} if name else {"generate_name": "train-"}
    body = pod(name, text, containers=named[first:] or named, initContainers=named[:first], **more)

    async def review_all() -> Object | None:
        async with serving() as (client, _, _registry):
            response = await ask(client, "/mutate-dra", review(body))
            assert response["allowed"] is not (shares and not name)
            if not response["allowed"]:
                return None
            result = patched(copy.deepcopy(body), response)
            for path in ("/mutate-dra", "/mutate", "/validate-dra", "/validate"):
                assert await ask(client, path, review(result)) == {"uid": "review-1", "allowed": True}
            return result

    result = virtual.run(review_all())
    if result is None:
        return
    # As the API server stores it.
    result["metadata"] |= {"name": name or "train-bcdfg", "namespace": "default", "uid": "u"}
    _, read = read_pod(msgspec.json.encode(result))
    assert isinstance(decided(read, known=nodes(node("node1", inventory=Inventory(DEVICES)))), Bind)


ORDINARY = pod(
    containers=[main(resources={"claims": [ENTRY], "limits": {"cpu": "1"}}, env=READING)],
    resourceClaims=[{**ENTRY, "resourceClaimName": "gpu-scheduler-a", "resourceClaimTemplateName": None}],
)
ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({}), st.just([{}]))


@settings(max_examples=30, deadline=None)
@given(with_odd_values(ORDINARY, ODD))
def test_any_odd_value_gets_a_typed_response(body: Any) -> None:
    """Whatever value a field has, both paths send a review as response, and refuse with one sentence."""

    async def ask_both() -> None:
        async with serving() as (client, _, _registry):
            for path in OURS:
                response = await ask(client, path, review(body))
                assert response["allowed"] or refusal_of(response)

    virtual.run(ask_both())


async def test_ten_thousand_entries_are_refused() -> None:
    """Neither list is read beyond its bound."""
    entries = [{"name": f"gpu-scheduler-{number}", "resourceClaimName": "gpu-scheduler-a"} for number in range(10_000)]
    used = [{"name": f"gpu-scheduler-{number}"} for number in range(10_000)]
    async with serving() as (client, _, _registry):
        for path in OURS:
            _, message = await refusal(client, path, pod(resourceClaims=entries))
            says(message, "RequestInvalid")
            _, message = await refusal(client, path, pod(containers=[main(resources={"claims": used})]))
            assert message.startswith(("RequestInvalid: ", "EnvNotInjected: "))


def test_the_reference_is_that_of_all_other_pods() -> None:
    """The API server completes it with its own version."""
    (devices, order), (ours, order_of_ours) = reading(), READING
    devices["valueFrom"]["fieldRef"].pop("apiVersion")

    assert (devices, order) == (ours, order_of_ours)
