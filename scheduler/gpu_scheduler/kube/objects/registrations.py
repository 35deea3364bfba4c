"""A MutatingWebhookConfiguration or ValidatingWebhookConfiguration: the CAs that the API server trusts."""

from __future__ import annotations

import msgspec

from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ReadStruct, Version


class ClientConfig(ReadStruct):
    # msgspec decodes base64 here.
    ca_bundle: bytes | None = None


class RegisteredWebhook(ReadStruct):
    name: str
    client_config: ClientConfig


class Registration(ReadStruct):
    metadata: Version
    webhooks: list[RegisteredWebhook] | None = None

    def trusts_only(self, bundle: bytes) -> bool:
        """Return whether each webhook has exactly this bundle."""
        return all(each.client_config.ca_bundle == bundle for each in self.webhooks or ())

    def patch_bundle(self, bundle: bytes) -> bytes:
        """Encode a strategic merge patch that sets the bundle of each webhook.

        The API server refuses it if the registration is no longer of the version that was read. It is no server-side
        apply: that would own the webhooks too, and an installer could not remove one.
        """
        webhooks = [{"name": each.name, "clientConfig": {"caBundle": bundle}} for each in self.webhooks or ()]
        metadata = {"resourceVersion": self.metadata.resource_version}
        return msgspec.json.encode({"metadata": metadata, "webhooks": webhooks})


_registrations = msgspec.json.Decoder(Registration)


def read_registration(body: bytes | bytearray) -> Registration:
    """Decode a registration. Raise msgspec.DecodeError if it is none."""
    return decode_object(_registrations, body)
