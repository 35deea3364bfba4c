"""Decides on pods that do not exist yet, one after the other, in a dry run of the scheduling loop.

LAW: pure. The decision is the scheduler's own, and a pod that is placed holds its devices for those after it. A volume
that a storage class provisions is taken as made.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.cli.manifests.admission import admitted
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.cli.planning.existing import ExistingPods, Maker, asks_the_same, maker_of
from gpu_scheduler.cli.views import devices_of
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.volumes import Volume
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import number_of
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.storage import read_claim
from gpu_scheduler.scheduler.ports import InputKind
from gpu_scheduler.webhook.review import Deny

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.cli.live_cluster import Input
    from gpu_scheduler.cli.manifests.controllers import ExpectedPod, Object
    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.filters.volumes import StorageClass, VolumeClaim
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.reasons import Reason
    from gpu_scheduler.scheduler.dry_run import DryRun


class Outcome(StrEnum):
    """What would become of a pod."""

    FITS = "fits"
    EXISTS = "exists"
    WAITS = "waits"
    REFUSED = "refused"
    """Its own text is at fault: admission refuses it, or the scheduler."""
    LOST = "lost"
    """It is evicted, and no controller makes it anew."""
    REMOVED = "removed"
    """Its controller removes it, because it has fewer replicas."""


class Cause(StrEnum):
    """Why a pod is part of the plan."""

    WAITING = "waiting"
    """It waits in the cluster as it is."""
    EVICTED = "evicted"
    """It is evicted, or takes the place of a pod that is."""
    NEW = "new"
    """A manifest, or a number of replicas, asks for it."""


@immutable
class PlannedPod:
    """One pod of the plan."""

    namespace: str
    name: str
    maker: Maker
    cause: Cause
    outcome: Outcome
    message: str
    node: str = ""
    devices: tuple[str, ...] = ()
    index: int | None = None
    reason: Reason | None = None
    volumes: tuple[str, ...] = ()
    """Its claims whose volumes are taken as made."""
    replaces: Pod | None = None
    """The evicted pod in whose place it is made."""
    observer: bool = False
    """Whether it sees `devices` and holds none."""


@immutable
class AdmittedPod:
    """A pod of an object, after admission."""

    maker: Maker
    expected: ExpectedPod
    pod: Pod | Deny
    known: Pod | None
    """The pod that exists already, so that no other is made."""


_KEPT: Final = "it exists already and stays as it is"
_OLDER: Final = "it exists already, and keeps what it asked for until its controller makes it anew"
_GATED: Final = "it waits until its scheduling gates are removed, and is decided then"


class Planner:
    """A dry run, and the pods that were decided in it."""

    def __init__(self, dry_run: DryRun, inputs: Iterable[Input], now: str, default_class: str = "") -> None:
        """`inputs` are those of the dry run. `now` (RFC 3339) is when the planned pods are created.

        `default_class` is the storage class of new claims that name none.
        """
        self.pods: list[PlannedPod] = []
        """The pods that were asked about, in the order of their decisions."""
        self.waiting: dict[str, PlannedPod] = {}
        """The pods that wait already, by uid."""
        self._dry_run = dry_run
        self._scheduler_name = dry_run.cluster.policy.scheduler_name
        self._now = now
        self._default_class = default_class
        self._uids = map("planned-{}".format, count())
        self._existing = ExistingPods(dry_run.pods)
        self._claims: dict[str, VolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        for kind, value in inputs:
            if kind is InputKind.CLAIM:
                self._claims[str(value)] = value
            elif kind is InputKind.STORAGE_CLASS:
                self._classes[value.name] = value
        self._made: set[str] = set()

    def decide_waiting(self) -> None:
        """Decide on the pods that wait already, in the order of the scheduling queue."""
        for pod in self._dry_run.pending():
            self.waiting[pod.ref.uid] = self._decided(pod, Cause.WAITING)

    def add_storage(self, kind: InputKind, value: Any) -> None:
        """Add a storage class or a volume of a manifest."""
        if kind is InputKind.STORAGE_CLASS:
            self._classes[value.name] = value
        self._dry_run.apply(kind, value)

    def add_claim(self, body: Object) -> None:
        """Add a claim, unless it exists. RefusedInputError if it is no claim.

        Kubernetes binds it to the volume that it names, or has one made if its class does not wait for a pod.
        """
        try:
            spec = body.get("spec") or {}
            if spec.get("storageClassName") is None and self._default_class:
                body = {**body, "spec": {**spec, "storageClassName": self._default_class}}
            key, claim = read_claim(msgspec.json.encode(body))
        except (AttributeError, *UNREADABLE) as error:
            name = body["metadata"].get("name")
            raise RefusedInputError(f"cannot read claim {name}: {error}; see kubectl explain pvc.spec") from error
        if key in self._claims:
            return
        self._apply_claim(replace(claim, complete=True))
        storage_class = self._classes.get(claim.storage_class or "")
        if claim.volume is None and storage_class is not None and not storage_class.waits_for_consumer:
            self._provision(claim)

    def add_claims_of(self, expected: ExpectedPod) -> None:
        """Add the claims of both kinds that are made with a pod."""
        for claim in expected.claims:
            self.add_claim(claim)
        for claim in expected.gpu_claims:
            self.add_gpu_claim(claim)

    def add_gpu_claim(self, body: Object) -> None:
        """Add a ResourceClaim of a user, unless one of its name is there. The wait of its pods says what is wrong."""
        _, claim = read_allocated_claim(msgspec.json.encode(body))
        if self._dry_run.cluster.claims.find(claim.namespace, claim.name) is None:
            self._dry_run.apply(InputKind.DEVICE_CLAIM, claim)

    def admit(self, maker: Maker, expected: Iterable[ExpectedPod], *, removes: bool) -> list[AdmittedPod]:
        """Return the pods of one object, except those of other schedulers.

        From then on pods that have ended, and that it makes anew under the same name, are gone. If `removes`, so are
        the pods that its controller no longer expects.
        """
        admissions = [(each, admitted(each, next(self._uids), self._now, self._scheduler_name)) for each in expected]
        ours = [(each, pod) for each, pod in admissions if isinstance(pod, Deny) or self._is_ours(pod)]
        found = [
            AdmittedPod(maker, each, pod, None if isinstance(pod, Deny) else self._existing.take(pod))
            for each, pod in ours
        ]
        for each in found:
            ended = None if isinstance(each.pod, Deny) else self._existing.ended(each.pod)
            if ended is not None:
                self._dry_run.evict(ended)
        # Pods of a text that admission refuses are never made, so nobody knows which of the older ones they replace.
        if removes and not any(isinstance(each.pod, Deny) for each in found):
            for extra in self._existing.surplus(maker):
                self._remove(extra, f"{maker[1]}/{maker[2]} removes it: it has {number_of(len(found), 'replica')} then")
        return found

    def add(self, asked: AdmittedPod) -> None:
        """Decide on a pod of an object, unless it exists."""
        if asked.known is not None and not isinstance(asked.pod, Deny):
            self.pods.append(self._kept(asked.known, asked.pod))
        else:
            self.pods.append(self._new(asked.expected, asked.pod, asked.maker, Cause.NEW))

    def add_returning(self, evicted: Pod, expected: ExpectedPod | None, why_not: str) -> None:
        """Decide on the pod that takes the place of an evicted one. Without it, `why_not` says why there is none."""
        if expected is None:
            maker, ref = maker_of(evicted), evicted.ref
            lost = PlannedPod(ref.namespace, ref.name, maker, Cause.EVICTED, Outcome.LOST, why_not, replaces=evicted)
            self.pods.append(lost)
            return
        pod = admitted(expected, next(self._uids), self._now, self._scheduler_name)
        planned = self._new(expected, pod, maker_of(evicted), Cause.EVICTED)
        self.pods.append(replace(planned, replaces=evicted))

    def decide(self, uid: str) -> Decision | None:
        """Decide on a pod that was applied. A claim of its own is then allocated for it alone."""
        decision = self._dry_run.decide(uid)
        for claim in decision.claims if isinstance(decision, Bind) else ():
            if claim.of_user is not None:
                allocated = replace(claim.of_user, devices=claim.devices, pods=(uid,), awaits_others=False)
                self._dry_run.apply(InputKind.DEVICE_CLAIM, allocated)
        return decision

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._scheduler_name

    def _remove(self, pod: Pod, why: str) -> None:
        self._dry_run.evict(pod)
        ref = pod.ref
        self.pods.append(PlannedPod(ref.namespace, ref.name, maker_of(pod), Cause.NEW, Outcome.REMOVED, why))

    def _kept(self, known: Pod, expected: Pod) -> PlannedPod:
        """Return what becomes of a pod that exists: it stays where it is, or waits."""
        waiting = self.waiting.pop(known.ref.uid, None)
        if waiting is not None:
            return replace(waiting, cause=Cause.NEW)
        line, ref = known.request.line, known.ref
        return PlannedPod(
            ref.namespace,
            ref.name,
            maker_of(known),
            Cause.NEW,
            Outcome.EXISTS if known.bound else Outcome.WAITS,
            (_KEPT if asks_the_same(known, expected) else _OLDER) if known.bound else _GATED,
            known.node or "",
            devices_of(known),
            None if line is None else line.index,
            observer=known.request.observer,
        )

    def _new(self, expected: ExpectedPod, pod: Pod | Deny, maker: Maker, cause: Cause) -> PlannedPod:
        namespace = expected.body["metadata"]["namespace"]
        if isinstance(pod, Deny):
            refused = Outcome.REFUSED
            return PlannedPod(namespace, expected.shown, maker, cause, refused, pod.message, reason=pod.reason)
        self.add_claims_of(expected)
        # Messages about a pod whose name is generated show the name that the plan gives it.
        pod = replace(pod, ref=PodRef(namespace, expected.shown, pod.ref.uid))
        self._dry_run.apply(InputKind.POD, pod)
        return self._decided(pod, cause)

    def _decided(self, pod: Pod, cause: Cause) -> PlannedPod:
        """Decide on a pod of the dry run, and on its volumes where its node must be known first."""
        decision = self.decide(pod.ref.uid)
        while isinstance(decision, Wait) and decision.selection is not None and self._provision_all(pod):
            decision = self.decide(pod.ref.uid)
        maker, ref = maker_of(pod), pod.ref
        volumes = tuple(name for name in pod.claims if f"{ref.namespace}/{name}" in self._made)
        if isinstance(decision, Bind):
            place, fits = decision.placement, Outcome.FITS
            return PlannedPod(
                *(ref.namespace, ref.name, maker, cause, fits, decision.message),
                *(place.node, place.devices, place.index),
                volumes=volumes,
                observer=pod.request.observer,
            )
        return PlannedPod(
            *(ref.namespace, ref.name, maker, cause, _outcome(decision)),
            _GATED if decision is None else decision.message,
            reason=None if decision is None else decision.reason,
            volumes=volumes,
        )

    def _provision_all(self, pod: Pod) -> bool:
        """Make the volumes for which the pod waits. Return whether one was missing."""
        claims = (self._claims.get(f"{pod.ref.namespace}/{name}") for name in pod.claims)
        missing = [claim for claim in claims if claim is not None and claim.volume is None]
        made = [claim for claim in missing if self._provision(claim)]
        return bool(made)

    def _provision(self, claim: VolumeClaim) -> bool:
        """Bind the claim to a new volume that every node can reach, if its class provisions volumes."""
        storage_class = self._classes.get(claim.storage_class or "")
        if storage_class is None or not storage_class.provisions:
            return False
        volume = f"planned-{claim.namespace}-{claim.name}"
        self._dry_run.apply(InputKind.VOLUME, Volume(volume))
        self._apply_claim(replace(claim, volume=volume, complete=True))
        self._made.add(str(claim))
        return True

    def _apply_claim(self, claim: VolumeClaim) -> None:
        self._claims[str(claim)] = claim
        self._dry_run.apply(InputKind.CLAIM, claim)


def _outcome(decision: Decision | None) -> Outcome:
    return Outcome.REFUSED if isinstance(decision, Refuse) else Outcome.WAITS
