"""Gives the claims of a waiting pod the node on which their volumes are to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_scheduler.core.model import Pod
    from gpu_scheduler.core.volumes import Selection
    from gpu_scheduler.ports import ClaimSelector


async def select_claims(claims: ClaimSelector, pod: Pod, selection: Selection) -> str | None:
    """One after the other, until one fails: then the answer says why."""
    for claim in selection.claims:
        failure = await claims.select(pod.ref.namespace, claim, selection.node)
        if failure is not None:
            return failure
    return None
