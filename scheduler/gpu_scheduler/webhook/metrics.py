"""The counter of reviews, and the time at which the serving certificate ends."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from gpu_scheduler import names


class WebhookMetrics:
    """The counters of the webhook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the counters, which begin at 0."""
        self._reviews = Counter(
            names.METRIC_REVIEWS,
            "Admission reviews answered, by path and by outcome: patched, allowed, a reason, or malformed",
            ["path", "outcome"],
            registry=registry,
        )
        # Each lookup of a child takes two locks in the library, so children are kept here.
        self._children: dict[tuple[str, str], Counter] = {}

    def reviewed(self, path: str, outcome: str) -> None:
        """Count one answered review."""
        count = self._children.get((path, outcome))
        if count is None:
            count = self._children[path, outcome] = self._reviews.labels(path, outcome)
        count.inc()
