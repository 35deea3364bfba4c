import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.cli.fitting import fitted, ljust, width_of, wrapped

WIDTHS = {"letters": ("node1", 5), "letters that take two columns": ("节点", 4), "an accent of its own": ("e\u0301", 1)}


@pytest.mark.parametrize(("text", "width"), WIDTHS.values(), ids=WIDTHS)
def test_widths(text: str, width: int) -> None:
    """As a terminal counts."""
    assert width_of(text) == width
    assert width_of(ljust(text, 9)) == 9


FIXED, WRAPS, SPARE, LAST_SPARE = (0, 0), (8, 0), (0, 2), (0, 1)
TABLES: dict[str, tuple[list[int], list[tuple[int, int]], int | None, list[int | None]]] = {
    "a pipe has no width": ([10, 500], [FIXED, WRAPS], None, [10, 500]),
    "what fits stays as it is": ([10, 20], [FIXED, WRAPS], 33, [10, 20]),
    "a column that wraps gives way": ([10, 100], [FIXED, WRAPS], 53, [10, 40]),
    "the widest share what the others leave": ([10, 100, 90], [WRAPS, WRAPS, WRAPS], 76, [10, 30, 30]),
    "a column to spare stays where wrapping suffices": ([10, 100, 20], [FIXED, WRAPS, SPARE], 60, [10, 24, 20]),
    "a column that can be spared gives way": ([50, 20], [FIXED, SPARE], 60, [50, None]),
    "the highest number first": ([50, 20, 20], [FIXED, LAST_SPARE, SPARE], 80, [50, 20, None]),
    "and then the next": ([50, 20, 20], [FIXED, LAST_SPARE, SPARE], 60, [50, None, None]),
    "nothing else is left out": ([50, 50], [FIXED, FIXED], 60, [50, 50]),
    "a column that wraps keeps its least width": ([30, 50], [FIXED, WRAPS], 41, [30, 8]),
    "what cannot fit is left to the terminal": ([50, 50], [FIXED, WRAPS], 40, [50, 50]),
    "a narrow column keeps its width": ([5, 50], [WRAPS, WRAPS], 30, [5, 22]),
}


@pytest.mark.parametrize(("natural", "kinds", "width", "expected"), TABLES.values(), ids=TABLES)
def test_columns_fit_the_terminal(
    natural: list[int], kinds: list[tuple[int, int]], width: int | None, expected: list[int | None]
) -> None:
    """Three spaces stand between two columns."""
    assert fitted(natural, kinds, width, 3) == expected


TEXTS = {
    "a short text is one line": ("wait", 10, ["wait"]),
    "lines break at spaces": ("wait until it ends", 10, ["wait until", "it ends"]),
    "a long word breaks behind a slash": (
        "held by machine-learning/train-0",
        18,
        ["held by", "machine-learning/", "train-0"],
    ),
    "a word without a mark breaks anywhere": ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
    "wide letters take two columns": ("节点节点", 4, ["节点", "节点"]),
}


@pytest.mark.promise("cli-11")
@pytest.mark.parametrize(("text", "width", "lines"), TEXTS.values(), ids=TEXTS)
def test_texts_wrap(text: str, width: int, lines: list[str]) -> None:
    """Nothing is cut."""
    assert wrapped(text, width) == lines


@given(text=st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs"))), width=st.integers(2, 30))
def test_no_character_is_lost(text: str, width: int) -> None:
    """Only spaces where a line breaks."""
    lines = wrapped(text, width)

    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width_of(line) <= width for line in lines)
