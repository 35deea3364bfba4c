"""The webhook's HTTP half: AdmissionReview in, AdmissionReview out. Every request gets a typed answer, never a 500.

`/mutate` injects variables. `/validate` checks the final state with the same core function: what this function would
still patch is missing. The API server asks it only about a pod that is not as `/mutate` left it. `/mutate-dra` and
`/validate-dra` do the same and demand ResourceClaims (`isolation: dra`); the other two leave a pod with claims of ours
in that mode. `/mutate-job` copies the annotations of Kubeflow's jobs into their templates. `/warn` warns of pod
templates whose pods could never be placed; it refuses and changes nothing.
"""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiohttp import web

from gpu_scheduler import names
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import MAX_BYTES, sentence
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import ReadStruct
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import text_of
from gpu_scheduler.process.http_server import CONNECTION
from gpu_scheduler.process.log_budget import LogBudget
from gpu_scheduler.process.request_bodies import BodyBudget, BodyError
from gpu_scheduler.webhook.job_review import cautions, job_key_cautions, review_job
from gpu_scheduler.webhook.kubeflow_jobs import REPLICAS, read_annotations, read_job
from gpu_scheduler.webhook.pod_templates import GROUPS, read_controller
from gpu_scheduler.webhook.review import Admit, Deny, key_cautions, pod_of_text, review_pod
from gpu_scheduler.webhook.template_review import review_template, template_cautions
from gpu_scheduler.webhook.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.webhook.metrics import WebhookMetrics

    Reply = tuple[str, dict[str, object]]
    """The outcome for the metrics, and the response that the API server reads."""


class AdmissionKind(ReadStruct):
    group: str = ""
    kind: str = ""


class AdmissionRequest(ReadStruct):
    uid: str
    kind: AdmissionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    # Raw also accepts null: an absent object is b"", and a null one is b"null".
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class AdmissionReview(ReadStruct):
    request: AdmissionRequest


class _Path(NamedTuple):
    """How one path answers a request, and what becomes of an object that cannot be read."""

    answer: Callable[[AdmissionRequest], Reply]
    unread: Callable[[AdmissionRequest, Deny], Reply]


# The API server takes objects up to 3 MiB, and an update carries two of them.
MAX_BODY = 8 * 1024 * 1024
# Fields of a review that is answered at once, which takes up to 3 ms. A pod has a few hundred.
FEW_FIELDS = 1_000
# Fields of the largest review that is read, which takes 50 ms: nearly 900 containers with what the API server adds to
# each.
MOST_FIELDS = 40_000
# An API server's uid has 36 characters, a name or a namespace at most 253.
LONGEST_UID = 128
LONGEST_NAME = 253
BAD_REQUEST = 400
FORBIDDEN = 403

ALLOWED = "allowed"
PATCHED = "patched"
MALFORMED = "malformed"

# A text with a fault is a bad request (400). A valid request for something that we do not allow is forbidden (403).
_FORBIDDEN = frozenset({Reason.ENV_CONFLICT, Reason.UNSUPPORTED})

_ABSENT = frozenset({b"", b"null"})

log = logging.getLogger(__name__)
log.addFilter(LogBudget())

_reviews = msgspec.json.Decoder(AdmissionReview)
_pods = msgspec.json.Decoder(PodObject)


class Webhook:
    """Answers reviews of pods that name our scheduler, and of Kubeflow's jobs; all others are admitted unchanged."""

    def __init__(self, scheduler_name: str, metrics: WebhookMetrics) -> None:
        """Create the webhook. It keeps no state of pods."""
        self._scheduler_name = scheduler_name
        self._metrics = metrics
        self._bodies = BodyBudget(MAX_BODY)
        self._costly = Throttle()
        self.draining = False

    def app(self) -> web.Application:
        """Return the application with its paths."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/mutate", self._handler(_Path(self._mutate, _deny)))
        app.router.add_post("/mutate-dra", self._handler(_Path(partial(self._mutate, wants_claims=True), _deny)))
        app.router.add_post("/mutate-job", self._handler(_Path(self._mutate_job, _deny)))
        app.router.add_post("/validate", self._handler(_Path(self._validate, _deny)))
        app.router.add_post("/validate-dra", self._handler(_Path(partial(self._validate, wants_claims=True), _deny)))
        app.router.add_post("/warn", self._handler(_Path(self._warn, _caution)))
        return app

    def _handler(self, path: _Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            began = time.monotonic()
            outcome = MALFORMED
            try:
                async with self._bodies.body(request, request[CONNECTION]) as body:
                    outcome, response = await self._answer(path, body)
            except BodyError as error:
                response = web.Response(status=error.status, text=f"cannot read AdmissionReview: {error}")
            except (*UNREADABLE, web.RequestPayloadError) as error:
                response = web.Response(status=BAD_REQUEST, text=f"cannot read AdmissionReview: {error}")
            self._metrics.reviewed(request.path, outcome, time.monotonic() - began)
            if self.draining:
                # The API server then opens its next connection to a replica that is not stopping.
                response.force_close()
            return response

        return handle

    async def _answer(self, path: _Path, body: bytearray) -> tuple[str, web.Response]:
        """Answer a review. A review with many fields waits for its turn, so that no other review waits long for it."""
        # Each field of an object has a colon, and decoding builds nothing from a text without fields.
        fields = body.count(b":")
        if fields <= FEW_FIELDS:
            return _decoded(path, body, fields)
        async with self._costly:
            return _decoded(path, body, fields)

    def _mutate(self, request: AdmissionRequest, *, wants_claims: bool = False) -> Reply:
        pod = self._our_pod(request, wants_claims=wants_claims)
        if pod is None:
            return ALLOWED, {"allowed": True}
        warnings = () if request.sub_resource else key_cautions(pod)
        return _warned(_patched(request, self._review(request, pod)), warnings)

    def _mutate_job(self, request: AdmissionRequest) -> Reply:
        kind, ours = request.kind.kind, self._scheduler_name
        if request.kind.group != names.KUBEFLOW or kind not in REPLICAS or request.sub_resource:
            return ALLOWED, {"allowed": True}
        namespace = request.namespace or ""
        job = read_job(request.object, kind, namespace, ours)
        if job is None:
            return ALLOWED, {"allowed": True}
        outcome, reply = _patched(request, review_job(job, ours))
        of_values = cautions(job, read_annotations(request.old_object), ours) if reply["allowed"] else ()
        return _warned((outcome, reply), (*job_key_cautions(job), *of_values))

    def _validate(self, request: AdmissionRequest, *, wants_claims: bool = False) -> Reply:
        pod = self._our_pod(request, wants_claims=wants_claims)
        verdict = Admit() if pod is None else self._review(request, pod)
        if isinstance(verdict, Admit) and verdict.patches:
            place = "resources and the environment" if wants_claims else "environment"
            missing = ", ".join(operation.path.removeprefix("/spec/") for operation in verdict.patches)
            verdict = Deny(
                Reason.ENV_NOT_INJECTED,
                sentence(
                    Reason.ENV_NOT_INJECTED,
                    f"the placement of this pod is not in the {place} of every container ({missing})",
                    "look for a webhook that removes what MutatingWebhookConfiguration gpu-scheduler-webhook adds",
                ),
            )
        if isinstance(verdict, Deny):
            return _deny(request, verdict)
        return ALLOWED, {"allowed": True}

    def _warn(self, request: AdmissionRequest) -> Reply:
        kind, ours = request.kind.kind, self._scheduler_name
        if GROUPS.get(kind) != request.kind.group or request.sub_resource:
            return ALLOWED, {"allowed": True}
        template = read_controller(request.object, kind, request.namespace or "", ours)
        if template is None:
            return ALLOWED, {"allowed": True}
        found = review_template(template, ours)
        return _caution(request, *found, cautions=template_cautions(template, found))

    def _our_pod(self, request: AdmissionRequest, *, wants_claims: bool) -> Pod | None:
        """Return a pod of ours at its creation or with a new debug container; None for anything else."""
        if request.kind.kind != "Pod":
            return None
        match request.operation, request.sub_resource or "":
            case "CREATE", "":
                pod = _pod(request, request.object, wants_claims=wants_claims)
            case "UPDATE", "ephemeralcontainers":
                # A pod that exists keeps its mode: what its spec carries.
                pod = _pod(request, request.object)
            case _:
                return None
        return pod if pod is not None and pod.scheduler_name == self._scheduler_name else None

    def _review(self, request: AdmissionRequest, pod: Pod) -> Admit | Deny:
        old = _pod(request, request.old_object)
        # Used if the pod needs a new claim whose devices are decided later.
        claim_name = names.CLAIM + token_hex(16)
        return review_pod(pod, request.sub_resource or "", self._scheduler_name, old, claim_name=claim_name)


def _decoded(path: _Path, body: bytearray, fields: int) -> tuple[str, web.Response]:
    """Return the outcome and the response for a review. Raise one of UNREADABLE if `body` is no review."""
    request = _reviews.decode(body).request
    if len(request.uid) > LONGEST_UID:
        raise msgspec.ValidationError(f"its uid has more than {LONGEST_UID} characters")
    if fields > MOST_FIELDS:
        wrong = f"cannot review a {_kind(request)} of {fields} fields: at most {MOST_FIELDS} are read"
        remedy = "split it into several, each with fewer containers and variables"
        outcome, reply = path.unread(request, _invalid(wrong, remedy))
    else:
        outcome, reply = _answered(path, request)
    return outcome, _respond(request.uid, reply)


def _answered(path: _Path, request: AdmissionRequest) -> Reply:
    """Return the path's answer. For an object that cannot be read, its author gets a message."""
    try:
        return path.answer(request)
    except UNREADABLE as error:
        kind = _kind(request)
        remedy = f"write it as the API defines it: kubectl explain {kind} --recursive"
        return path.unread(request, _invalid(f"cannot read the {kind}: {error}", remedy))


def _kind(request: AdmissionRequest) -> str:
    return request.kind.kind[:LONGEST_NAME].lower()


def _name(given: str | None) -> str | None:
    """Cut a name for a log line. A client that makes up its own review may choose any length."""
    return given and given[:LONGEST_NAME]


def _invalid(wrong: str, remedy: str) -> Deny:
    return Deny(Reason.REQUEST_INVALID, sentence(Reason.REQUEST_INVALID, wrong, remedy))


def _patched(request: AdmissionRequest, verdict: Admit | Deny) -> Reply:
    """Return the outcome and the response that the API server reads, for a verdict."""
    if isinstance(verdict, Deny):
        return _deny(request, verdict)
    if verdict.log:
        log.info(verdict.log[:MAX_BYTES], extra={"namespace": _name(request.namespace)})
    if not verdict.patches:
        return ALLOWED, {"allowed": True}
    patch = [{"op": "add", "path": operation.path, "value": operation.value} for operation in verdict.patches]
    return PATCHED, {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": b64encode(msgspec.json.encode(patch)).decode("ascii"),
    }


def _warned(answer: Reply, warnings: tuple[str, ...]) -> Reply:
    """Add warnings to an answer. `kubectl` prints each on a line, also if the object is refused."""
    outcome, response = answer
    return outcome, {**response, "warnings": warnings} if warnings else response


def _pod(request: AdmissionRequest, raw: msgspec.Raw, *, wants_claims: bool | None = None) -> Pod | None:
    """Read the fields of the pod that placement needs; None if the review has no pod."""
    # Only the first bytes: to copy the whole object costs as much as to decode it.
    if bytes(memoryview(raw)[:5]) in _ABSENT:
        return None
    return pod_of_text(text_of(_pods.decode(raw), request.namespace or "", wants_claims=wants_claims))


def _deny(request: AdmissionRequest, verdict: Deny) -> Reply:
    """Refuse. `kubectl` prints the message after the webhook's name; controllers copy it into their own event."""
    _log("Refusing an object", request, verdict)
    return verdict.reason, _refusal(FORBIDDEN if verdict.reason in _FORBIDDEN else BAD_REQUEST, verdict.message)


def _caution(request: AdmissionRequest, *found: Deny, cautions: tuple[str, ...] = ()) -> Reply:
    """Allow, and warn of what is found. The outcome is the first reason."""
    for each in found[:1]:
        _log("Warning of pods that cannot be placed", request, each)
    outcome = found[0].reason if found else ALLOWED
    return _warned((outcome, {"allowed": True}), (*(each.message for each in found), *cautions))


def _log(event: str, request: AdmissionRequest, verdict: Deny) -> None:
    log.info(
        event,
        extra={
            "kind": _name(request.kind.kind),
            "namespace": _name(request.namespace),
            "object": _name(request.name),
            "reason": verdict.reason,
            "error": verdict.message,
        },
    )


def _refusal(code: int, message: str) -> dict[str, object]:
    reason = "Forbidden" if code == FORBIDDEN else "BadRequest"
    return {"allowed": False, "status": {"code": code, "reason": reason, "message": message}}


def _respond(uid: str, response: dict[str, object]) -> web.Response:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, **response},
    }
    return web.Response(body=msgspec.json.encode(review), content_type="application/json")
