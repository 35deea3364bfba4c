"""The recorded terminal of README.md is what its commands print today."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from tests import recording
from tests.tutorial_page import agrees, collapsed, steps

CAST: Final = recording.CAST.read_text(encoding="utf-8")
COLOR: Final = re.compile(r"\x1b\[[0-9;]*m")


def test_recording_has_asciinemas_format() -> None:
    """Version 2: a header, then events in the order of time."""
    header, *events = [json.loads(line) for line in CAST.splitlines()]

    assert (header["version"], header["width"], header["height"]) == (2, recording.WIDTH, recording.HEIGHT)
    times: Any = [at for at, _, _ in events]
    assert all(before <= after for before, after in itertools.pairwise(times))
    assert {kind for _, kind, _ in events} == {"o"}


def test_each_command_was_recorded() -> None:
    """A changed command is recorded again: `make recording`."""
    typed = [text for _, _, text in map(json.loads, CAST.splitlines()[1:]) if text.startswith(recording.PROMPT)]

    assert typed == [f"{recording.PROMPT}{command}\r\n" for command in (recording.FIRST, *recording.COMMANDS)]


def test_answers_are_those_of_the_tutorial() -> None:
    """A test types the tutorial. Another remedy needs no new recording: of messages, reason and names count."""
    recorded = collapsed(COLOR.sub("", recording.shown(CAST))).splitlines()
    (explained,) = [shown for commands, shown in steps("make") if "explain eval-0" in commands]
    shown = collapsed(explained or "").partition("created\n")[2]
    count = len(shown.splitlines())

    assert any(agrees(shown, "\n".join(recorded[start : start + count])) for start in range(len(recorded)))


def test_picture_is_drawn_from_the_recording() -> None:
    """Draw it again with `python -m tests.recording picture`. It loads nothing from other sites."""
    text = recording.PICTURE.read_text(encoding="utf-8")

    assert text == recording.picture(CAST)
    assert re.findall(r"url\((?!#)", text) == []
