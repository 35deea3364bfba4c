"""The messages of the kubelet's plugin API, byte by byte as Kubernetes' own programs encode them."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_scheduler.driver import kubelet_api as api


def text(number: int, value: str) -> bytes:
    """Return a field with a short text or message, as protobuf encodes it."""
    return bytes([number << 3 | 2, len(value)]) + value.encode()


def nested(number: int, *fields: bytes) -> bytes:
    """Return a field with a message of these fields."""
    return text(number, b"".join(fields).decode())


def prepared() -> Any:
    """Return the answer about two claims, one of which failed."""
    response = api.PrepareResponse()
    response.claims["u"].devices.add(
        request_names=["a", "b"], pool_name="node1", device_name="gpu-1", cdi_device_ids=["v/c=1"]
    )
    response.claims["v"].error = "no"
    return response


def unprepared() -> Any:
    """Return the answer about one claim, without an error."""
    response = api.UnprepareResponse()
    response.claims["u"].SetInParent()
    return response


DEVICE = (text(1, "a"), text(1, "b"), text(2, "node1"), text(3, "gpu-1"), text(4, "v/c=1"))
CLAIM = nested(1, text(1, "default"), text(2, "uid-1"), text(3, "train"))
NAMED = {"namespace": "default", "uid": "uid-1", "name": "train"}
MESSAGES: dict[str, tuple[Any, bytes]] = {
    "who serves": (
        api.PluginInfo(type="DRAPlugin", name="n", endpoint="/s", supported_versions=["v1.DRAPlugin"]),
        text(1, "DRAPlugin") + text(2, "n") + text(3, "/s") + text(4, "v1.DRAPlugin"),
    ),
    "the driver is registered": (api.RegistrationStatus(plugin_registered=True), b"\x08\x01"),
    "the driver is not registered": (api.RegistrationStatus(error="no"), text(2, "no")),
    "claims to prepare": (api.PrepareRequest(claims=[NAMED]), CLAIM),
    "claims to unprepare": (api.UnprepareRequest(claims=[NAMED]), CLAIM),
    "prepared claims": (
        prepared(),
        nested(1, text(1, "u"), nested(2, nested(1, *DEVICE))) + nested(1, text(1, "v"), nested(2, text(2, "no"))),
    ),
    "an unprepared claim": (unprepared(), nested(1, text(1, "u"), nested(2))),
}


@pytest.mark.parametrize(("message", "encoded"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_encoded_as_the_kubelet_does(message: Any, encoded: bytes) -> None:
    """The numbers are those of k8s.io/kubelet, pkg/apis, in Kubernetes 1.36."""
    assert message.SerializeToString(deterministic=True) == encoded
    assert type(message).FromString(encoded) == message


def test_a_field_that_is_not_known_is_no_error() -> None:
    """A later kubelet may send more."""
    assert api.PrepareRequest.FromString(CLAIM + text(9, "more")).claims[0].name == "train"
