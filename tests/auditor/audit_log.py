"""Reads the API server's audit log: each write, its user and its status.

`audit_flags` returns the flags of an API server that logs every write to pods, Bindings with their bodies.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane

ASKED: Final = "/version"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["pods", "pods/*"]}],
        },
        {"level": "Metadata", "nonResourceURLs": [ASKED]},
        {"level": "None"},
    ],
}


class Reference(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class BindingMeta(msgspec.Struct):
    uid: str = ""


class Binding(msgspec.Struct):
    metadata: BindingMeta = msgspec.field(default_factory=BindingMeta)


class User(msgspec.Struct):
    username: str = ""


class Answered(msgspec.Struct):
    code: int = 0


class Entry(msgspec.Struct, rename="camel"):
    """One line of the log: a request and its status."""

    verb: str
    request_uri: str = msgspec.field(name="requestURI", default="")
    stage: str = ""
    user: User = msgspec.field(default_factory=User)
    object_ref: Reference = msgspec.field(default_factory=Reference)
    request_object: Binding = msgspec.field(default_factory=Binding)
    response_status: Answered = msgspec.field(default_factory=Answered)

    @property
    def pod(self) -> str:
        """Namespace and name of the pod that the request is about."""
        return f"{self.object_ref.namespace}/{self.object_ref.name}"

    @property
    def done(self) -> bool:
        """Whether the request is complete and succeeded."""
        return self.stage == "ResponseComplete" and 200 <= self.response_status.code < 300

    @property
    def bind(self) -> bool:
        """Whether the request is a Binding."""
        return self.verb == "create" and self.object_ref.subresource == "binding"


_entry = msgspec.json.Decoder(Entry)


def audit_flags(folder: Path) -> tuple[str, str]:
    """Write the audit policy to the folder; return the API server's flags for policy and log."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY), encoding="utf-8")
    return f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"


class AuditLog:
    """The audit log of an API server, from the creation of this object on."""

    def __init__(self, plane: ControlPlane) -> None:
        """Find the path of the log in the API server's flags; AssertionError if it keeps none."""
        flags = [flag.partition("=")[2] for flag in plane.flags if flag.startswith("--audit-log-path=")]
        assert flags, "this API server keeps no audit log: start it with audited_plane"
        self._plane = plane
        self.path = Path(flags[0])
        self._began = self.path.stat().st_size if self.path.exists() else 0

    def entries(self) -> list[Entry]:
        """Return all entries up to now. Wait for a request of our own in the log, so that no earlier one is missing."""
        mark = f"{ASKED}?auditor={uuid.uuid4()}"
        self._plane.kube.raw("GET", mark)
        eventually("the audit log has the auditor's own request", lambda: mark.encode() in self._read())
        return [_entry.decode(line) for line in self._read().splitlines()]

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self._began)
            return file.read()
