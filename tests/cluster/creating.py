"""Creates pods of ours all the time, to show that nobody who does so is refused."""

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

# One creation of so many is a real one, so that they don't fill the cluster.
REAL: Final = 50


class Stream:
    """Creates pods, nearly all as dry runs: admission is the same. Keeps what went wrong.

    `describe` returns the pod of that number, and `look` raises where what was made of it is wrong.
    """

    def __init__(
        self,
        cluster: Cluster,
        describe: Callable[[int], Json],
        *,
        creators: int = 1,
        pause: float = 0.0,
        look: Callable[[Json], None] = lambda _: None,
    ) -> None:
        """Nothing is created before the `with`."""
        # Not kubectl, which asks five times a second at most.
        self._kube = client_of(cluster.kubeconfig, f"kind-{cluster.name}")
        self._describe = describe
        self._look = look
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
        """Wait for those on the way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def count(self) -> int:
        """How many creates have been answered."""
        return sum(self._counts)

    def wait_for(self, more: int) -> None:
        """Wait until so many more have been answered."""
        goal = self.count + more
        eventually(f"{more} more creates", lambda: self.count >= goal, 60)

    def _run(self, creator: int) -> None:
        while not self._stop.wait(self._pause):
            number = creator + len(self._counts) * self._counts[creator]
            query = "" if self._counts[creator] % REAL == 0 else "?dryRun=All"
            try:
                self._look(self._kube.create(f"/api/v1/namespaces/{TESTS}/pods{query}", self._describe(number)))
            except Exception as error:  # noqa: BLE001 - whatever fails a create is told by the test
                self.failures.append(f"{time.strftime('%X')} {error}")
            self._counts[creator] += 1
