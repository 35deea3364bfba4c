"""The bind gate of ResourceClaims: which of our claims every container must use, and what is wrong with its list.

LAW: the webhook completes the lists with the same functions with which the bind gate checks them. Ephemeral containers
are not checked: the API gives them no claims.
"""

from typing import Final

from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.claims_request import used_entries
from gpu_scheduler.core.pods.container_env import Container, ContainerKind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

REMADE: Final = (
    "delete the pod: its controller recreates it and admission completes it; a bare pod must be created again"
)
"""The remedy for a pod that admission did not complete."""


def gpu_containers(pod: Pod) -> tuple[Container, ...]:
    """Return the containers that have GPUs: those that use the pod's own claim, or all if it has none.

    Debug containers have no claims. They see what their pod's containers see.
    """
    own, containers = pod.request.own_claim, pod.environment.containers
    if own is None:
        return containers
    return tuple(
        [each for each in containers if each.kind is ContainerKind.EPHEMERAL or own.entry in used_entries(each)]
    )


def missing_claims(container: Container, claims: int) -> tuple[str, ...]:
    """Return the entries that the container does not use yet, of a pod with this number of claims."""
    if container.kind is ContainerKind.EPHEMERAL:
        return ()
    used = used_entries(container)
    return tuple(entry for entry in CLAIM_ENTRIES[:claims] if entry not in used)


def part_of_claim(container: Container) -> Unschedulable | None:
    """Check that the container uses no claim of ours in part: all containers of a pod see the same devices."""
    part = next((each for each in used_entries(container) if "/" in each), None)
    if part is None:
        return None
    entry, _, request = part.partition("/")
    what = (
        f"cannot give container {quote(container.name)} only request {quote(request)} of ResourceClaim {entry}: "
        "all containers of a pod see the same GPUs"
    )
    return Unschedulable(Reason.ENV_CONFLICT, what, made_anew("leave its resources.claims out: the webhook adds them"))


def claims_complete(pod: Pod) -> Unschedulable | None:
    """Check that every container uses all claims of ours that the pod has. The webhook adds them."""
    claims = len(pod.resource_claims) if pod.request.own_claim is None else 0
    for container in pod.environment.containers if claims else ():
        conflict = part_of_claim(container)
        if conflict is not None:
            return conflict
        gaps = missing_claims(container, claims)
        if gaps:
            return Unschedulable(
                Reason.ENV_NOT_INJECTED,
                f"cannot start container {quote(container.name)} without {gaps[0]} in its resources.claims: "
                "it would have no GPU",
                REMADE,
                blockers=() if pod.owner is None else (pod.ref,),
            )
    return None
