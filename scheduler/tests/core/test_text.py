import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.text import MAX_BYTES, quote, sentence


def size(text: str) -> int:
    return len(text.encode())


QUOTED = {
    "plain text stands as it is": ("node1", '"node1"'),
    "letters of all languages are legible": ("Größe", '"Größe"'),
    "control characters are escaped": ("a\nb\x00", '"a\\nb\\x00"'),
    "quotes and backslashes are escaped": ('"\\', '"\\"\\\\"'),
    "a quote alone is": ('a"X', '"a\\"X"'),
    "a backslash alone is": ("a\\X", '"a\\\\X"'),
    "letters beside what is escaped stay legible": ("ö\n", '"ö\\n"'),
    "characters that turn text around are escaped": ("\u202e", '"\\u202e"'),
    "half a character is escaped": ("\ud800", '"\\ud800"'),
    "60 characters fit": ("x" * 60, f'"{"x" * 60}"'),
    "more are cut": ("x" * 61, f'"{"x" * 60}…"'),
}


@pytest.mark.parametrize(("text", "expected"), QUOTED.values(), ids=QUOTED)
def test_quote(text: str, expected: str) -> None:
    """What users wrote comes back short and printable."""
    assert expected == quote(text)


def test_a_short_sentence_stands_whole() -> None:
    """Word, colon, what is the case, what helps."""
    assert sentence("GpuHeld", "GPU 3 of node4 is held", "wait") == "GpuHeld: GPU 3 of node4 is held; wait"


def test_a_sentence_without_a_cure_ends_plainly() -> None:
    """No dangling punctuation."""
    assert sentence("BindFailed", "no answer", "") == "BindFailed: no answer"


def test_a_sentence_of_exactly_1000_bytes_is_not_cut() -> None:
    """The limit is a limit, not a fence post."""
    whole = sentence("A", "é" * 495, "b" * 5)

    assert (size(whole), whole) == (MAX_BYTES, "A: " + "é" * 495 + "; bbbbb")


def test_a_long_sentence_keeps_word_and_cure() -> None:
    """What is cut is the middle, and at a character's boundary."""
    cut = sentence("GpuHeld", "\U0001f600" * 500, "delete that pod")

    assert cut.startswith("GpuHeld: \U0001f600")
    assert cut.endswith("\U0001f600…; delete that pod")
    assert MAX_BYTES - 4 < size(cut) <= MAX_BYTES


def test_a_cure_that_is_too_long_itself_is_cut_last() -> None:
    """Then nothing is left of the middle but the sign that something stood there."""
    cut = sentence("GpuHeld", "x" * 500, "y" * 2000)

    assert cut == f"GpuHeld: …; {'y' * (MAX_BYTES - size('GpuHeld: …; …'))}…"
    assert size(cut) == MAX_BYTES


def test_half_a_character_in_a_long_sentence_does_no_harm() -> None:
    """Python may hold what UTF-8 cannot say."""
    assert sentence("GpuHeld", "\ud800" * 1000, "wait").startswith("GpuHeld: ???")


@given(st.sampled_from(["GpuHeld", "NodeUnschedulable"]), st.text(max_size=2000), st.text(max_size=2000))
def test_every_sentence_fits_and_keeps_its_word(word: str, what: str, cure: str) -> None:
    """At most 1,000 bytes of valid UTF-8, beginning with the word; a cure that fits is never cut."""
    result = sentence(word, what * 3, cure)

    assert size(result) <= MAX_BYTES
    assert result.startswith(f"{word}: ")
    if cure and len(cure.encode(errors="replace")) < 900:
        assert result.endswith("; " + cure.encode(errors="replace").decode())
