"""Converts Kubernetes' quantities, such as `500m` or `2Gi`, into whole numbers.

LAW: pure text work; every text gives a number in bounded time or raises QuantityError.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import Final

MOST: Final = 2**63 - 1
"""Largest value: Kubernetes caps a quantity here."""

_LONGEST: Final = 100
_QUANTITY: Final = re.compile(
    r"\+?(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,9})|(?P<suffix>[KMGTPE]i|[numkMGTPE]))?"
)
_POWERS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {f"{prefix}i": Decimal(1024**power) for power, prefix in enumerate("KMGTPE", start=1)}
_FACTORS: Final = {suffix: Decimal(10) ** power for suffix, power in _POWERS.items()} | _BINARY
# 60 digits are more than the cap has, so rounding up twice gives the same result as rounding up once.
_UP: Final = Context(prec=60, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)


class QuantityError(ValueError):
    """The text is not a quantity, or is negative. No amount here can be negative."""


def thousandths(text: str) -> int:
    """Return a `cpu` quantity in thousandths of a core, rounded up."""
    return _read(text, 1000)


def whole(text: str) -> int:
    """Return any other quantity in bytes or pieces, rounded up."""
    return _read(text, 1)


def _read(text: str, scale: int) -> int:
    # Check before the cache, which must not keep hostile texts.
    if len(text) > _LONGEST:
        raise QuantityError(f"cannot read a quantity of {len(text)} characters")
    return _cached(text, scale)


@lru_cache(maxsize=4096)
def _cached(text: str, scale: int) -> int:
    parts = _QUANTITY.fullmatch(text)
    if parts is None:
        raise QuantityError(f"cannot read quantity {text!r}: it must be like 500m, 2 or 4Gi")
    number = Decimal(f"{parts['number']}e{parts['exponent'] or 0}")
    amount = _UP.multiply(number, _FACTORS[parts["suffix"] or ""] * scale)
    # The cap comes first: a number of a billion digits must never be written out.
    return MOST if amount >= MOST else int(amount.to_integral_value(ROUND_CEILING))
