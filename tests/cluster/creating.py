"""Creates our pods continuously, to show that none of the creates is refused."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.reading import client_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.clusters import Json

# One create of this number is a real one. More would fill the cluster.
REAL: Final = 50


class Stream:
    """Creates pods, nearly all as dry runs, for which admission is the same. Collects the failures.

    `describe` returns the pod of a number. `on_create` checks each created pod and raises if it is wrong.
    """

    def __init__(
        self,
        cluster: Cluster,
        describe: Callable[[int], Json],
        *,
        creators: int = 1,
        pause: float = 0.0,
        on_create: Callable[[Json], None] = lambda _: None,
    ) -> None:
        """Prepare only; the `with` statement starts the creates."""
        # Not kubectl, which sends at most five requests a second.
        self._kube = client_of(cluster.kubeconfig, f"kind-{cluster.name}")
        self._describe = describe
        self._sample = on_create
        self._pause = pause
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(creators)]
        self._counts = [0] * creators
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the creates in flight."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def count(self) -> int:
        """How many creates were answered."""
        return sum(self._counts)

    def wait_for(self, more: int) -> None:
        """Wait until `more` further creates were answered."""
        goal = self.count + more
        eventually(f"{more} more creates", lambda: self.count >= goal, 60)

    def _run(self, creator: int) -> None:
        while not self._stop.wait(self._pause):
            number = creator + len(self._counts) * self._counts[creator]
            query = "" if self._counts[creator] % REAL == 0 else "?dryRun=All"
            try:
                self._sample(self._kube.create(f"/api/v1/namespaces/{TESTS}/pods{query}", self._describe(number)))
            except Exception as error:  # noqa: BLE001 - the test reports any failure of a create
                self.failures.append(f"{time.strftime('%X')} {error}")
            self._counts[creator] += 1
