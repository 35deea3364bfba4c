"""A time as the API writes it: RFC 3339 in UTC, as `metav1.Time` and `metav1.MicroTime` of apimachinery."""

from datetime import datetime


def time_of(at: datetime) -> str:
    """Return a `Time`, which has whole seconds. `at` is in UTC."""
    return _utc(at.isoformat(timespec="seconds"))


def micro_time_of(at: datetime) -> str:
    """Return a `MicroTime`. `at` is in UTC."""
    return _utc(at.isoformat(timespec="microseconds"))


def _utc(text: str) -> str:
    # strftime takes half as long again, and each bind writes two of them.
    return text.replace("+00:00", "Z")
