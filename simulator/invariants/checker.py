"""Checks the invariants of scheduling against the API server's objects.

LAW: imports nothing of the ledger or the decision; it derives the holders of devices again, in a simple way.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from simulator.invariants import rules
from simulator.invariants.rules import Claim, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.api_server.server import ApiRequest, Server
    from simulator.api_server.store import Change, Entry, Object
    from simulator.clock import Timeline

_WRITES: Final = 25
_WRITES_EACH_SECOND: Final = 2.0
CONFLICT: Final = 409
_OURS: Final = rules.SCHEDULER
PROPAGATION: Final = 60.0
"""Seconds after which each replica must know a change of a node: a watch may be frozen until then."""


class BrokenError(AssertionError):
    """An invariant does not hold; the text names it and the pod."""


class Checker:
    """Checks every write, and at quiet points the whole cluster."""

    def __init__(self, timeline: Timeline, server: Server) -> None:
        """Check writes from now on."""
        self._timeline = timeline
        self._server = server
        self._binds: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._read: dict[str, tuple[Entry, Seen]] = {}
        self._checked_version = (0, 0)
        self._changed: dict[str, float] = {}
        self._came: dict[str, float] = {}
        self._ending: dict[str, float] = {}
        self._allocated: dict[str, tuple[int, Claim]] = {}
        """Each claim with an allocation, by its key, with the version that allocated it."""
        self.checked = 0
        """How many times an invariant was checked."""
        self.binds = 0
        server.nodes.watchers.append(self._node_changed)
        server.pods.watchers.append(self._pod_changed)
        server.resource_claims.watchers.append(self._claim_changed)
        server.hooks.bound.append(self._bound)
        server.hooks.asked.append(self._asked)

    def check(self) -> None:
        """After a step, check that no device has two holders, and that each pod has its claims."""
        version = self._server.pods.version, self._server.resource_claims.version
        if self._checked_version == version:
            return
        self._checked_version = version
        for name, pods in self._by_node().items():
            self._apart(name, pods)
            for pod in pods:
                self._has_claims(pod)

    def waiting(self) -> Iterator[str]:
        """At a quiet point, give pods that would fit and are not bound, and waiting pods without a reason."""
        pods = self._pods()
        nodes = {entry.object["metadata"]["name"]: entry.object for entry in self._server.nodes.entries.values()}
        yield from self._unreleased(pods)
        view = rules.View(nodes, pods, rules.claimed(nodes, [claim for _, claim in self._allocated.values()]))
        for pod in pods:
            if pod.scheduler != _OURS or pod.node or pod.ended or pod.deleting:
                continue
            self.checked += 2
            place = view.place_for(pod)
            if place is not None:
                yield f"liveness: {pod.name} could run on {place} and is not bound"
            elif not pod.has_reason:
                yield f"condition: {pod.name} waits and has no condition PodScheduled=False with a reason"

    def held(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """By uid, the node and the devices, as the pod names them, of each bound pod of ours that has not ended."""
        return {pod.uid: (pod.node, pod.assigned) for pod in self._pods() if pod.holds}

    def _bound(self, made: Object, _: Object) -> None:
        pod = Seen(made)
        self.binds += 1
        self._binds[pod.uid] += 1
        self.checked += 8
        if pod.scheduler != _OURS:
            raise BrokenError(f"others: {pod.name} of {pod.scheduler} was bound")
        if self._binds[pod.uid] > 1:
            raise BrokenError(f"once: {pod.name} ({pod.uid}) was bound {self._binds[pod.uid]} times")
        wrong = pod.disagreement()
        if wrong:
            raise BrokenError(f"agree: {pod.name}: {wrong}")
        by_node = self._by_node()
        self._apart(pod.node, by_node[pod.node])
        self._together(pod, by_node)
        self._takes(pod)
        self._has_claims(pod)
        self._taken_before(pod)

    def _takes(self, pod: Seen) -> None:
        """Check that the node could take the pod, unless the node changed only recently."""
        settled = self._timeline.now - PROPAGATION
        if self._changed.get(pod.node, 0.0) > settled:
            return
        entry = self._server.nodes.entries.get(f"/{pod.node}")
        if entry is None or not rules.usable(entry.object):
            raise BrokenError(
                f"node: {pod.name} was bound to {pod.node}, which takes no pods since {PROPAGATION:g} s and more"
            )
        missing = [device for device in pod.devices if device not in rules.inventory(entry.object)]
        if missing:
            raise BrokenError(f"node: {pod.name} was given GPU {missing[0]} of {pod.node}, which has it no longer")
        there = (each for each in self._pods() if each.node == pod.node and not each.ended)
        used = sum(each.cpu for each in there if each.scheduler == _OURS or self._came[each.uid] < settled)
        if used > rules.room(entry.object):
            raise BrokenError(f"room: {pod.name} was bound to {pod.node}, where {used} CPUs are taken then")

    def _node_changed(self, change: Change) -> None:
        self._changed[change.key[1:]] = self._timeline.now

    def _pod_changed(self, change: Change) -> None:
        entry = self._server.pods.entries.get(change.key)
        if entry is not None:
            meta = entry.object["metadata"]
            self._came.setdefault(meta["uid"], self._timeline.now)
            if "deletionTimestamp" in meta:
                self._ending.setdefault(meta["uid"], self._timeline.now)

    def _claim_changed(self, change: Change) -> None:
        """Remember which claims are allocated, and since when."""
        entry = self._server.resource_claims.entries.get(change.key)
        known = self._allocated.pop(change.key, None)
        claim = None if entry is None else Claim(entry.object)
        if claim is not None and claim.devices:
            same = known is not None and known[1].devices == claim.devices
            self._allocated[change.key] = known[0] if known is not None and same else change.version, claim

    def _has_claims(self, pod: Seen) -> None:
        """Check that the claims of a bound pod are reserved for it, and allocated exactly its devices."""
        if not pod.claims:
            return
        self.checked += 1
        found = [self._allocated[key][1] for key in self._keys_of(pod) if key in self._allocated]
        devices = sorted(each for claim in found if pod.uid in claim.reserved for each in claim.devices)
        if devices != sorted((pod.node, device) for device in pod.devices):
            raise BrokenError(f"allocated: {pod.name} has {pod.devices} of {pod.node}, and its claims {devices}")

    def _taken_before(self, pod: Seen) -> None:
        """Check that no other claim was allocated a device of the pod before its own claims were."""
        for at, claim in map(self._allocated.__getitem__, self._keys_of(pod)):
            for before, other in self._allocated.values():
                if before < at and claim.devices & other.devices:
                    raise BrokenError(f"taken: {pod.name} is bound to a GPU that claim {other.name} had before")

    def _unreleased(self, pods: list[Seen]) -> Iterator[str]:
        """Give the claims of ours that are allocated for a pod that waits, or for none."""
        holding = {pod.uid for pod in pods if pod.holds}
        for _, claim in self._allocated.values():
            self.checked += 1
            if claim.ours and not (claim.reserved and claim.reserved <= holding):
                yield f"released: {claim.name} is allocated, and reserved for {sorted(claim.reserved - holding)}"

    def _keys_of(self, pod: Seen) -> tuple[str, ...]:
        return tuple(f"default/{name}" for name in pod.claims)

    def _apart(self, name: str, pods: list[Seen]) -> None:
        """Check that pods share a device only as the rules allow, and within its memory."""
        self.checked += 1
        devices: dict[str, list[Seen]] = defaultdict(list)
        for pod in pods:
            for device in pod.devices:
                devices[device].append(pod)
        for device, holders in devices.items():
            for at, pod in enumerate(holders):
                for other in holders[:at]:
                    if not rules.may_share(pod, other, device):
                        raise BrokenError(f"apart: GPU {device} of {name} is held by {other.name} and by {pod.name}")
            if len(holders) > 1 and sum(pod.memory for pod in holders) > rules.DEVICE_MEMORY:
                raise BrokenError(f"memory: GPU {device} of {name} is given to {len(holders)} pods that need more")
        indices = Counter((pod.workload, pod.index) for pod in pods if pod.index is not None)
        for (workload, index), times in indices.items():
            if times > 1:
                raise BrokenError(f"index: {times} pods of {workload[:2]} have index {index}")

    def _together(self, pod: Seen, by_node: dict[str, list[Seen]]) -> None:
        """Check that no line is kept from the pod, and that a workload which it starts could have all of its lines."""
        others = [each for pods in by_node.values() for each in pods if each.uid != pod.uid]
        kept = rules.KeptLines(others)
        for device in pod.devices:
            whose = kept.kept_from(pod, pod.node, device)
            if whose is not None:
                raise BrokenError(f"together: {pod.name} got GPU {device} of {pod.node}, which is kept for {whose}")
        if not pod.together or pod.workload in kept.started:
            return
        for node, devices in kept.missing(pod):
            for other in by_node.get(node, ()):
                held = set(devices) & set(other.devices)
                if held and other.workload != pod.workload:
                    raise BrokenError(f"together: {pod.name} starts, and {other.name} holds GPU {min(held)} of {node}")

    def _asked(self, request: ApiRequest, status: int) -> None:
        """Check which pods are written, and how often."""
        if request.verb == "GET" or "/pods/" not in request.path:
            return
        parts = request.path.split("/")
        entry = self._server.pods.entries.get(f"{parts[4]}/{parts[6]}")
        if entry is None:
            return
        pod = Seen(entry.object)
        if pod.scheduler != _OURS:
            raise BrokenError(f"others: {request.verb} {request.path} writes a pod of {pod.scheduler}")
        if parts[-1] == "binding":
            self._may_be_tried(pod, request.body or b"", refused=status == CONFLICT)
        begun = self._since.setdefault(pod.uid, self._timeline.now)
        self._writes[pod.uid] += 1
        self.checked += 1
        most = _WRITES + _WRITES_EACH_SECOND * (self._timeline.now - begun)
        if self._writes[pod.uid] > most:
            raise BrokenError(f"budget: {self._writes[pod.uid]} writes for {pod.name} (the last: {status})")

    def _may_be_tried(self, pod: Seen, body: bytes, *, refused: bool) -> None:
        """Check that the sender may bind. A refused bind counts too, unless no replica could bind the pod."""
        since = self._timeline.now - self._ending.get(pod.uid, self._timeline.now)
        if since > PROPAGATION:
            raise BrokenError(f"ending: a bind of {pod.name} is tried, which is being deleted for {since:.0f} s")
        lease = self._server.leases.entries.get("gpu-scheduler-system/gpu-scheduler")
        holder = lease.object["spec"].get("holderIdentity") if lease else None
        meta = json.loads(body)["metadata"]
        by, another = meta["annotations"].get("agentaflow.gpu/assigned-by"), meta.get("uid", pod.uid) != pod.uid
        known_refusal = refused and (another or pod.deleting or pod.ended or pod.bound_by == by)
        if holder not in {by, "", "another", None} and not known_refusal:
            raise BrokenError(f"fence: a bind of {pod.name} comes from {by} while {holder} holds the lease")

    def _by_node(self) -> dict[str, list[Seen]]:
        found: dict[str, list[Seen]] = defaultdict(list)
        for pod in self._pods():
            if pod.holds:
                found[pod.node].append(pod)
        return found

    def _pods(self) -> list[Seen]:
        """Give all pods; each version of a pod is parsed once."""
        before, self._read = self._read, {}
        for key, entry in self._server.pods.entries.items():
            known = before.get(key)
            self._read[key] = known if known is not None and known[0] is entry else (entry, Seen(entry.object))
        return [seen for _, seen in self._read.values()]
