"""Which ResourceClaims a pod must carry, and why a pod cannot have any (`isolation: dra`).

LAW: a pod's mode is what its spec carries: with claims, the kubelet gives its containers the devices of its line and no
other. Under admission, the namespace or the cluster may demand claims for a pod that has none yet. Webhook and
scheduler read both with these functions.
"""

from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.claim_sets import (
    MAX_CLAIM_DEVICES,
    MAX_CLAIM_PODS,
    ClaimSet,
    claim_sets,
    devices_of_map,
    most_pods,
)
from gpu_scheduler.core.pods.container_env import Container
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot, device_kind
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Fault, Reason
from gpu_scheduler.core.text import quote

_LEAVE_OUT: Final = made_anew("leave it out")
_WHOLE_GPUS: Final = made_anew('name whole GPUs (example: "0=node1:0,1")')
_OWN_INDEX: Final = made_anew(f'give each pod its index (example: {names.INDEX}: "0") or name each GPU on one line')
_FEWER_GPUS: Final = made_anew(f"ask for at most {MAX_CLAIM_DEVICES} GPUs")


def claims_of_line(pod: PodText, placement_map: PlacementMap, slot: Slot | None) -> tuple[ClaimSet, ...] | Fault:
    """Return the claims of a pod that asks for the line `slot`, or for any line if it is None."""
    if slot is None:
        fault = _misfit(pod) or _any_line_fault(placement_map)
        return fault or _random_claim(pod)
    if not slot.devices:
        return _carried(pod, ())
    fault = _misfit(pod) or _line_fault(placement_map, slot)
    if fault is not None:
        return fault
    owner_uid = "" if pod.owner is None else pod.owner.uid
    return _carried(pod, claim_sets(placement_map, slot, pod.namespace, owner_uid))


def claims_of_count(pod: PodText, request: CountRequest) -> tuple[ClaimSet, ...] | Fault:
    """Return the claims of a pod that asks for a count."""
    fault = _misfit(pod) or _shared(request)
    if fault is not None:
        return fault
    if request.count > MAX_CLAIM_DEVICES:
        return _too_many(request.count)
    return _random_claim(pod)


def own_claim_fault(pod: PodText, claim: OwnClaim, request: CountRequest) -> Fault | None:
    """Check a pod with a ResourceClaim of its own: the claim alone says how many GPUs it gets, and which."""
    for key in (names.MAP, names.COUNT):
        if key in pod.annotations:
            what = f"cannot place a pod by spec.resourceClaims and annotation {key}: either says which GPUs it gets"
            return Fault(Reason.UNSUPPORTED, what, made_anew("leave one of the two out"))
    fault = _misfit(pod) or _shared(request)
    if fault is not None:
        return fault
    used = [entry for each in pod.environment.containers for entry in used_entries(each)]
    part = next((entry for entry in used if entry.startswith(f"{claim.entry}/")), None)
    if part is not None:
        what = f"cannot read resources.claims of a container: {quote(part)} is a request of its ResourceClaim"
        remedy = f"leave the request out (example: claims: [{{name: {claim.entry}}}])"
        return Fault(
            Reason.UNSUPPORTED, f"{what}, and this scheduler gives a container all of a claim", made_anew(remedy)
        )
    if claim.entry in used:
        return None
    what = f"cannot give GPUs to a pod of which no container uses its ResourceClaim {quote(claim.entry)}"
    remedy = f"use it in a container (example: resources: {{claims: [{{name: {claim.entry}}}]}})"
    return Fault(Reason.REQUEST_INVALID, what, made_anew(remedy))


def used_entries(container: Container) -> tuple[str, ...]:
    """Return the entries of its pod's spec that the container uses."""
    return () if container.claims is None else container.claims.used or ()


def _shared(request: CountRequest) -> Fault | None:
    """Check that the pod does not share the GPUs that a strategy chooses."""
    if request.exclusive:
        return None
    return _unsupported(f'annotation {names.EXCLUSIVE}: "false"', "a claim gives a pod whole GPUs", _LEAVE_OUT)


def _misfit(pod: PodText) -> Fault | None:
    """Check that the pod asks for nothing that claims cannot give."""
    given = pod.annotations
    if given.get(names.OBSERVER) == "true":
        return _unsupported(f"annotation {names.OBSERVER}", "a pod with a claim holds its devices", _LEAVE_OUT)
    if pod.keep_env:
        rule = f"{names.VISIBLE_DEVICES} must name the devices of the claims, which only the scheduler knows"
        return _unsupported(f"annotation {names.KEEP_ENV}", rule, _LEAVE_OUT)
    if names.SHARING in given:
        return _unsupported(f"annotation {names.SHARING}", "only pods of one map share a claim", _LEAVE_OUT)
    if pod.gpu_limits:
        container, limit = pod.gpu_limits[0]
        field = f"limit {names.GPU_RESOURCE}: {limit} of container {quote(container)}"
        return _unsupported(field, "for a limit, a device plugin chooses other devices", _LEAVE_OUT)
    return None


def _line_fault(placement_map: PlacementMap, slot: Slot) -> Fault | None:
    """Check that claims can give the devices of the pod's line."""
    if device_kind(slot.devices[0]) == "MIG":
        return _mig(slot.devices[0])
    if len(slot.devices) > MAX_CLAIM_DEVICES:
        return _too_many(len(slot.devices))
    pods = most_pods(placement_map, slot)
    if pods > MAX_CLAIM_PODS:
        return _unsupported(
            f"{pods} lines that share GPUs of {slot.node}",
            f"at most {MAX_CLAIM_PODS} pods share a claim",
            made_anew("name other GPUs"),
        )
    return None


def _any_line_fault(placement_map: PlacementMap) -> Fault | None:
    """Check that claims can give the devices of every line, whichever the pod gets."""
    found = devices_of_map(placement_map)
    if found.sets:
        node, device = next(iter(found.sets))
        field = f"a map whose lines share GPU {device} of {node}"
        return _unsupported(field, "its index is decided later, so that its claim belongs to it alone", _OWN_INDEX)
    if found.mig_device:
        return _mig(found.mig_device)
    return _too_many(found.most) if found.most > MAX_CLAIM_DEVICES else None


def _mig(device: str) -> Fault:
    return _unsupported(f"MIG device {device}", "the driver gives whole GPUs", _WHOLE_GPUS)


def _too_many(devices: int) -> Fault:
    return _unsupported(f"{devices} GPUs", f"a claim has at most {MAX_CLAIM_DEVICES}", _FEWER_GPUS)


def _unsupported(field: str, rule: str, remedy: str) -> Fault:
    return Fault(Reason.UNSUPPORTED, f"cannot give a pod ResourceClaims (isolation: dra) and {field}: {rule}", remedy)


def _random_claim(pod: PodText) -> tuple[ClaimSet, ...] | Fault:
    """Return the one claim of a pod whose devices are decided later. It has the name that admission chose."""
    carried = pod.resource_claims
    if len(carried) > 1:
        return _wrong_claim(carried[1], "a pod whose devices are decided when it is placed has one claim")
    return (ClaimSet(carried[0] if carried else "", ()),)


def _carried(pod: PodText, claims: tuple[ClaimSet, ...]) -> tuple[ClaimSet, ...] | Fault:
    """Check that a pod with claims has exactly those of its line."""
    needed, carried = tuple(each.name for each in claims), pod.resource_claims
    if carried in {(), needed}:
        return claims
    wrong = next((name for name in carried if name not in needed), carried[0])
    rule = f"for its line a pod has {', '.join(needed)}, in this order" if needed else "its line has no GPU"
    return _wrong_claim(wrong, rule)


def _wrong_claim(name: str, rule: str) -> Fault:
    return Fault(
        Reason.REQUEST_INVALID,
        f"cannot use ResourceClaim {quote(name)} of spec.resourceClaims: {rule}",
        made_anew("leave spec.resourceClaims and resources.claims out: the webhook adds them"),
    )
