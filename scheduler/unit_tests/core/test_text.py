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


SENTENCES = {
    "reason, problem and remedy": (("GpuHeld", "GPU 3 is held", "wait"), "GpuHeld: GPU 3 is held; wait"),
    "no semicolon without a remedy": (("BindFailed", "no answer", ""), "BindFailed: no answer"),
    "exactly 1,000 bytes": (("A", "é" * 495, "b" * 5), f"A: {'é' * 495}; bbbbb"),
    "of a problem before a long remedy, only the ellipsis": (
        ("GpuHeld", "x" * 500, "y" * 2000),
        f"GpuHeld: …; {'y' * (MAX_BYTES - size('GpuHeld: …; …'))}…",
    ),
    "half a surrogate pair, which UTF-8 cannot encode": (("GpuHeld", "\ud800", "wait"), r"GpuHeld: \ud800; wait"),
    "what ends a line or moves the cursor (S4)": (
        ("GpuHeld", "held by\r\nme\x1b[2K", "wait\u202e"),
        r"GpuHeld: held by\r\nme\x1b[2K; wait\u202e",
    ),
}


@pytest.mark.promise("text-3")
@pytest.mark.parametrize(("parts", "expected"), SENTENCES.values(), ids=SENTENCES)
def test_a_sentence_has_reason_problem_and_remedy(parts: tuple[str, str, str], expected: str) -> None:
    """It is cut where it is longer than 1,000 bytes: the problem first, then the remedy."""
    assert sentence(*parts) == expected


@pytest.mark.promise("text-5")
def test_a_long_sentence_keeps_reason_and_remedy() -> None:
    """The middle is cut, between two characters."""
    cut = sentence("GpuHeld", "\U0001f600" * 500, "delete that pod")

    assert cut.startswith("GpuHeld: \U0001f600")
    assert cut.endswith("\U0001f600…; delete that pod")
    assert MAX_BYTES - 4 < size(cut) <= MAX_BYTES


@given(st.sampled_from(["GpuHeld", "NodeUnschedulable"]), st.text(max_size=2000), st.text(max_size=2000))
def test_every_sentence_fits_and_keeps_its_reason(word: str, what: str, remedy: str) -> None:
    """A sentence has at most 1,000 bytes of UTF-8 and begins with the reason; a remedy that fits is never cut."""
    result = sentence(word, what * 3, remedy)

    shown = printable(remedy)
    assert size(result) <= MAX_BYTES
    assert result.isprintable()
    assert result.startswith(f"{word}: ")
    if remedy and size(shown) < 900:
        assert result.endswith(f"; {shown}")
