"""The actors of the simulated cluster: controllers, kubelets, users and nodes carry out the steps of a plan."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from simulator.api_server.store import key_of
from simulator.cluster import objects
from simulator.cluster.claims import ClaimActors
from simulator.cluster.templates import NODES, Template, templates_of
from simulator.faults import Fault
from simulator.plan import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.api_server.server import Server
    from simulator.api_server.store import Object
    from simulator.clock import Timeline
    from simulator.plan import Step

_MANY: Final = 28
"""Most pods of ours at a time."""
_GRACES: Final = (0.3, 2.0, 9.0, None)
"""Seconds that a pod terminates; None: its kubelet is down."""
_OTHER_CPUS: Final = (8, 40, 62)
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class ClusterActors:
    """All actors of the cluster but the scheduler."""

    def __init__(  # noqa: PLR0913 - what makes a cluster
        self,
        seed: int,
        timeline: Timeline,
        server: Server,
        *,
        waits: bool = False,
        devices: int = objects.DEVICES,
        claims: bool = False,
    ) -> None:
        """Begin with all nodes and no pods. With `waits`, delayed actions run only by run_next_delayed.

        With `claims`, pods have ResourceClaims, and others have claims too.
        """
        self._timeline = timeline
        self._waits = waits
        self._server = server
        templates = templates_of(Random(f"{seed}/templates"), devices)  # noqa: S311 - it must be the same again
        self._templates = tuple(each for each in templates if each.may_have_claims or not claims)
        self._members: dict[tuple[str, int], str] = {}
        self._owners: dict[str, tuple[Template, int]] = {}
        self._made = 0
        self._delayed: dict[int, Callable[[], None]] = {}
        self._full = devices
        self._devices = dict.fromkeys(NODES, devices)
        self._ready = dict.fromkeys(NODES, True)
        self._cordoned = dict.fromkeys(NODES, False)
        self._claims = ClaimActors(server, self._later) if claims else None
        for name in NODES:
            self._show(name)

    def do(self, step: Step) -> bool:
        """Carry out a step; False if there was nothing to do."""
        return self._HANDLERS[step.what](self, step.a, step.b)

    def knows(self, what: Action | Fault) -> bool:
        """Whether these actors carry out steps of this kind."""
        return what in self._HANDLERS

    def run_delayed(self) -> None:
        """Run all delayed actions now."""
        while self.run_next_delayed():
            pass

    def run_next_delayed(self) -> bool:
        """Run the first delayed action now; False if there is none."""
        if self._delayed:
            self._delayed.pop(next(iter(self._delayed)))()
            return True
        return False

    def lose(self, number: int) -> bool:
        """Remove a bound pod at once; False if there is none."""
        pods = [pod for pod in self._ours() if pod["spec"].get("nodeName")]
        if pods:
            self._remove(pods[number % len(pods)])
        return bool(pods)

    def _create(self, a: int, b: int) -> bool:
        absent = [
            (template, member)
            for template in self._templates
            for member in range(template.members)
            if (template.name, member) not in self._members
        ]
        if not absent or len(self._members) >= _MANY:
            return self._finish(a, b)
        template, member = absent[a % len(absent)]
        self._make(template, member, b)
        return True

    def _make(self, template: Template, member: int, variant: int) -> None:
        self._made += 1
        made = template.make(member, self._made, variant, with_claims=self._claims is not None)
        key = key_of(made)
        if key in self._server.pods.entries:
            return
        self._members[template.name, member] = key
        self._owners[key] = (template, member)
        self._server.pods.put(key, made)

    def _finish(self, a: int, b: int) -> bool:
        """End a pod; its controller removes it some time later."""
        pods = [pod for pod in self._ours() if pod["spec"].get("nodeName") and pod["status"]["phase"] not in _ENDED]
        if not pods:
            return False
        pod = pods[a % len(pods)]
        self._change(pod, {"phase": "Failed" if b % 4 == 0 else "Succeeded"})
        self._later((b >> 4) % 50 / 10, lambda: self._remove(pod))
        return True

    def _run(self, a: int, _: int) -> bool:
        """A kubelet starts a pod."""
        pods = [pod for pod in self._ours() if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"]
        if pods:
            self._change(pods[a % len(pods)], {"phase": "Running"})
        return bool(pods)

    def _delete(self, a: int, b: int) -> bool:
        """Delete a pod, bound or not; a controller may create it again."""
        pods = [pod for pod in self._ours() if "deletionTimestamp" not in pod["metadata"]]
        if not pods:
            return False
        pod, key = pods[a % len(pods)], key_of(pods[a % len(pods)])
        template, member = self._owners[key]
        again = template.kind == "StatefulSet" and b % 3 == 0
        # A pod without a node is removed at once, unless it has a finalizer.
        lingers = pod["spec"].get("nodeName") or (b % 5 == 0 and not self._waits)
        grace = _GRACES[(b >> 3) % len(_GRACES)] if lingers else 0.0

        def gone() -> None:
            self._remove(pod)
            if again and (template.name, member) not in self._members:
                self._make(template, member, b >> 6)

        if grace == 0.0:
            gone()
            return True
        self._server.pods.put(
            key, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        )
        if grace is not None:
            self._later(grace, gone)
        return True

    def _reap(self, a: int, _: int) -> bool:
        """Remove a pod that was terminating."""
        pods = [pod for pod in self._ours() if "deletionTimestamp" in pod["metadata"]]
        if pods:
            self._remove(pods[a % len(pods)])
        return bool(pods)

    def _recreate(self, _: int, b: int) -> bool:
        """Replace the newest pod by another of its name."""
        pods = [pod for pod in self._ours() if self._owners[key_of(pod)][0].kind == "StatefulSet"]
        if not pods:
            return False
        template, member = self._owners[key_of(pods[-1])]
        self._remove(pods[-1])
        self._make(template, member, b)
        return True

    def _take(self, a: int, b: int) -> bool:
        """Add a pod that another scheduler has bound."""
        self._made += 1
        made = objects.pod(
            f"other-{self._made}",
            f"uid-{self._made}",
            {},
            None,
            scheduler="default-scheduler",
            node=NODES[a % len(NODES)],
            cpu=_OTHER_CPUS[b % len(_OTHER_CPUS)],
        )
        self._server.pods.put(key_of(made), made)
        if b >> 4 & 3:
            self._later((b >> 6) % 200 / 10, lambda: self._remove(made))
        return True

    def _leave(self, a: int, _: int) -> bool:
        """End a pod of another scheduler."""
        others = [
            entry.object
            for entry in self._server.pods.entries.values()
            if entry.object["spec"]["schedulerName"] == "default-scheduler"
        ]
        if others:
            self._remove(others[a % len(others)])
        return bool(others)

    def _claim(self, a: int, b: int) -> bool:
        """Make a claim of another scheduler."""
        return self._claims is not None and self._claims.make(a, b)

    def _clear(self, a: int, b: int) -> bool:
        """Clear or delete a claim of another scheduler."""
        return self._claims is not None and self._claims.clear(a, b)

    def _cordon(self, a: int, b: int) -> bool:
        name = NODES[a % len(NODES)]
        self._cordoned[name] = not self._cordoned[name]
        self._show_for(name, b)
        return True

    def _not_ready(self, a: int, b: int) -> bool:
        name = NODES[a % len(NODES)]
        self._ready[name] = not self._ready[name]
        self._show_for(name, b)
        return True

    def _node_gone(self, a: int, b: int) -> bool:
        name = NODES[a % len(NODES)]
        if f"/{name}" not in self._server.nodes.entries:
            return False
        self._server.nodes.remove(f"/{name}")
        if self._claims is not None:
            self._claims.unpublish(name)
        self._later(b % 100 / 10, lambda: self._restore(name))
        return True

    def _change_device_count(self, a: int, b: int) -> bool:
        """Change a node's number of devices: two fewer, none, and then all again."""
        name = NODES[a % len(NODES)]
        following = {self._full: self._full - 2, self._full - 2: 0, 0: self._full}
        self._devices[name] = following[self._devices[name]]
        self._show_for(name, b)
        return True

    def _show_for(self, name: str, b: int) -> None:
        """Update the node, for some seconds or until its next change."""
        self._show(name)
        if b % 4:
            self._later((b >> 2) % 150 / 10, lambda: self._restore(name))

    def _restore(self, name: str) -> None:
        self._ready[name], self._cordoned[name], self._devices[name] = True, False, self._full
        self._show(name)

    def _show(self, name: str) -> None:
        made = objects.node(name, self._devices[name], ready=self._ready[name], cordoned=self._cordoned[name])
        self._server.nodes.put(f"/{name}", made)
        if self._claims is not None:
            self._claims.publish(name, self._devices[name])

    def _ours(self) -> list[Object]:
        entries = self._server.pods.entries
        return [entries[key].object for key in entries if key in self._owners]

    def _change(self, pod: Object, status: Object) -> None:
        entry = self._server.pods.entries[key_of(pod)]
        self._server.pods.put(key_of(pod), {**entry.object, "status": {**entry.object["status"], **status}})

    def _remove(self, pod: Object) -> None:
        """Remove the pod, unless it is gone or replaced by another of its name."""
        key = key_of(pod)
        entry = self._server.pods.entries.get(key)
        if entry is None or entry.object["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        owner = self._owners.pop(key, None)
        if owner is not None:
            self._members.pop((owner[0].name, owner[1]), None)
        self._server.pods.remove(key)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self._made += 1
        number = self._made
        self._delayed[number] = do

        def due() -> None:
            if number in self._delayed:
                self._delayed.pop(number)()

        if not self._waits:
            self._timeline.after(seconds, due)

    _HANDLERS: Final[dict[Action | Fault, Callable[[ClusterActors, int, int], bool]]] = {
        Action.CREATE: _create,
        Action.FINISH: _finish,
        Action.DELETE: _delete,
        Action.REAP: _reap,
        Action.RUN: _run,
        Action.LEAVE: _leave,
        Action.CLAIM: _claim,
        Action.CLEAR: _clear,
        Fault.NODE_CORDONED: _cordon,
        Fault.NODE_NOT_READY: _not_ready,
        Fault.NODE_DELETED: _node_gone,
        Fault.NODE_GPUS: _change_device_count,
        Fault.CAPACITY_TAKEN: _take,
        Fault.POD_RECREATED: _recreate,
    }
