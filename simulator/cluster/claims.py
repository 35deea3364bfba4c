"""The actors of ResourceClaims: another scheduler with claims of its own, and the controllers that clear and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from simulator.api_server.store import key_of
from simulator.cluster import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulator.api_server.server import Server
    from simulator.api_server.store import Object

_MANY: Final = 6
"""Most claims of others at a time."""
_LONGEST_WRITE: Final = 200
"""Milliseconds from a decision of the other scheduler to its write: less than ours waits for it."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class ClaimActors:
    """All actors of ResourceClaims but our scheduler."""

    def __init__(self, server: Server, later: Callable[[float, Callable[[], None]], None]) -> None:
        """Begin without claims. `later` runs what is due some seconds later."""
        self._server = server
        self._later = later
        self._made = 0
        self._syncs = 0
        self._sync_is_due = False
        device_class: Object = {"metadata": {"name": names.DRA_DRIVER}, "spec": {}}
        server.collections["deviceclasses"].put(f"/{names.DRA_DRIVER}", device_class)
        server.pods.watchers.append(lambda _: self._changed())
        server.resource_claims.watchers.append(lambda _: self._changed())

    def publish(self, node: str, devices: int) -> None:
        """Let the node's driver publish so many devices, unless it does."""
        slices = self._server.collections["resourceslices"]
        known = slices.entries.get(f"/{node}")
        if known is None or len(known.object["spec"]["devices"]) != devices:
            slices.put(f"/{node}", objects.resource_slice(node, devices, slices.version))

    def unpublish(self, node: str) -> None:
        """Delete what the driver of a node that is gone has published."""
        self._server.collections["resourceslices"].remove(f"/{node}")

    def make(self, a: int, b: int) -> bool:
        """Make a claim of others. Their scheduler reads what is allocated a moment later, and writes later still."""
        if len(self._others()) >= _MANY:
            return self.clear(a, b)
        self._made += 1
        made = objects.claim_of_others(f"other-{self._made}")
        self._server.resource_claims.put(key_of(made), made)

        def decide() -> None:
            allocated = list(self._allocated())
            free = [each for each in self._published() if each not in allocated]
            if free:
                self._later((b >> 5) % _LONGEST_WRITE / 1000, lambda: self._allocate(made, free[a % len(free)]))

        self._later(b % 32 / 100, decide)
        return True

    def clear(self, a: int, b: int) -> bool:
        """Clear the allocation of a claim of others, or delete the claim."""
        others = self._others()
        if not others:
            return False
        claim = others[a % len(others)]
        if b % 2 and claim.get("status"):
            self._write(claim, {})
        else:
            self._server.resource_claims.remove(key_of(claim))
        return True

    def _allocate(self, made: Object, device: Object) -> None:
        """Write what the other scheduler has decided, whatever was allocated since then."""
        entry = self._server.resource_claims.entries.get(key_of(made))
        if entry is not None:
            result = {"request": "gpu", **device}
            self._write(entry.object, {"allocation": {"devices": {"results": [result]}}})

    def _changed(self) -> None:
        """Let the controllers look at all claims some time after a change."""
        if not self._sync_is_due:
            self._sync_is_due = True
            self._syncs += 1
            self._later(self._syncs * 7 % 40 / 10, self._sync)

    def _sync(self) -> None:
        self._sync_is_due = False
        pods = [entry.object for entry in self._server.pods.entries.values()]
        for entry in tuple(self._server.resource_claims.entries.values()):
            self._clear_unused(entry.object, pods)
        for entry in tuple(self._server.resource_claims.entries.values()):
            self._delete_unowned(entry.object, pods)

    def _clear_unused(self, claim: Object, pods: list[Object]) -> None:
        """End reservations for pods that have ended, and the allocation with the last one, as the controller does."""
        status, meta = claim.get("status", {}), claim["metadata"]
        reserved = status.get("reservedFor", [])
        running = {pod["metadata"]["uid"] for pod in pods if not _is_done(pod)}
        kept = [each for each in reserved if each["uid"] in running]
        if not kept and "deletionTimestamp" in meta:
            self._server.resource_claims.remove(key_of(claim))
        elif not kept and reserved:
            self._write({**claim, "metadata": {**meta, "finalizers": []}}, {})
        elif kept != reserved:
            self._write(claim, {**status, "reservedFor": kept})

    def _delete_unowned(self, claim: Object, pods: list[Object]) -> None:
        """Delete a claim whose owners are all gone, as the garbage collector does. Controllers stay."""
        there = {objects.OWNER_UID, *(pod["metadata"]["uid"] for pod in pods)}
        meta = claim["metadata"]
        owners = meta.get("ownerReferences", ())
        if not owners or any(each["uid"] in there for each in owners) or "deletionTimestamp" in meta:
            return
        if meta.get("finalizers"):
            ending = {**claim, "metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            self._server.resource_claims.put(key_of(claim), ending)
        else:
            self._server.resource_claims.remove(key_of(claim))

    def _write(self, claim: Object, status: Object) -> None:
        made = {**claim, "metadata": dict(claim["metadata"]), "status": status}
        self._server.resource_claims.put(key_of(claim), made)

    def _others(self) -> list[Object]:
        entries = self._server.resource_claims.entries.values()
        return [entry.object for entry in entries if not entry.object["metadata"]["name"].startswith(names.CLAIM)]

    def _published(self) -> Iterator[Object]:
        for entry in self._server.collections["resourceslices"].entries.values():
            spec = entry.object["spec"]
            for device in spec["devices"]:
                yield {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}

    def _allocated(self) -> Iterator[Object]:
        for entry in self._server.resource_claims.entries.values():
            allocation = entry.object.get("status", {}).get("allocation")
            for each in allocation["devices"]["results"] if allocation else ():
                yield {key: each[key] for key in ("driver", "pool", "device")}


def _is_done(pod: Object) -> bool:
    """Whether a pod uses its claims no longer: it has ended, or is deleted before it was bound."""
    never_ran = "deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"]
    return pod["status"]["phase"] in _ENDED or never_ran
