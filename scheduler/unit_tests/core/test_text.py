import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.text import MAX_BYTES, printable, quote, sentence


def size(text: str) -> int:
    return len(text.encode())


QUOTED = {
    "plain text is not changed": ("node1", '"node1"'),
    "letters of all languages are legible": ("Größe", '"Größe"'),
    "control characters are escaped": ("a\nb\x00", '"a\\nb\\x00"'),
    "quotes and backslashes are escaped": ('"\\', '"\\"\\\\"'),
    "a single quote is escaped": ('a"X', '"a\\"X"'),
    "a single backslash is escaped": ("a\\X", '"a\\\\X"'),
    "letters beside an escaped character are legible": ("ö\n", '"ö\\n"'),
    "characters that turn text around are escaped": ("\u202e", '"\\u202e"'),
    "half of a surrogate pair is escaped": ("\ud800", '"\\ud800"'),
    "60 characters fit": ("x" * 60, f'"{"x" * 60}"'),
    "more are cut": ("x" * 61, f'"{"x" * 60}…"'),
}


@pytest.mark.parametrize(("text", "expected"), QUOTED.values(), ids=QUOTED)
def test_quote_is_short_and_printable(text: str, expected: str) -> None:
    """A user's text is quoted short and printable."""
    assert expected == quote(text)


PRINTABLE = {
    "printable text is not changed": ('Größe "a\\b"', 'Größe "a\\b"'),
    "escape codes are escaped": ("\x1b[2J\x9b2J", "\\x1b[2J\\x9b2J"),
    "line breaks and tabs are escaped": ("a\r\nb\t\u2028", "a\\r\\nb\\t\\u2028"),
    "characters that turn text around are escaped": ("\u202eabc", "\\u202eabc"),
    "half of a surrogate pair is escaped": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize(("text", "expected"), PRINTABLE.values(), ids=PRINTABLE)
def test_text_is_made_printable(text: str, expected: str) -> None:
    """A terminal shows it on one line, and obeys no part of it."""
    assert printable(text) == expected


@given(text=st.text())
def test_printable_text_is_a_fixed_point(text: str) -> None:
    """It may be escaped at several places."""
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@pytest.mark.promise("text-3")
def test_a_short_sentence_is_not_cut() -> None:
    """A sentence has the reason, a colon, the problem and the remedy."""
    assert sentence("GpuHeld", "GPU 3 of node4 is held", "wait") == "GpuHeld: GPU 3 of node4 is held; wait"


def test_a_sentence_without_a_remedy_has_no_semicolon() -> None:
    """It has no semicolon at its end."""
    assert sentence("BindFailed", "no answer", "") == "BindFailed: no answer"


def test_a_sentence_of_exactly_1000_bytes_is_not_cut() -> None:
    """The limit itself is allowed."""
    whole = sentence("A", "é" * 495, "b" * 5)

    assert (size(whole), whole) == (MAX_BYTES, "A: " + "é" * 495 + "; bbbbb")


@pytest.mark.promise("text-5")
def test_a_long_sentence_keeps_reason_and_remedy() -> None:
    """The middle is cut, between two characters."""
    cut = sentence("GpuHeld", "\U0001f600" * 500, "delete that pod")

    assert cut.startswith("GpuHeld: \U0001f600")
    assert cut.endswith("\U0001f600…; delete that pod")
    assert MAX_BYTES - 4 < size(cut) <= MAX_BYTES


def test_a_remedy_that_is_too_long_is_cut_last() -> None:
    """Of the middle, only the ellipsis is left."""
    cut = sentence("GpuHeld", "x" * 500, "y" * 2000)

    assert cut == f"GpuHeld: …; {'y' * (MAX_BYTES - size('GpuHeld: …; …'))}…"
    assert size(cut) == MAX_BYTES


def test_half_a_surrogate_pair_in_a_long_sentence_is_replaced() -> None:
    """A string may have a character that UTF-8 cannot encode."""
    assert sentence("GpuHeld", "\ud800" * 1000, "wait").startswith("GpuHeld: ???")


@given(st.sampled_from(["GpuHeld", "NodeUnschedulable"]), st.text(max_size=2000), st.text(max_size=2000))
def test_every_sentence_fits_and_keeps_its_reason(word: str, what: str, remedy: str) -> None:
    """A sentence has at most 1,000 bytes of UTF-8 and begins with the reason; a remedy that fits is never cut."""
    result = sentence(word, what * 3, remedy)

    assert size(result) <= MAX_BYTES
    assert result.startswith(f"{word}: ")
    if remedy and len(remedy.encode(errors="replace")) < 900:
        assert result.endswith("; " + remedy.encode(errors="replace").decode())
