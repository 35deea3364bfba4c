"""L, L0 and A: the limit that the API server sets, by a client that sends what was decided before."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from bench.contenders import orders
from bench.contenders.limit import Blaster
from bench.contenders.precomputed import orders as decided
from bench.plant import CREATED
from bench.results import Cost
from tests.integration.bench import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from bench.plant import Plant
    from bench.town import Object, Settlement, Town

_PATIENCE: Final = 600.0
_SPACES: Final = "/namespaces/"
_MORE: Final = "more-"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_CREATOR: Final = "benchmark-creates-pods"
_RIGHTS: Final[dict[str, Object]] = {
    "clusterroles": {
        "metadata": {"name": _CREATOR},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
    },
    "clusterrolebindings": {
        "metadata": {"name": _CREATOR},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _CREATOR},
        "subjects": [{"kind": "ServiceAccount", "name": "gpu-scheduler", "namespace": SYSTEM_NAMESPACE}],
    },
}


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
        path = plant.folder / "limit.jsonl"
        orders.write(path, plant.header(token, self._in_flight), self._orders(plant))
        self._blaster = Blaster(self._client, path, plant.folder / "limit.log")
        self._blaster.wait_ready()

    def go(self) -> None:
        """See Contender."""
        assert self._blaster is not None
        self._blaster.go()

    def cost(self) -> Cost:
        """See Contender; memory is not what a blaster is about."""
        return Cost(cpu=self._blasted().cpu, rss=0.0, pss=0.0)

    def stop(self) -> None:
        """See Contender."""
        if self._blaster is not None:
            self._blaster.stop()

    def _blasted(self) -> orders.Blasted:
        assert self._blaster is not None
        return self._blaster.wait(_PATIENCE)

    def _orders(self, plant: Plant) -> list[orders.Order]:
        pods = plant.items(f"/api/v1/pods?fieldSelector=spec.schedulerName={self.scheduler}")
        return decided(plant.items("/api/v1/nodes"), pods, events=self.events)


class Arriving(Limit):
    """A: L with the creation of another pod before each bind, as in a stream on which nobody has to decide.

    On the same machine no scheduler places pods faster while they arrive: this one costs nothing and waits for nothing.
    """

    def __init__(self, client: str, in_flight: int, more: Town) -> None:
        """`more` are the pods that are made, in namespaces of their own."""
        super().__init__(client, in_flight, events=True)
        self.name = "A"
        self._more = more

    def prepare(self, plant: Plant, town: Settlement) -> None:
        """See Contender. Orders have one token, so the account that binds may make pods here, too."""
        plant.make_namespaces(f"{_MORE}{name}" for name in self._more.namespaces)
        plant.make((f"/apis/{_RBAC}/{kind}", body) for kind, body in _RIGHTS.items())
        super().prepare(plant, town)

    def _blasted(self) -> orders.Blasted:
        blasted = super()._blasted()
        # Nobody audits pods that wait.
        assert set(blasted.statuses) == {CREATED}, blasted.statuses
        return blasted

    def _orders(self, plant: Plant) -> list[orders.Order]:
        made = (_made(*request) for request in self._more.pod_requests(self.scheduler))
        return list(chain.from_iterable(zip(made, super()._orders(plant), strict=True)))


def _made(path: str, body: Object) -> orders.Order:
    path = path.replace(_SPACES, f"{_SPACES}{_MORE}")
    return orders.Order(orders.Request(path, msgspec.json.encode(body).decode()), None)
