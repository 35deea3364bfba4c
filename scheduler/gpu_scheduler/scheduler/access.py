"""The rights that the scheduler needs, and what it does without each: the API server is asked once, at the start.

It is asked only for a scheduler with a kubeconfig. In the cluster the installation grants all rights: asking would
delay each start, and readiness shows a right that is missing.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from contextlib import suppress
from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.http.client import NoResponseError, status_message
from gpu_scheduler.kube.lists import NOT_FOUND
from gpu_scheduler.kube.objects.agentaflow import API, GROUP
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.process.lifecycle import UsageError

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import RunSettings

NODES_INTERVAL: Final = 10.0
"""Seconds between two lists of the nodes, if they may not be watched. A kubelet reports its node's status as often."""
ASK_TIMEOUT: Final = 3.0
"""Seconds for all questions together. A stop may take 5, and it waits for them."""
AT_ONCE: Final = 8
"""Rights that are asked for at once: each needs a connection."""

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES: Final = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_NO_NAMESPACE: Final = "-"
"""No namespace can have this name, so only the rules that hold in all of them are listed for it."""
_ACCOUNT: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    """A SelfSubjectAccessReview with its answer."""

    status: _Answer


class _User(msgspec.Struct):
    username: str


class _UserStatus(msgspec.Struct, rename="camel"):
    user_info: _User


class _UserReview(msgspec.Struct):
    """A SelfSubjectReview with its answer."""

    status: _UserStatus


class _Rule(msgspec.Struct, rename="camel"):
    """A rule that allows each of its verbs on each of its resources; `*` stands for all."""

    verbs: list[str]
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []

    def allows(self, verb: str, right: Right) -> bool:
        """Return whether the rule allows to `verb` what the right is about."""
        asked = ((self.verbs, verb), (self.api_groups, right.group), (self.resources, right.resource))
        named = not self.resource_names or right.name in self.resource_names
        return named and all("*" in given or wanted in given for given, wanted in asked)


class _Rules(msgspec.Struct, rename="camel"):
    resource_rules: list[_Rule]


class _RulesReview(msgspec.Struct):
    """A SelfSubjectRulesReview with its answer."""

    status: _Rules


_rules_reviews = msgspec.json.Decoder(_RulesReview | None)
_reviews = msgspec.json.Decoder(_Review | None)
_accounts = msgspec.json.Decoder(_UserReview | None)


class Use(StrEnum):
    """What a right is needed for. A watch and the right that it needs have one name."""

    PODS = "pods"
    BINDINGS = "bindings"
    NODES = "nodes"
    LEASE = "lease"
    NEW_LEASE = "new-lease"
    LIMITS = "limits"
    MONITORS = "monitors"
    NODE_CHANGES = "node-changes"
    LOST_ANSWERS = "lost-answers"
    CONDITIONS = "conditions"
    EVENTS = "events"
    CLAIMS = "claims"
    VOLUMES = "volumes"
    CLASSES = "classes"
    CORDONS = "gpunodes"
    CONFIRMATIONS = "confirmations"
    SELECTED_NODES = "selected-nodes"
    SETTINGS = "settings"
    DEVICE_SLICES = "resourceslices"
    DEVICE_CLASSES = "deviceclasses"
    DEVICE_CLAIMS = "resourceclaims"
    CLAIM_WRITES = "resourceclaims-writes"
    CLAIM_STATUSES = "resourceclaims-status"
    CLAIM_ALLOCATIONS = "resourceclaims-binding"


class Missing(Enum):
    """What the scheduler does if a right is missing at its start."""

    REFUSE = auto()
    """It does not start."""
    RETRY = auto()
    """It tries again and again, and continues when the right is granted."""
    LEAVE_OUT = auto()
    """It runs without what the right is needed for, and sends no request that needs it."""


@immutable
class Right:
    """Verbs on a resource. `str()` gives `list, watch configmaps "limits" in namespace gpu-scheduler-system`."""

    use: Use
    verbs: tuple[str, ...]
    resource: str
    needed_to: str
    without_it: str
    missing: Missing = Missing.LEAVE_OUT
    group: str = ""
    namespace: str = ""
    """Empty if the resource has no namespace, or if the right must hold in all of them."""
    name: str = ""
    """The one object that the right is about; empty for all."""

    def __str__(self) -> str:
        """Return verbs, resource, object and namespace."""
        name = f" {quote(self.name)}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{', '.join(self.verbs)} {self._resource}{name}{where}"

    def grant(self, account: str) -> str:
        """Return the commands by which an administrator grants the right to `account`."""
        kind, where = ("role", f" -n {self.namespace}") if self.namespace else ("clusterrole", "")
        role = f"{names.SCHEDULER_NAME}-{self.use}"
        only = f" --resource-name={self.name}" if self.name else ""
        return (
            f"kubectl create {kind} {role}{where} --verb={','.join(self.verbs)} --resource={self._resource}{only} && "
            f"kubectl create {kind}binding {role}{where} --{kind}={role} --user={shlex.quote(account)}"
        )

    @property
    def _resource(self) -> str:
        """The resource as kubectl reads it: with its group, then its subresource."""
        resource, slash, subresource = self.resource.partition("/")
        return f"{resource}.{self.group}{slash}{subresource}" if self.group else self.resource

    def review(self, verb: str) -> dict[str, object]:
        """Return the question whether this process has the right to `verb`."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": verb,
                    "group": self.group,
                    "resource": resource,
                    "subresource": subresource,
                    "namespace": self.namespace,
                    "name": self.name,
                }
            },
        }


_ELECTION: Final = frozenset({Use.LEASE, Use.NEW_LEASE})
Denied = dict[Use, Right]
"""The rights that are missing, each with only the verbs that are missing."""


def needed_rights(settings: RunSettings, *, leader_elect: bool) -> tuple[Right, ...]:
    """Return all rights that the scheduler uses with these settings."""
    storage, ours = "storage.k8s.io", settings.kubernetes_namespace
    follow = ("list", "watch")
    no_placement = "no pod can be placed"
    no_claims = "pods with PersistentVolumeClaims wait with VolumeNotBound"
    unlimited = "nothing is decided" if leader_elect else "no namespace has a limit"
    return (
        Right(Use.PODS, follow, "pods", "see which pods wait and who holds which GPU", no_placement, Missing.REFUSE),
        Right(Use.BINDINGS, ("create",), "pods/binding", "place pods", no_placement, Missing.REFUSE),
        Right(Use.NODES, ("list",), "nodes", "see which nodes there are", no_placement, Missing.REFUSE),
        *(_lease_rights(ours) if leader_elect else ()),
        Right(
            *(Use.LIMITS, follow, "configmaps", "read the limits of namespaces", unlimited),
            missing=Missing.RETRY if leader_elect else Missing.LEAVE_OUT,
            namespace=ours,
            name=names.LIMITS,
        ),
        Right(
            *(Use.MONITORS, follow, "leases", "see whether the monitors run"),
            "no strategy uses a node whose GPUs a monitor has read, because the reading may be old",
            Missing.RETRY,
            "coordination.k8s.io",
            settings.monitor_namespace,
        ),
        Right(
            *(Use.NODE_CHANGES, ("watch",), "nodes", "see a change of a node at once"),
            f"nodes are listed every {NODES_INTERVAL:g} s",
        ),
        Right(
            *(Use.LOST_ANSWERS, ("get",), "pods", "see whether a pod was bound if the answer was lost or unclear"),
            "its GPUs stay held until the watch of pods shows it",
        ),
        Right(
            *(Use.CONDITIONS, ("patch",), "pods/status", "write on a pod why it waits"),
            "pods get no condition PodScheduled=False, and only the log says why they wait",
        ),
        Right(
            *(Use.EVENTS, ("create",), "events", "write events of pods"),
            "pods get no events Scheduled and FailedScheduling",
            group="events.k8s.io",
        ),
        Right(Use.CLAIMS, follow, "persistentvolumeclaims", "read the claims of pods", no_claims),
        Right(Use.VOLUMES, follow, "persistentvolumes", "see which nodes reach a volume", no_claims),
        Right(Use.CLASSES, follow, "storageclasses", "see how a volume is made", no_claims, group=storage),
        Right(
            *(Use.CORDONS, follow, "gpunodes", "see which GPUs are cordoned", "a cordoned GPU is given like any other"),
            group=GROUP,
        ),
        Right(
            *(Use.CONFIRMATIONS, ("patch",), "gpunodes/status", "confirm that no bind to a cordoned GPU can come"),
            "`gpu-scheduler cordon` waits for the confirmation in vain",
            group=GROUP,
        ),
        Right(
            *(Use.SELECTED_NODES, ("patch",), "persistentvolumeclaims", "say on which node a volume is to be made"),
            "pods wait with VolumeNotBound if a claim of theirs waits for its first consumer",
        ),
        Right(
            *(Use.SETTINGS, follow, "configmaps", "follow the strategy while the scheduler runs"),
            f"the strategy is SCHEDULING_STRATEGY, {settings.scheduling_strategy}",
            namespace=ours,
            name=names.SETTINGS,
        ),
        *(_claim_rights() if settings.isolation == "dra" else ()),
    )


def _claim_rights() -> tuple[Right, ...]:
    """Return the rights that isolation `dra` needs."""
    claims, follow, nothing = "resourceclaims", ("list", "watch"), "nothing is decided"
    unallocated = "pods with ResourceClaims wait with BindFailed"
    rights = (
        (Use.DEVICE_SLICES, follow, "resourceslices", "see the GPUs that drivers publish", nothing),
        (Use.DEVICE_CLASSES, follow, "deviceclasses", "see what drivers are told of their devices", nothing),
        (Use.DEVICE_CLAIMS, follow, claims, "see which claims hold GPUs", nothing),
        (Use.CLAIM_WRITES, ("get", "create", "patch"), claims, "make the claims of pods", unallocated),
        (Use.CLAIM_STATUSES, ("patch",), f"{claims}/status", "allocate claims", unallocated),
        (Use.CLAIM_ALLOCATIONS, ("patch",), f"{claims}/binding", "allocate claims from Kubernetes 1.36", unallocated),
    )
    return tuple(
        Right(use, verbs, resource, needed_to, without_it, Missing.RETRY, "resource.k8s.io")
        for use, verbs, resource, needed_to, without_it in rights
    )


def _lease_rights(namespace: str) -> tuple[Right, ...]:
    """Return the rights of leader election. No object can be named in a right to create."""
    purpose, without = "elect a leader", "two replicas could give one GPU twice"
    lease = Right(
        *(Use.LEASE, ("get", "update"), "leases", purpose, without, Missing.REFUSE),
        group="coordination.k8s.io",
        namespace=namespace,
        name=names.LEASE,
    )
    return lease, replace(lease, use=Use.NEW_LEASE, verbs=("create",), name="")


async def find_denied(api: ApiClient, settings: RunSettings, *, leader_elect: bool) -> Denied:
    """Ask the API server, and log a line for each right that is missing.

    UsageError if the scheduler must not start without one. A right counts as missing only if the API server says so:
    without an answer, the requests that need it will show it.
    """
    denied = await _ask(api, needed_rights(settings, leader_elect=leader_elect))
    if not denied:
        return denied
    account, kinds = await _read_account(api), await _has_our_kinds(api)
    for right in denied.values():
        if right.group == GROUP and not kinds:
            # There is nothing to read, and kubectl could not grant it.
            continue
        log.warning(
            "This scheduler may not %s, which is needed to %s: without it %s",
            right,
            right.needed_to,
            right.without_it,
            extra={"grant": right.grant(account)},
        )
    required = [right for right in denied.values() if right.missing is Missing.REFUSE]
    if required:
        raise UsageError(_refusal(required, account, settings.scheduler_name))
    return denied


def _refusal(required: list[Right], account: str, scheduler: str) -> str:
    """Return the sentence with which the scheduler does not start."""
    uses = {right.use for right in required}
    rights, remedy, example = "; ".join(map(str, required)), "grant each right", required[0].grant(account)
    if uses & _ELECTION:
        rights += ", and without a Lease two replicas could give one GPU twice"
        remedy += f", or add --leader-elect=false if no other scheduler of {quote(scheduler)} runs"
    if uses <= _ELECTION:
        example = f"{names.SCHEDULER_NAME} run --kubeconfig FILE --leader-elect=false"
    return f"cannot schedule as {quote(account)}: it may not {rights}; {remedy} (example: {example})"


async def _ask(api: ApiClient, rights: tuple[Right, ...]) -> Denied:
    """Return the rights that are missing, in the order of `rights`."""
    missing: dict[Use, tuple[str, ...]] = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(right: Right, rules: asyncio.Task[list[_Rule]]) -> None:
        listed = await rules
        unlisted = [verb for verb in right.verbs if not any(rule.allows(verb, right) for rule in listed)]
        async with slots:
            missing[right.use] = tuple([verb for verb in unlisted if not await _may(api, right.review(verb))])

    try:
        async with asyncio.timeout(ASK_TIMEOUT), asyncio.TaskGroup() as questions:
            namespaces = dict.fromkeys(right.namespace for right in rights)
            rules = {each: questions.create_task(_list_rules(api, each)) for each in namespaces}
            for right in rights:
                questions.create_task(ask(right, rules[right.namespace]))
    except* (TimeoutError, NoResponseError) as errors:
        why = str(errors.exceptions[0]) or f"no answer in {ASK_TIMEOUT:g} s"
        log.warning("Cannot ask for all rights: going on as if the rest were there", extra={"error": why})
    return {right.use: replace(right, verbs=verbs) for right in rights if (verbs := missing.get(right.use))}


async def _list_rules(api: ApiClient, namespace: str) -> list[_Rule]:
    """Return rules that hold in the namespace, or in all if it is empty. The list may be incomplete, or empty."""
    spec = {"namespace": namespace or _NO_NAMESPACE}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": spec}
    answer = await api.call("POST", _RULES, body=msgspec.json.encode(review))
    read: _RulesReview | None = decode_part(_rules_reviews, bytes(answer.body)) if answer.ok else None
    return [] if read is None else read.status.resource_rules


async def _may(api: ApiClient, review: dict[str, object]) -> bool:
    """Return the API server's answer; NoResponseError if it gives none."""
    answer = await api.call("POST", _REVIEWS, body=msgspec.json.encode(review))
    if not answer.ok:
        raise NoResponseError(f"HTTP {answer.status}: {status_message(answer)}")
    read: _Review | None = decode_part(_reviews, bytes(answer.body))
    if read is None:
        raise NoResponseError("the answer is no SelfSubjectAccessReview")
    return read.status.allowed


async def _has_our_kinds(api: ApiClient) -> bool:
    """Return whether the API server has kinds of ours. Everybody may ask. Without an answer it may have them."""
    with suppress(NoResponseError):
        return (await api.call("GET", API)).status != NOT_FOUND
    return True


async def _read_account(api: ApiClient) -> str:
    """Return the name of the user or service account as which the API server knows this process."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with suppress(NoResponseError):
        answer = await api.call("POST", _ACCOUNT, body=msgspec.json.encode(review))
        read: _UserReview | None = decode_part(_accounts, bytes(answer.body)) if answer.ok else None
        if read is not None:
            return read.status.user_info.username
    return "USER"
