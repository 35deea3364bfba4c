"""Creates and deletes pods in a thread; many of them ask for the same devices."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final, Self

from tests.integration.faults.replicas import DEVICES, create_pod_for_any, create_pod_for_device, held, held_twice

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace

PAUSE: Final = 0.04
"""Seconds between two pods."""
CHECK_EVERY: Final = 10
"""Created pods between two checks of the held devices."""


class PodChurn:
    """A context manager that creates and deletes pods while it is entered. A seed always gives the same order of pods.

    About half of the pods name a device, the others take any. When more than `most` are bound, delete the oldest.
    """

    def __init__(self, namespace: Namespace, name: str, nodes: tuple[str, ...], seed: int, most: int = 16) -> None:
        """Name each pod by `name` and a number."""
        self._namespace = namespace
        self._name = name
        self._nodes = nodes
        self._chance = random.Random(seed)  # noqa: S311 - makes pods, guards nothing
        self._most = most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.shared: set[tuple[str, str]] = set()
        """The (node, device) pairs that two pods held at the same time."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread and check the held devices once more."""
        self._over.set()
        self._thread.join(20)
        self.shared.update(held_twice(self._namespace.kube))

    def _run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE):
            self._come(f"{self._name}-{number}")
            number += 1
            if number % CHECK_EVERY == 0:
                self._sample()

    def _come(self, name: str) -> None:
        node, device = self._chance.choice(self._nodes), self._chance.randrange(DEVICES)
        if self._chance.random() < 0.5:
            create_pod_for_any(self._namespace, f"{name}-any")
        else:
            create_pod_for_device(self._namespace, f"{name}-0", node, device)

    def _sample(self) -> None:
        kube = self._namespace.kube
        self.shared.update(held_twice(kube))
        for pod in held(kube)[: -self._most]:
            self._namespace.delete(pod.pod)
