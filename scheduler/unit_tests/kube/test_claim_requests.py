"""What a ResourceClaim of a user asks for, as the API writes it, and whatever else it may contain."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.device_selector import DeviceSelector
from gpu_scheduler.core.pods.own_claim import ClaimRequest
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim

DRIVER = "gpu.nvidia.com"
INDEX = f'device.attributes["{DRIVER}"].index == 3'
WHERE = "spec.devices.requests[0].exactly"


def exactly(**more: Any) -> dict[str, Any]:
    return {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 2, **more}


def claim(requests: Any, **more: Any) -> dict[str, Any]:
    return {"devices": {"requests": requests, **more}}


def one(**more: Any) -> dict[str, Any]:
    return claim([{"name": "gpus", "exactly": exactly(**more)}])


def read(spec: Any, name: str = "mine") -> tuple[ClaimRequest | None, str]:
    """Return what a claim asks for, or what of it is not read."""
    body = {"metadata": {"name": name, "namespace": "default", "uid": "u"}, "spec": spec}
    _, found = read_allocated_claim(msgspec.json.encode(body))
    return found.request, found.unread


READ: dict[str, tuple[dict[str, Any], ClaimRequest]] = {
    "a count": (one(), ClaimRequest("gpus", DRIVER, 2, DeviceSelector(DRIVER))),
    "the driver of simulated GPUs": (
        one(deviceClassName="gpu.agentaflow.io"),
        ClaimRequest("gpus", "gpu.agentaflow.io", 2, DeviceSelector("gpu.agentaflow.io")),
    ),
    "a selector": (
        one(selectors=[{"cel": {"expression": INDEX}}]),
        ClaimRequest("gpus", DRIVER, 2, DeviceSelector(DRIVER, index=3)),
    ),
    "the defaults of the API": (
        claim([{"name": "gpus", "exactly": {"deviceClassName": DRIVER}}]),
        ClaimRequest("gpus", DRIVER, 1, DeviceSelector(DRIVER)),
    ),
    "empty fields": (
        claim(
            [{"name": "gpus", "exactly": exactly(adminAccess=False, tolerations=[], selectors=None, capacity=None)}],
            constraints=[],
            config=None,
        ),
        ClaimRequest("gpus", DRIVER, 2, DeviceSelector(DRIVER)),
    ),
    "as many as a claim may have": (one(count=32), ClaimRequest("gpus", DRIVER, 32, DeviceSelector(DRIVER))),
}


@pytest.mark.parametrize(("spec", "request_"), READ.values(), ids=READ)
def test_one_request_of_a_number_of_gpus_is_read(spec: dict[str, Any], request_: ClaimRequest) -> None:
    """With its class, its count and its selectors."""
    assert read(spec) == (request_, "")


OTHER = "its spec has fields or values that this scheduler does not read"
UNREAD: dict[str, tuple[Any, str]] = {
    "no spec": (None, OTHER),
    "no devices": ({}, "spec.devices.requests has 0 entries, and one is read"),
    "no request": (claim([]), "spec.devices.requests has 0 entries, and one is read"),
    "two requests": (
        claim([{"name": "a", "exactly": exactly()}, {"name": "b", "exactly": exactly()}]),
        "spec.devices.requests has 2 entries, and one is read",
    ),
    "alternatives": (
        claim([{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": DRIVER}]}]),
        "spec.devices.requests[0].firstAvailable is not read",
    ),
    "no form of a request": (claim([{"name": "a"}]), f"{WHERE} is missing"),
    "constraints": (
        claim([{"name": "a", "exactly": exactly()}], constraints=[{"matchAttribute": "a/b"}]),
        "spec.devices.constraints is not read",
    ),
    "configuration": (
        claim([{"name": "a", "exactly": exactly()}], config=[{"opaque": {}}]),
        "spec.devices.config is not read",
    ),
    "tolerations": (one(tolerations=[{"operator": "Exists"}]), f"{WHERE}.tolerations is not read"),
    "capacity": (one(capacity={"requests": {"memory": "1Gi"}}), f"{WHERE}.capacity is not read"),
    "adminAccess": (one(adminAccess=True), f"{WHERE}.adminAccess is not read"),
    "all devices": (one(allocationMode="All"), f'{WHERE}.allocationMode is "All", and only ExactCount is read'),
    "no device": (one(count=0), f"{WHERE}.count is 0, and it must be from 1 to 32"),
    "more devices than a claim has": (one(count=33), f"{WHERE}.count is 33, and it must be from 1 to 32"),
    "another class": (
        one(deviceClassName="a100"),
        f'{WHERE}.deviceClassName is "a100", and only gpu.agentaflow.io or gpu.nvidia.com is read',
    ),
    "another expression": (one(selectors=[{"cel": {"expression": "true"}}]), f'{WHERE}.selectors: "true" is not read'),
    "another kind of selector": (one(selectors=[{"rego": "allow"}]), OTHER),
    "an unknown field": (one(shared=True), OTHER),
    "an unknown field of the claim": ({"devices": {}, "network": {}}, OTHER),
    "wrong types": (one(count="2"), OTHER),
    "more text than is read": (one(selectors=[{"cel": {"expression": " " * 40_000 + INDEX}}]), OTHER),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("spec", "why"), UNREAD.values(), ids=UNREAD)
def test_what_else_a_claim_has_is_named(spec: Any, why: str) -> None:
    """It is never left out of what the pod gets."""
    assert read(spec) == (None, why)


def test_of_a_claim_of_ours_nothing_is_asked() -> None:
    """The pod says what it asks for."""
    assert read(one(), "gpu-scheduler-a") == (None, "")


FIELDS = ["devices", "requests", "exactly", "name", "count", "deviceClassName", "selectors", "cel", "expression"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["", DRIVER, INDEX, "ExactCount"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
        max_leaves=12,
    )
)
def test_whatever_a_claim_has_it_is_read_or_named(spec: Any) -> None:
    """A claim is written by any user."""
    request, unread = read(spec)

    assert (request is None) == bool(unread)
