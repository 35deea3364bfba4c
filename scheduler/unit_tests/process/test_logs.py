import json
import logging
from collections.abc import Iterator

import pytest

from gpu_scheduler.process.logs import set_up_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_pipe_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, with level, time and fields; the standard library's loggers too."""
    set_up_logging("INFO", terminal=False)
    message = "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)"
    logging.getLogger("ours").info(message, extra={"namespace": "default"})
    logging.getLogger("theirs").warning("Bound %s", "a-0", extra={"node": "node1"})
    logging.getLogger("ours").warning("Cannot read a pod", extra={"namespace": "default"})

    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())

    assert first["event"] == message
    assert (first["level"], first["logger"], first["namespace"]) == ("info", "ours", "default")
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["node"], second["level"]) == ("Bound a-0", "node1", "warning")
    assert third.keys() == first.keys()
    assert (third["event"], third["level"], third["logger"]) == ("Cannot read a pod", "warning", "ours")


def test_a_terminal_gets_coloured_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """For people."""
    set_up_logging("INFO", terminal=True)
    logging.getLogger("ours").info("Leading", extra={"pods": 3})

    line = capsys.readouterr().err
    assert "Leading" in line
    assert "\x1b[" in line
    assert "=3" in line


HOSTILE = "\x1b[2J\x9b2J\u202e\u2028\x7f\U000e0041\r\n2026-01-01 INFO Leading"


@pytest.mark.parametrize("terminal", [True, False], ids=["a terminal", "a pipe"])
def test_what_users_wrote_is_printable_and_begins_no_line(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001 - a row of the table
    """In message, field and traceback. JSON keeps the text as it is for programs."""
    set_up_logging("INFO", terminal=terminal)
    try:
        raise ValueError(HOSTILE)  # noqa: TRY301 - its traceback is logged
    except ValueError:
        logging.getLogger("ours").exception("Cannot read %s", HOSTILE, extra={"error": HOSTILE})

    first, *rest = lines = capsys.readouterr().err.split("\n")
    for colour in ("\x1b[31m", "\x1b[36m", "\x1b[0m"):
        first = first.replace(colour, "")
    assert all(line.isprintable() for line in (first, *rest))
    assert "Cannot read \\" in first
    if terminal:
        assert [line for line in rest if line and not line.startswith("  ")] == []
        return
    assert rest == [""]
    line = json.loads(lines[0])
    assert (line["event"], line["error"]) == (f"Cannot read {HOSTILE}", HOSTILE)


def test_the_level_is_obeyed_and_libraries_stay_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator does not need the libraries' ordinary messages."""
    set_up_logging("INFO", terminal=False)
    logging.getLogger("ours").debug("detail")
    logging.getLogger("aiohttp.access").info("chatter")

    assert capsys.readouterr().err == ""


def test_errors_carry_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line of JSON."""
    set_up_logging("INFO", terminal=False)
    try:
        int("a bug")
    except ValueError:
        logging.getLogger("ours").exception("It failed")

    assert "ValueError: invalid literal" in json.loads(capsys.readouterr().err)["exception"]


def test_a_line_that_cannot_be_written_raises_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The caller continues, and the next line is written again."""
    set_up_logging("INFO", terminal=False)
    logging.getLogger("ours").info("Odd: \udcff")
    logging.getLogger("ours").info("Leading")

    assert json.loads(capsys.readouterr().err.splitlines()[-1])["event"] == "Leading"
