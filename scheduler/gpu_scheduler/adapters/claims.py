"""One claim, one PATCH: its provisioner learns on which node the pod will run, and makes the volume there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters.api import MERGE, NoAnswerError, NotSentError, segment, status_message
from gpu_scheduler.ports import ClaimSelector

if TYPE_CHECKING:
    from gpu_scheduler.adapters.api import Api
    from gpu_scheduler.ports import Fence


class ApiClaims(ClaimSelector):
    """Writes selected nodes, only while the fence is open."""

    def __init__(self, api: Api, fence: Fence) -> None:
        """Nothing is written before `select`."""
        self._api = api
        self._fence = fence

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        """See ClaimSelector. At most one PATCH, with the API's time-out; writing the same twice is harmless."""
        path = f"/api/v1/namespaces/{segment(namespace)}/persistentvolumeclaims/{segment(claim)}"
        body = msgspec.json.encode({"metadata": {"annotations": {names.SELECTED_NODE: node}}})
        try:
            answer = await self._api.call("PATCH", path, body=body, content_type=MERGE, guard=self._fence.may_bind)
        except NotSentError:
            return "the time in which this replica may bind is over"
        except NoAnswerError as error:
            return str(error)
        return None if answer.ok else f"HTTP {answer.status}: {status_message(answer)}"
