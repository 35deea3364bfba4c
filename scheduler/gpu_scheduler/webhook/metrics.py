"""The counter of reviews, and the time at which the serving certificate ends."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpu_scheduler import names

# From a review's ordinary time to the time-out of the webhook's registration.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class WebhookMetrics:
    """The counters of the webhook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the counters, which begin at 0."""
        reviews = Counter(
            names.METRIC_REVIEWS,
            "Admission reviews answered, by path and by outcome: patched, allowed, a reason, or malformed",
            ["path", "outcome"],
            registry=registry,
        )
        seconds = Histogram(
            names.METRIC_REVIEW_DURATION,
            "Seconds from the head of a request to its answer, by path",
            ["path"],
            buckets=_BUCKETS,
            registry=registry,
        )
        # Each lookup of a child takes two locks in the library.
        self._reviews, self._seconds = cache(reviews.labels), cache(seconds.labels)

    def reviewed(self, path: str, outcome: str, seconds: float) -> None:
        """Count one review, which was answered after `seconds`."""
        self._reviews(path, outcome).inc()
        self._seconds(path).observe(seconds)
