"""Why a node does not fit pods that ask for a count: the value that is kept for each node, without a text."""

from functools import lru_cache
from typing import Final, NamedTuple

from gpu_scheduler.core.reasons import RankedReason, Reason, rank_of


class FilterFailure(NamedTuple):
    """Why a node does not fit, and how much it has of what is missing."""

    reason: Reason
    offer: int = 0
    beyond: bool = False
    """Whether the pods ask for more than the node has in all."""

    @property
    def ranked_reason(self) -> RankedReason:
        """What decides which of several failures is reported."""
        return self.reason, self.beyond


# Most nodes have equal failures: equal values are stored once.
filter_failure: Final = lru_cache(maxsize=256)(FilterFailure)


def highest(one: FilterFailure | None, other: FilterFailure | None) -> FilterFailure | None:
    """Return the highest ranked of two failures; None if there is none."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda failure: rank_of(failure.ranked_reason))
