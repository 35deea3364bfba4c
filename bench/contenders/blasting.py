"""L and L0: the limit that the API server sets, by a client that sends what was decided before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.contenders import orders
from bench.contenders.limit import Blaster
from bench.contenders.precomputed import orders as decided
from bench.results import Cost
from tests.integration.bench import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from bench.plant import Plant
    from bench.town import Settlement

_PATIENCE: Final = 600.0


class Limit:
    """One client with so many requests in flight, under our scheduler's own account."""

    scheduler = "gpu-scheduler"
    pinned = False
    devices = True

    def __init__(self, client: str, in_flight: int, *, events: bool) -> None:
        """`events` makes it L, without them it is L0."""
        self.name = "L" if events else "L0"
        self.events = events
        self._client = client
        self._in_flight = in_flight
        self._blaster: Blaster | None = None

    def prepare(self, plant: Plant, town: Settlement) -> None:
        """See Contender."""
        del town
        token = plant.plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        what = decided(
            plant.items("/api/v1/nodes"),
            plant.items(f"/api/v1/pods?fieldSelector=spec.schedulerName={self.scheduler}"),
            events=self.events,
        )
        path = plant.folder / "limit.jsonl"
        orders.write(path, plant.header(token, self._in_flight), what)
        self._blaster = Blaster(self._client, path, plant.folder / "limit.log")
        self._blaster.wait_ready()

    def go(self) -> None:
        """See Contender."""
        assert self._blaster is not None
        self._blaster.go()

    def cost(self) -> Cost:
        """See Contender; memory is not what a blaster is about."""
        assert self._blaster is not None
        return Cost(cpu=self._blaster.wait(_PATIENCE).cpu, rss=0.0, pss=0.0)

    def stop(self) -> None:
        """See Contender."""
        if self._blaster is not None:
            self._blaster.stop()
