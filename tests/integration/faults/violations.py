"""Breaks invariants by hand and starts schedulers with debug endpoints, for the tests of the auditor."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Allowed
from tests.integration.command import Command, start_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.auditor.auditor import Auditor
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.objects import Object

QUICK: Final = Allowed(staleness=0.0, liveness=1.0, settling=0.5)
"""Short times: a forged object does not change, so the auditor need not wait for it."""


@contextmanager
def open_scheduler(
    plane: ControlPlane,
    folder: Path,
    name: str = "open-0",
    *,
    port: int | None = None,
    module: str = "gpu_scheduler",
    **env: str,
) -> Iterator[Command]:
    """Run a scheduler that leads, serves its ledger (DEBUG_ENDPOINTS) and writes a journal."""
    settings = {"DEBUG_ENDPOINTS": "true", "DECISION_JOURNAL": str(folder / f"{name}.journal"), **env}
    with start_scheduler(plane, folder, name, port, module, **settings).serving(leads=True) as command:
        yield command


def found(auditor: Auditor) -> set[str]:
    """Return the ids of the violated invariants."""
    return {violation.invariant for violation in auditor.report()}


def bind(namespace: Namespace, name: str, devices: str, *, uid: str | None = None, **changed: str) -> None:
    """Bind a pod to node1 as a scheduler would. `changed` overrides annotations, `uid` the pod's uid."""
    given = {"node": "node1", "index": "0", "by": "forger_0", "at": "2026-01-01T00:00:00.000000Z", **changed}
    metadata: Object = {
        "name": name,
        "uid": namespace.read(name)["metadata"]["uid"] if uid is None else uid,
        "annotations": {f"agentaflow.gpu/assigned-{key}": text for key, text in {"devices": devices, **given}.items()},
    }
    target = {"apiVersion": "v1", "kind": "Node", "name": "node1"}
    namespace.kube.create(f"{namespace.pods}/{name}/binding", {"metadata": metadata, "target": target})
