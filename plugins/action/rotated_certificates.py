"""Decides what the Secrets of the webhook's CA and certificate shall hold, by the payload's own code."""

from __future__ import annotations

import base64
import importlib
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]  # Ansible ships no types

Json = dict[str, Any]

# The scheduler's package is not installed in the tool environment.
sys.path.append(str(Path(__file__).resolve().parents[2] / "scheduler"))
names: Final = importlib.import_module("gpu_scheduler.names")
issuing: Final = importlib.import_module("gpu_scheduler.certificates.issuing")
rotation: Final = importlib.import_module("gpu_scheduler.certificates.rotation")

ARGUMENTS: Final = {
    "found": {"type": "list", "elements": "dict", "required": True},
    "namespace": {"type": "str", "required": True},
    "service": {"type": "str", "required": True},
    **{name: {"type": "int", "required": True} for name in ("ca_days", "serving_days", "renew_days")},
    "force": {"type": "str", "choices": [*rotation.Force], "default": "none"},
}


def data_of(found: list[Json], name: str) -> dict[str, bytes]:
    """Return the data of the Secret of this name; empty if there is none."""
    secrets = (each for each in found if each["kind"] == "Secret" and each["metadata"]["name"] == name)
    return {key: base64.b64decode(value) for each in secrets for key, value in (each.get("data") or {}).items()}


def bundles_of(found: list[Json]) -> tuple[bytes, ...]:
    """Return the CAs by which the API server trusts each registered webhook."""
    registrations = (each for each in found if each["kind"].endswith("WebhookConfiguration"))
    webhooks = (one for each in registrations for one in each.get("webhooks") or ())
    return tuple(base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in webhooks)


def encoded(data: dict[str, bytes]) -> dict[str, str]:
    """Return the data as a Secret has it."""
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


class ActionModule(ActionBase):  # type: ignore[misc]  # its base is untyped
    """Computes only: it connects to nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Return the data of both Secrets, in base64."""
        result: Json = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        validity, serving, due = (timedelta(days=given[name]) for name in ("ca_days", "serving_days", "renew_days"))
        terms = issuing.Terms(issuing.names_of(given["service"], given["namespace"]), serving, due)
        found = given["found"]
        stored = rotation.Stored(
            data_of(found, names.CA_SECRET), data_of(found, names.SERVING_SECRET), bundles_of(found)
        )
        try:
            wanted = rotation.rotate(stored, terms, validity, datetime.now(UTC), force=rotation.Force(given["force"]))
        except issuing.CaError as error:
            remedy = f"delete Secret {names.CA_SECRET} in namespace {given['namespace']}, and run this again"
            return {**result, "failed": True, "msg": f"{error.problem}; {remedy}"}
        waits = -1 if wanted.waits is None else wanted.waits
        return {
            **result,
            "changed": False,
            "ca": encoded(wanted.ca),
            "serving": encoded(wanted.pair),
            "waits": waits,
            "refused": wanted.refused,
        }
