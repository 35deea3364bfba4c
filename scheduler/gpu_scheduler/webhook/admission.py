"""The webhook's HTTP half: AdmissionReview in, AdmissionReview out. Whatever comes in gets a typed answer, never a 500.

`/mutate` injects; `/validate` looks at the final state with the same core function: what it would patch is missing.
`/mutate-job` hands the annotations of Kubeflow's jobs to their templates.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from gpu_scheduler import names
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import MAX_BYTES, sentence
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import ReadStruct
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import pod_value
from gpu_scheduler.process.http_server import CONNECTION
from gpu_scheduler.process.log_budget import LogBudget
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.process.request_bodies import BodyBudget, BodyError
from gpu_scheduler.process.turns import Turns
from gpu_scheduler.webhook.job_review import cautions, review_job
from gpu_scheduler.webhook.kubeflow_jobs import REPLICAS, read_annotations, read_job
from gpu_scheduler.webhook.review import Admit, Deny, review_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.webhook.metrics import WebhookMetrics

    _Answer = Callable[["AdmissionRequest"], tuple[str, dict[str, object]]]


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
    # msgspec can't tell Raw from null: an absent object is empty, a null one is the word.
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class AdmissionReview(ReadStruct):
    request: AdmissionRequest


# The API server takes objects up to 3 MiB, and an update carries two of them.
MAX_BODY = 8 * 1024 * 1024
# Fields of a review that is answered at once: up to 3 ms. A pod has some hundreds.
FEW_FIELDS = 1_000
# Fields of a review that is read at all: 50 ms. Nearly 900 containers with what the API server adds to each.
MOST_FIELDS = 40_000
# An API server's uid has 36 characters, a name or a namespace at most 253.
LONGEST_UID = 128
LONGEST_NAME = 253
BAD_REQUEST = 400
FORBIDDEN = 403

EPHEMERAL = "ephemeralcontainers"
ALLOWED = "allowed"
PATCHED = "patched"
MALFORMED = "malformed"

# A text at fault is a bad request; a pod that says clearly what we do not allow is forbidden.
_FORBIDDEN = frozenset({Reason.ENV_CONFLICT, Reason.UNSUPPORTED})

_ABSENT = frozenset({b"", b"null"})

log = LogBudget(get_logger(__name__))

_reviews = msgspec.json.Decoder(AdmissionReview)
_pods = msgspec.json.Decoder(PodObject)


class Webhook:
    """Answers reviews of pods that carry our scheduler's name, and of Kubeflow's jobs; all others pass untouched."""

    def __init__(self, scheduler_name: str, metrics: WebhookMetrics) -> None:
        """It keeps no state of pods."""
        self._scheduler_name = scheduler_name
        self._metrics = metrics
        self._bodies = BodyBudget(MAX_BODY)
        self._costly = Turns()
        self.draining = False

    def app(self) -> web.Application:
        """The three paths."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/mutate", self._handler(self._mutate))
        app.router.add_post("/mutate-job", self._handler(self._mutate_job))
        app.router.add_post("/validate", self._handler(self._validate))
        return app

    def _handler(
        self,
        answer: _Answer,
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            outcome, response = MALFORMED, web.Response()
            try:
                async with self._bodies.body(request, request[CONNECTION]) as body:
                    outcome, response = await self._answer(answer, body)
            except BodyError as error:
                response = web.Response(status=error.status, text=f"cannot read AdmissionReview: {error}")
            except (*UNREADABLE, web.RequestPayloadError) as error:
                response = web.Response(status=BAD_REQUEST, text=f"cannot read AdmissionReview: {error}")
            self._metrics.reviewed(request.path, outcome)
            if self.draining:
                # The API server opens its next connection to a replica that stays.
                response.force_close()
            return response

        return handle

    async def _answer(self, answer: _Answer, body: bytearray) -> tuple[str, web.Response]:
        """Answer a review; one of many fields waits for its turn, so that no other review waits long for it."""
        # A field of an object has a colon, and nothing is built of what has none.
        fields = body.count(b":")
        if fields <= FEW_FIELDS:
            return _decoded(answer, body, fields)
        async with self._costly:
            return _decoded(answer, body, fields)

    def _mutate(self, request: AdmissionRequest) -> tuple[str, dict[str, object]]:
        return _patched(request, self._review(request))

    def _mutate_job(self, request: AdmissionRequest) -> tuple[str, dict[str, object]]:
        kind, ours = request.kind.kind, self._scheduler_name
        if request.kind.group != names.KUBEFLOW or kind not in REPLICAS or request.sub_resource:
            return ALLOWED, {"allowed": True}
        namespace = request.namespace or ""
        job = read_job(request.object, kind, namespace, ours)
        if job is None:
            return ALLOWED, {"allowed": True}
        outcome, said = _patched(request, review_job(job, ours))
        warnings = cautions(job, read_annotations(request.old_object), ours) if said["allowed"] else ()
        return outcome, {**said, "warnings": warnings} if warnings else said

    def _validate(self, request: AdmissionRequest) -> tuple[str, dict[str, object]]:
        verdict = self._review(request)
        if isinstance(verdict, Admit) and verdict.patches:
            missing = ", ".join(operation.path.removeprefix("/spec/") for operation in verdict.patches)
            verdict = Deny(
                Reason.ENV_NOT_INJECTED,
                sentence(
                    Reason.ENV_NOT_INJECTED,
                    f"the placement of this pod is not in the environment of every container ({missing})",
                    "look for a webhook that removes what MutatingWebhookConfiguration gpu-scheduler-webhook adds",
                ),
            )
        if isinstance(verdict, Deny):
            return _deny(request, verdict)
        return ALLOWED, {"allowed": True}

    def _review(self, request: AdmissionRequest) -> Admit | Deny:
        """Ask core about a pod under creation or a debug container under way; anything else is not our business."""
        subresource = request.sub_resource or ""
        ours = (request.operation, subresource) in {("CREATE", ""), ("UPDATE", EPHEMERAL)}
        pod = _pod(request, request.object) if request.kind.kind == "Pod" and ours else None
        if pod is None or pod.scheduler_name != self._scheduler_name:
            return Admit()
        return review_pod(pod, subresource, self._scheduler_name, _pod(request, request.old_object))


def _decoded(answer: _Answer, body: bytearray, fields: int) -> tuple[str, web.Response]:
    """The outcome and the answer for a review; UNREADABLE when it is none."""
    request = _reviews.decode(body).request
    if len(request.uid) > LONGEST_UID:
        raise msgspec.ValidationError(f"its uid has more than {LONGEST_UID} characters")
    if fields > MOST_FIELDS:
        wrong = f"cannot review a {_kind(request)} of {fields} fields: at most {MOST_FIELDS} are read"
        outcome, said = _invalid(request, wrong, "split it into several, each with fewer containers and variables")
    else:
        outcome, said = _answered(answer, request)
    return outcome, _respond(request.uid, said)


def _answered(answer: _Answer, request: AdmissionRequest) -> tuple[str, dict[str, object]]:
    """What `answer` says; a pod or job that cannot be read is refused in its author's terms."""
    try:
        return answer(request)
    except UNREADABLE as error:
        kind = _kind(request)
        remedy = f"write it as the API defines it: kubectl explain {kind} --recursive"
        return _invalid(request, f"cannot read the {kind}: {error}", remedy)


def _kind(request: AdmissionRequest) -> str:
    return request.kind.kind[:LONGEST_NAME].lower()


def _name(given: str | None) -> str | None:
    """For a log line: whoever sends a review of his own making chooses its length."""
    return given and given[:LONGEST_NAME]


def _invalid(request: AdmissionRequest, wrong: str, remedy: str) -> tuple[str, dict[str, object]]:
    return _deny(request, Deny(Reason.REQUEST_INVALID, sentence(Reason.REQUEST_INVALID, wrong, remedy)))


def _patched(request: AdmissionRequest, verdict: Admit | Deny) -> tuple[str, dict[str, object]]:
    """The verdict as the API server reads it."""
    if isinstance(verdict, Deny):
        return _deny(request, verdict)
    if verdict.log:
        log.info(verdict.log[:MAX_BYTES], namespace=_name(request.namespace))
    if not verdict.patches:
        return ALLOWED, {"allowed": True}
    patch = [{"op": "add", "path": operation.path, "value": operation.value} for operation in verdict.patches]
    return PATCHED, {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": b64encode(msgspec.json.encode(patch)).decode("ascii"),
    }


def _pod(request: AdmissionRequest, raw: msgspec.Raw) -> Pod | None:
    """Read the pod as placement sees it; None when the review carries none."""
    # A look at its beginning: a copy of all costs as much as decoding it.
    if bytes(memoryview(raw)[:5]) in _ABSENT:
        return None
    return pod_value(_pods.decode(raw), request.namespace or "")


def _deny(request: AdmissionRequest, verdict: Deny) -> tuple[str, dict[str, object]]:
    """`kubectl` prints the message after the webhook's name; controllers put it into their own event."""
    log.info(
        "Refusing an object",
        kind=_name(request.kind.kind),
        namespace=_name(request.namespace),
        name=_name(request.name),
        reason=verdict.reason,
        message=verdict.message,
    )
    return verdict.reason, _refusal(FORBIDDEN if verdict.reason in _FORBIDDEN else BAD_REQUEST, verdict.message)


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
