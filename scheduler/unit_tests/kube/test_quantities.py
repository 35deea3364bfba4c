from contextlib import suppress
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.utils import parse_quantity

from gpu_scheduler.kube.objects.quantities import MOST, QuantityError, thousandths, whole

READ = {
    "half a core": ("500m", 500, 1),
    "two cores": ("2", 2000, 2),
    "a core and a half": ("1.5", 1500, 2),
    "less than a thousandth": ("100u", 1, 1),
    "a fraction without a leading digit": (".5", 500, 1),
    "a number that ends with its point": ("5.", 5000, 5),
    "binary": ("2Gi", 2147483648000, 2147483648),
    "decimal": ("2G", 2000000000000, 2000000000),
    "an exponent in either case": ("1e3", 1000000, 1000),
    "exa, which looks like an exponent": ("1E", MOST, 10**18),
    "an exponent, which looks like exa": ("1E3", 1000000, 1000),
    "a sign": ("+1", 1000, 1),
    "nothing": ("0", 0, 0),
    "nothing of a hostile size": ("0e999999999", 0, 0),
    "a number of a billion digits": ("1e999999999", MOST, MOST),
    "a fraction of a billion digits": ("1e-999999999", 1, 1),
    "more than Kubernetes counts": ("9223372036854775808", MOST, MOST),
    "the most that Kubernetes counts": ("9223372036854775807", MOST, MOST),
    "a fraction that a rounded product would lose": ("1." + "0" * 90 + "1", 1001, 2),
}


@pytest.mark.parametrize(("text", "of_a_core", "pieces"), READ.values(), ids=READ)
def test_quantities_are_rounded_up_and_capped(text: str, of_a_core: int, pieces: int) -> None:
    """Kubernetes rounds requests up, and counts to 2^63-1."""
    assert (of_a_core, pieces) == (thousandths(text), whole(text))


UNREADABLE = {
    "nothing": "",
    "a suffix alone": "m",
    "a suffix that Kubernetes does not have": "1K",
    "a binary suffix in lower case": "1ki",
    "an exponent without a number": "1e",
    "a space": "1 ",
    "a line feed": "1\n",
    "digits of another script": "\u0661",
    "less than nothing": "-1",
    "no number": "NaN",
    "no end": "Infinity",
    "an underscore": "1_000",
    "an exponent of a hostile length": "1e9999999999",
    "digits of a hostile length": "9" * 10_000,
    "None as text": "None",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_invalid_quantity_is_a_quantity_error(text: str) -> None:
    """The reader of an object can leave out such a resource. No other exception is raised."""
    for read in (thousandths, whole):
        with pytest.raises(QuantityError):
            read(text)


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
NUMBERS = st.from_regex(
    r"[0-9]{1,6}(\.[0-9]{0,4})?|\.[0-9]{1,4}", fullmatch=True, alphabet=st.characters(codec="ascii")
)
EXPONENTS = st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-20, 20))


@given(NUMBERS, st.sampled_from(SUFFIXES) | EXPONENTS)
@example("1", "E")
def test_quantities_equal_those_of_the_client_library(number: str, suffix: str) -> None:
    """The official client reads the same amount from every text."""
    amount: Decimal = parse_quantity(number + suffix)  # type: ignore[no-untyped-call]

    assert min(_up(amount), MOST) == whole(number + suffix)
    assert min(_up(amount * 1000), MOST) == thousandths(number + suffix)


@given(st.text(max_size=200))
def test_any_text_is_a_number_or_a_quantity_error(text: str) -> None:
    """The number is between 0 and the cap."""
    with suppress(QuantityError):
        assert 0 <= whole(text) <= MOST


def _up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))
