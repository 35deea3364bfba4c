"""The counter of reviews, and the time at which the serving certificate ends."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpu_scheduler import names

# From a review's ordinary time to the time-out of the webhook's registration.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


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
        self._seconds = Histogram(
            names.METRIC_REVIEW_DURATION,
            "Seconds from the head of a request to its answer, by path",
            ["path"],
            buckets=_BUCKETS,
            registry=registry,
        )
        # Each lookup of a child takes two locks in the library, so children are kept here.
        self._children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def reviewed(self, path: str, outcome: str, seconds: float) -> None:
        """Count one review, which was answered after `seconds`."""
        known = self._children.get((path, outcome))
        if known is None:
            known = self._children[path, outcome] = self._reviews.labels(path, outcome), self._seconds.labels(path)
        count, duration = known
        count.inc()
        duration.observe(seconds)
