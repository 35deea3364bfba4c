"""Pods that come and go all the time and want cards, often the same ones."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final, Self

from tests.integration.faults.replicas import CARDS, held, held_twice, wants_a_card, wants_any

if TYPE_CHECKING:
    from tests.integration.bench import Bench

PAUSE: Final = 0.04
"""Seconds between two pods."""
LOOK_EVERY: Final = 10
"""Pods between two looks at what is held."""


class Rush:
    """Comes while it is entered; the same pods in the same order for the same seed.

    Half of them name a card, the others take any. When `most` have one, the first of them go.
    """

    def __init__(self, bench: Bench, name: str, nodes: tuple[str, ...], seed: int, most: int = 16) -> None:
        """Pods are called by this name and a number."""
        self._bench = bench
        self._name = name
        self._nodes = nodes
        self._chance = random.Random(seed)  # noqa: S311 - makes pods, guards nothing
        self._most = most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.shared: set[tuple[str, str]] = set()
        """The cards that two pods were seen to have at once."""

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with a last look."""
        self._over.set()
        self._thread.join(20)
        self.shared.update(held_twice(self._bench.kube))

    def _run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE):
            self._come(f"{self._name}-{number}")
            number += 1
            if number % LOOK_EVERY == 0:
                self._look()

    def _come(self, name: str) -> None:
        node, card = self._chance.choice(self._nodes), self._chance.randrange(CARDS)
        if self._chance.random() < 0.5:
            wants_any(self._bench, f"{name}-any")
        else:
            wants_a_card(self._bench, f"{name}-0", node, card)

    def _look(self) -> None:
        kube = self._bench.kube
        self.shared.update(held_twice(kube))
        for pod in held(kube)[: -self._most]:
            self._bench.delete(pod.pod)
